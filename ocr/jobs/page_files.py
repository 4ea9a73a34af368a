"""What `images=` names, and the detector that looks at it: for the jobs that need no dataset."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ocr.deploy.detector import Detector
from ocr.deploy.inputs import PageSource, files_below, numbered
from ocr.deploy.model_file import find_model
from ocr.errors import ConfigError
from ocr.models.packaged import packaged_detector

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The files that a folder, a pattern, a list of both, or standard input names; iterates over their paths."""

    folder: str | None
    """Of a single folder, pages are named from there; else as they are given."""
    files: list[str] | None
    """None: they come on standard input."""

    @classmethod
    def of_setting(cls, images: Any) -> PageFiles:
        """Raises ConfigError if `images` names nothing."""
        inputs = as_paths("images", images)
        if STANDARD_INPUT in inputs and len(inputs) > 1:
            raise ConfigError(
                f"images={inputs}: - (names on standard input) cannot be combined with others. Pass it alone",
                setting="images",
                value=inputs,
            )
        folder = inputs[0] if len(inputs) == 1 and os.path.isdir(inputs[0]) else None
        if inputs == [STANDARD_INPUT]:
            return cls(None, None)
        return cls(folder, [file for path in inputs for file in files_below(path)])

    def __iter__(self) -> Iterator[str]:
        yield from _files_on_stdin() if self.files is None else self.files

    def name(self, page: PageSource) -> str:
        """In the outputs; a page of a PDF as browsers name it."""
        return numbered(self.file_name(page.name), page.number)

    def file_name(self, path: str) -> str:
        """Of a file in the outputs."""
        return path if self.folder is None else os.path.relpath(path, self.folder).replace(os.sep, "/")


def as_paths(setting: str, value: Any) -> list[str]:
    """One path or a list of them, as strings: a folder may be named 2024."""
    if value is None:
        raise ConfigError(
            f"{setting} is not set. Set it to a folder of images and PDFs ({setting}=FOLDER), a file, a pattern in "
            "quotes, or - for names on standard input",
            setting=setting,
        )
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    given = [str(path) for path in plain] if isinstance(plain, list) else [str(plain)]
    if not given:
        raise ConfigError(f"{setting}=[] is empty. Name at least one file or folder", setting=setting, value=[])
    return given


def as_folder(setting: str, value: Any) -> Path:
    """A folder to write into, which may be named 2024."""
    if value is None:
        raise ConfigError(f"{setting} is not set. Set it to the folder to write into: {setting}=DIR", setting=setting)
    return Path(str(value))


def open_detector(config: DictConfig) -> tuple[Path, Detector]:
    """The file of `checkpoint_path`, or the bundled one, and its detector with the settings of the config."""
    model = find_model(str(config.checkpoint_path or packaged_detector()))
    detector = Detector.load(
        model,
        device=config.device,
        threads=None if config.threads.model == "auto" else config.threads.model,
        boxes={name: value for name, value in (config.boxes or {}).items() if value is not None},
        max_pixels=config.decode.max_pixels,
        tile=config.tile,
        polygons=config.polygons,
    )
    return model, detector


def page_progress(what: str, console: Console) -> Progress:
    """A bar that counts pages, gone when it is done."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)


def _files_on_stdin() -> Iterator[str]:
    """One name per line, as they come; `find` and `ls` write such lists, `find -print0` with NUL between them."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # Names of files are bytes, and not always UTF-8.
    found = False
    for line in sys.stdin:
        for name in filter(None, line.rstrip("\r\n").split("\0")):
            found = True
            yield from files_below(name)
    if not found:
        raise ConfigError(
            "images=-: standard input named no file. Write one name per line: ls FOLDER/*.jpg | ocr ...",
            setting="images",
            value=STANDARD_INPUT,
        )
