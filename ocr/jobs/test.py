"""Test: the scores of a checkpoint."""

from __future__ import annotations

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError
from ocr.jobs.run import run_job
from ocr.jobs.train import build_trainer, trained_module
from ocr.training.callbacks.data_report import describe


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
    trainer.test(module, datamodule=data, verbose=False)
    scores = {name: float(value) for name, value in trainer.callback_metrics.items()}
    if trainer.is_global_zero:
        title = f"{config.checkpoint_path} on {data.dataset('test').source.location}"
        table = Table(title=escape(title), title_justify="left")
        table.add_column("score")
        table.add_column("value", justify="right")
        for name, value in scores.items():
            table.add_row(name.removeprefix("val/"), f"{value:.4f}")
        console.print(table)
        dataset = data.dataset("test")
        console.print(Text(describe(dataset, dataset.ledger.totals())), soft_wrap=True)
    return scores


def main() -> None:
    """`ocr test`."""
    run_job("test", test)


if __name__ == "__main__":
    main()
