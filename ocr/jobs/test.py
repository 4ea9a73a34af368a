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
from ocr.jobs.run import run_job
from ocr.jobs.scored_split import check_annotated, describe_split
from ocr.jobs.stored_settings import name_of_detector
from ocr.jobs.train import build_trainer, lightning_errors, trained_module
from ocr.training.callbacks.data_report import describe

ROWS = {
    "IoU 0.5": ("val/precision", "val/recall", "val/hmean"),
    "IoU 0.7": ("val/precision_70", "val/recall_70", "val/hmean_70"),
    "CLEval": ("val/cleval_det_p", "val/cleval_det_r", "val/cleval_det_h"),
}


def test(config: DictConfig, console: Console) -> dict[str, float]:
    """Score a checkpoint on `datasets.test_dataset`; with `tune`, find better boxes on `datasets.val_dataset`."""
    if config.get("tune"):
        from ocr.jobs.tune import tune

        return tune(config, console)
    module = trained_module(config)
    data = OCRDataModule(config)
    check_annotated(data.dataset("test"), "test")
    trainer = build_trainer(config, training=False)
    if trainer.is_global_zero:
        dataset = data.dataset("test")
        pages = len(dataset) if isinstance(dataset, PageDataset) else None
        console.print(Text(describe_split(config, pages)), soft_wrap=True)
    with lightning_errors(trainer):
        trainer.test(module, datamodule=data, verbose=False)
    scores = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if trainer.is_global_zero:
        console.print(score_table(f"{name_of_detector(config)} on {data.dataset('test').source.location}", scores))
        dataset = data.dataset("test")
        console.print(Text(describe(dataset, dataset.ledger.totals())), soft_wrap=True)
    return scores


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
    """`glyphfeed test`."""
    run_job("test", test)


if __name__ == "__main__":
    main()
