"""`python scripts/convert_to_webdataset.py`: the splits of a config as tar shards."""

from __future__ import annotations

from dataclasses import fields

from omegaconf import DictConfig
from rich.console import Console

from ocr.datasets.build import build_dataset
from ocr.errors import ConfigError
from ocr.jobs.run import run_job
from ocr.tools.convert.report import INTERRUPTED, convert
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.preprocess_job import listed_splits


def convert_splits(config: DictConfig, console: Console) -> int:
    """Write the shards of every split; the exit status, 1 if verifying finds something wrong."""
    from ocr.datasets import OCRDataset

    settings = ConvertSettings(**{field.name: config[field.name] for field in fields(ConvertSettings)})
    datasets = {split: build_dataset(config, split) for split in listed_splits(config)}
    for split, dataset in datasets.items():
        if not isinstance(dataset, OCRDataset):
            raise ConfigError(
                f"datasets.{split}_dataset is not a folder of pages. Set data=base",
                setting=f"datasets.{split}_dataset",
                value=type(dataset).__name__,
            )
    return convert(datasets, config.out, settings)


def main() -> None:
    """Run the conversion; after an interruption the same command continues."""
    run_job("convert_to_webdataset", convert_splits, INTERRUPTED)
