"""Predict: the text on images and PDFs as JSON, CSV, other formats and drawn pages; resumes where it stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import cv2
import xxhash
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from ocr.deploy.detector import Detector
from ocr.deploy.inputs import PageSource, pages_of
from ocr.deploy.model_file import find_model
from ocr.deploy.outputs import check_formats, write_outputs
from ocr.deploy.page import TextPage
from ocr.deploy.prediction_log import PredictionLog, Stamp
from ocr.deploy.stream import PageStream
from ocr.jobs.page_files import PageFiles, page_progress
from ocr.models.packaged import named_detector


@dataclass(frozen=True, slots=True)
class PredictSettings:
    """The arguments of `glyphfeed predict`."""

    model: str
    pages: Sequence[str]
    out: Path = Path("predictions")
    formats: Sequence[str] = ("json", "csv")
    draw: bool = True
    overwrite: bool = False
    on_bad_sample: str = "raise"
    boxes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of BoxesFromMap that differ from those of the detector's file."""
    detector: Mapping[str, Any] = field(default_factory=dict)
    """Other arguments of Detector.load."""
    batch_size: int = 8
    readers: int = 2


class Prediction:
    """One run of `glyphfeed predict`."""

    def __init__(self, settings: PredictSettings, console: Console) -> None:
        check_formats(list(settings.formats))
        self.settings, self.console = settings, console
        self.images = PageFiles.of(settings.pages)
        self.boxes = self.new_pages = self.left_out = self.drawings = 0
        self._stamps: dict[str, Stamp] = {}

    def run(self) -> Path:
        """Find the text on all pages that are not in `out` yet, and write what `out` has."""
        settings, out = self.settings, self.settings.out
        cv2.setNumThreads(1)  # Pages are decoded in threads.
        model = find_model(named_detector(settings.model))
        detector = Detector.load(model, boxes=settings.boxes, **settings.detector)
        with PredictionLog(out, self._found_with(detector, model), settings.overwrite) as log:
            try:
                skipped = self._find(detector, log)
            finally:
                # An interrupted run, too, leaves all that it has found.
                images = self.images.folder
                notes = write_outputs(log, out, list(settings.formats), None if images is None else Path(images))
            self._print_summary(len(log) - log.added, skipped, notes)
        return out

    def _find(self, detector: Detector, log: PredictionLog) -> dict[str, str]:
        files = self.images.files
        with page_progress("predicting", self.console) as progress:
            task = progress.add_task("", total=None if files is None else len(files))
            pages = self._pages(log, progress)
            settings = self.settings
            stream = PageStream(detector, pages, settings.batch_size, settings.readers, settings.on_bad_sample)
            try:
                for page in stream:
                    self._write(page, log)
                    progress.advance(task)
            finally:
                stream.close()
        return stream.skipped

    def _pages(self, log: PredictionLog, progress: Progress) -> Iterator[PageSource]:
        """Pages that are not in the log."""
        (task,) = progress.task_ids
        drawn = os.path.join(os.path.realpath(self._drawn), "")
        for file in self.images:
            if os.path.realpath(file).startswith(drawn):
                self.drawings += 1
                progress.advance(task)
                continue
            # Before the file is read: if it changes meanwhile, the next run does it again.
            stamp = self._stamps[file] = _stamp(file)
            log.leave_out_outdated(self.images.file_name(file), stamp)
            for number, page in enumerate(pages_of(file)):
                if number and self.images.files is not None:
                    progress.update(task, total=(progress.tasks[0].total or 0) + 1)
                if log.has(self.images.name(page), stamp):
                    progress.advance(task)
                else:
                    yield page

    def _write(self, page: TextPage, log: PredictionLog) -> None:
        name = self.images.name(page.source)
        found = page.to_dict()
        del found["name"]
        if self.settings.draw:
            page.draw(self._drawn / _drawing(name))
        # Last, so that a page in the log is done.
        log.add(name, self._stamps[page.name], found)
        self.boxes += len(page)
        self.new_pages += 1
        self.left_out += page.detections.left_out

    @property
    def _drawn(self) -> Path:
        return self.settings.out / "drawn"

    def _found_with(self, detector: Detector, model: Path) -> dict[str, Any]:
        """All that the predictions depend on."""
        digest = xxhash.xxh3_64()
        for file in (model, model.with_suffix(".bin")) if model.suffix == ".xml" else (model,):
            digest.update(file.read_bytes())
        return {
            "model": digest.hexdigest(),
            "boxes": asdict(detector.boxes),
            "tile": self.settings.detector.get("tile", "auto"),
            "images": None if self.images.folder is None else os.path.realpath(self.images.folder),
        }

    def _print_summary(self, before: int, skipped: dict[str, str], notes: Sequence[str]) -> None:
        earlier = f" ({before} from before)" if before and self.new_pages else ""
        if self.new_pages or not before:
            text = f"{self.boxes} boxes on {self.new_pages} pages{earlier}: {escape(str(self.settings.out))}"
        else:
            text = f"all {before} pages were there: {escape(str(self.settings.out))}"
        self.console.print(text, highlight=False, soft_wrap=True)
        told = {
            "pages skipped": len(skipped),
            "boxes over max_candidates": self.left_out,
            f"pages left out: drawings in {escape(str(self._drawn))}": self.drawings,
        }
        for what, count in told.items():
            if count:
                self.console.print(f"[yellow]{count} {what}", soft_wrap=True)
        for line in (*(f"skipped {reason}" for reason in skipped.values()), *notes):
            self.console.print(escape(line), highlight=False, soft_wrap=True)


def _stamp(path: str) -> Stamp:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return [state.st_size, state.st_mtime_ns]


def _drawing(name: str) -> PurePosixPath:
    """Where a page is drawn, below the folder of drawings whatever its name is.

    >>> str(_drawing("a/b.jpg")), str(_drawing("../b.png")), str(_drawing("/scans/c.pdf#page=2"))
    ('a/b.jpg', 'b.png.jpg', 'scans/c.pdf#page=2.jpg')
    """
    parts = [part for part in PurePosixPath(name.replace(os.sep, "/")).parts if part not in ("/", "..", ".")]
    last = parts[-1] if parts[-1].lower().endswith((".jpg", ".jpeg")) else f"{parts[-1]}.jpg"
    return PurePosixPath(*parts[:-1], last)


def predict(settings: PredictSettings, console: Console) -> Path:
    """Write the predictions of the pages into `out`, and return it."""
    return Prediction(settings, console).run()
