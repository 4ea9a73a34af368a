"""Outputs: predictions as JSON, CSV, and in the formats of labelling tools, written from the log."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ocr.atomic import replacing
from ocr.csv_cells import plain_cell
from ocr.deploy.prediction_log import PredictionLog
from ocr.errors import ConfigError, near_names
from ocr.formats.annotation import Annotations, Page, Word
from ocr.formats.registry import FORMATS
from ocr.formats.write import WRITTEN, write_annotations

SUFFIXES = {"json": ".json", "xml": ".xml", "text": ".txt"}
KNOWN = ("json", "csv", *(name for name in WRITTEN if name != "native"))
"""json is the native annotation format, with scores."""


def write_outputs(
    log: PredictionLog, folder: Path, formats: Sequence[str], images: Path | None = None
) -> tuple[str, ...]:
    """Write `predictions.*` into `folder`, each file atomically; returns what a format could not hold.

    `images` is the folder that the names of pages start from, for formats that refer to it.
    """
    check_formats(formats)
    notes: list[str] = []
    for format in formats:
        if format in ("json", "csv"):
            with replacing(folder / f"predictions.{format}") as stream:
                for part in _json(log) if format == "json" else _csv(log):
                    stream.write(part)
        else:
            notes += _write_annotations(log, folder, format, images)
    return tuple(notes)


def as_annotation(page: Mapping[str, Any]) -> tuple[Page, list[float]]:
    """What `TextPage.to_dict` gives, as a page of an annotation and the scores of its words."""
    words = page["words"]
    found = Page(tuple(Word(key, word["points"]) for key, word in words.items()), (page["img_w"], page["img_h"]))
    return found, [word["score"] for word in words.values()]


def check_formats(formats: Sequence[str]) -> None:
    """Raise ConfigError for a format that is not known."""
    for format in formats:
        if format not in KNOWN:
            raise ConfigError(
                f"formats={list(formats)}: {format} is unknown. {near_names(str(format), list(KNOWN))}",
                setting="formats",
                value=format,
            )


def _json(log: PredictionLog) -> Iterator[bytes]:
    """The native annotation format, with a score per word."""
    yield b'{"images": {'
    for number, (name, page) in enumerate(log.pages()):
        yield f"{', ' if number else ''}{json.dumps(name)}: {json.dumps(page)}".encode()
    yield b"}}"


def _csv(log: PredictionLog) -> Iterator[bytes]:
    """A row per word: image, word, score, points."""
    yield _row(["image", "word", "score", "points"])
    for name, page in log.pages():
        for key, word in page["words"].items():
            points = " ".join(f"{x:g},{y:g}" for x, y in word["points"])
            yield _row([plain_cell(name), key, f"{word['score']:.4f}", points])


def _row(cells: list[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    # The bytes of a file name that is not UTF-8.
    return line.getvalue().encode(errors="surrogateescape")


def _write_annotations(log: PredictionLog, folder: Path, format: str, images: Path | None) -> tuple[str, ...]:
    """`predictions.cvat.xml`, or the folder `predictions.labelme` for a format with one file per image."""
    pages, scores = {}, {}
    for name, page in log.pages():
        pages[name], scores[name] = as_annotation(page)
    known = FORMATS[format]
    target = folder / f"predictions.{format}{'' if known.write is None else SUFFIXES[known.content]}"
    return write_annotations(Annotations(str(folder), format, pages), target, format, scores, image_path=images)
