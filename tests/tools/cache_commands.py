"""Caches to be listed, checked and cleared, and the commands that do it."""

import os
import time
from pathlib import Path

from typer.testing import CliRunner, Result

from ocr.cli import app
from ocr.datasets import DBTransforms, OCRDataset
from ocr.errors import ConfigError
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.tools.cache.inventory import find_caches

DAY = 86400


def ocr(*arguments: object, expect: int = 0) -> str:
    result = invoke(*arguments)
    assert result.exit_code == expect, (result.output, result.exception)
    return result.output


def invoke(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["cache", *map(str, arguments)])


def refused(*arguments: object) -> ConfigError:
    error = invoke(*arguments).exception
    assert isinstance(error, ConfigError)
    return error


def open_split(data: Path, root: Path, split: str = "val", size: int = 96, **settings) -> OCRDataset:
    transform = DBTransforms([Letterbox(size), Normalize()])
    folder = data / "images" / split
    settings = {"cache": "auto", "cache_folder": root} | settings
    return OCRDataset(folder, data / "jsons" / f"{split}.json", transform, **settings)


def fill(data: Path, root: Path, **settings) -> Path:
    dataset = open_split(data, root, **settings)
    dataset.fill_cache()
    assert dataset.cache is not None
    store = dataset.cache.store()
    assert store is not None
    return store.folder


def used_days_ago(folder: Path, days: float) -> None:
    os.utime(folder / "about.json", (time.time() - days * DAY,) * 2)


def short(folder: Path) -> str:
    return find_caches(folder.parent)[folder]


def flip_byte(file: Path, offset: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(offset)
        before = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([before[0] ^ 255]))
