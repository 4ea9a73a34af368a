"""Test: the scores of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.datasets.data_module import OCRDataModule
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError
from ocr.jobs.run import run_job
from ocr.jobs.scored_split import describe_split
from ocr.jobs.train import build_trainer, trained_module
from ocr.training.callbacks.data_report import describe

ROWS = {
    "IoU 0.5": ("val/precision", "val/recall", "val/hmean"),
    "IoU 0.7": ("val/precision_70", "val/recall_70", "val/hmean_70"),
    "CLEval": ("val/cleval_det_p", "val/cleval_det_r", "val/cleval_det_h"),
}


def test(config: DictConfig, console: Console) -> dict[str, float]:
    """Score a checkpoint on `datasets.test_dataset`."""
    module = trained_module(config)
    data = OCRDataModule(config)
    if not data.dataset("test").source.annotated:
        raise ConfigError(
            "datasets.test_dataset.annotation_path is null: there is nothing to score against. Set it, or predict: "
            "ocr predict checkpoint_path=... images=FOLDER"
        )
    trainer = build_trainer(config, training=False)
    if trainer.is_global_zero:
        dataset = data.dataset("test")
        pages = len(dataset) if isinstance(dataset, PageDataset) else None
        console.print(Text(describe_split(config, pages)), soft_wrap=True)
    trainer.test(module, datamodule=data, verbose=False)
    scores = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if trainer.is_global_zero:
        console.print(score_table(f"{_model(config)} on {data.dataset('test').source.location}", scores))
        dataset = data.dataset("test")
        console.print(Text(describe(dataset, dataset.ledger.totals())), soft_wrap=True)
    return scores


def _model(config: DictConfig) -> str:
    return str(config.checkpoint_path or f"weights={config.weights}")


def score_table(title: str, scores: Mapping[str, float]) -> Table:
    """Precision, recall and H-mean of every score that there is, a row each."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("score")
    for name in ("precision", "recall", "hmean"):
        table.add_column(name, justify="right")
    for row, keys in ROWS.items():
        if keys[0] in scores:
            table.add_row(row, *(f"{scores[key]:.4f}" for key in keys))
    return table


def main() -> None:
    """`ocr test`."""
    run_job("test", test)


if __name__ == "__main__":
    main()
