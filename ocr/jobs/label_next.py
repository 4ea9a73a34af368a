"""Label next: the pages that are worth labelling first, as tasks with the detector's boxes to correct."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.atomic import replacing
from ocr.checks import check_choice, check_integer
from ocr.deploy.detector import Detector
from ocr.deploy.inputs import PageSource, pages_of
from ocr.deploy.outputs import SUFFIXES, as_annotation
from ocr.deploy.stream import PageStream
from ocr.errors import ConfigError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.formats.annotation import Annotations, Page
from ocr.formats.registry import FORMATS
from ocr.formats.write import check_tasks, check_written, write_annotations
from ocr.geometry.polygons import Polygons
from ocr.inspect.next_pages import RankedPage, rank_pages
from ocr.inspect.page import PageInput
from ocr.inspect.page_look import PageLook, look_at
from ocr.inspect.tables import write_csv
from ocr.jobs.labelled_pages import LabelledPages
from ocr.jobs.page_files import PageFiles, open_detector, page_progress
from ocr.jobs.run import quoted_override, run_job
from ocr.pipeline.sample import Sample

OPTIONS = ("--pages", "--tasks", "--out", "--json", "--csv")
"""Settings that are typed as options too, as `ocr doctor` has them."""


class Looks:
    """What the pages of a stream look like, by their names, in the order in which the model saw them."""

    def __init__(self, images: PageFiles, boxes: BoxesFromMap) -> None:
        self.images, self.boxes = images, boxes
        self.by_name: dict[str, PageLook] = {}

    def __call__(self, page: PageSource, sample: Sample, prob_map: NDArray[np.float32]) -> None:
        name = self.images.name(page)
        matrix = np.asarray(sample.inverse_matrix, dtype=np.float64)
        seen = PageInput(name, sample.image, prob_map, matrix, sample.shape, Polygons.pack([]))
        self.by_name[name] = look_at(seen, self.boxes)


class LabelNext:
    """One run of `ocr label-next`."""

    def __init__(self, config: DictConfig, console: Console) -> None:
        self.config, self.console = config, console
        check_integer("pages", config.pages, minimum=1)
        check_integer("batch_size", config.batch_size, minimum=1)
        check_integer("readers", config.readers, minimum=1)
        check_choice("on_bad_sample", config.on_bad_sample, ("raise", "skip"))
        self.tasks = None if config.tasks is None else str(config.tasks)
        if self.tasks is None and config.out is not None:
            raise ConfigError(
                f"out={config.out} is for tasks, and tasks=null. Name their format: --tasks label_studio",
                setting="tasks",
                path=str(config.out),
            )
        self.out = None if self.tasks is None else check_tasks(self.tasks, self._target(self.tasks))
        self.images = PageFiles.of_setting(config.images)
        self.labelled = LabelledPages.of_setting(config.labelled, self.images)
        self.skipped: dict[str, str] = {}

    def _target(self, format: str) -> Path:
        """Where tasks are written; if it is not said, a name that tells what they are."""
        check_written(format)
        if self.config.out is not None:
            return Path(str(self.config.out))
        known = FORMATS[format]
        return Path(f"label_next{'' if known.write is None else SUFFIXES[known.content]}")

    def run(self) -> list[RankedPage]:
        """Rank the pages, show the chosen ones, and write what is asked for."""
        free, labelled = self._pages()
        _, detector = open_detector(self.config)
        looks = self._look(detector, [*free.values(), *labelled.values()])
        ranked = rank_pages(
            [looks[name] for name in free if name in looks],
            [looks[name] for name in labelled if name in looks],
            self.config.pages,
        )
        if not ranked:
            raise ConfigError(
                f"images={self.config.images}: none of the {len(free)} pages could be read",
                setting="images",
                value=self.config.images,
            )
        chosen = [page for page in ranked if page.chosen]
        self._show(chosen, len(ranked), len(labelled))
        self._write_ranking(ranked, len(labelled))
        if self.tasks is not None and self.out is not None:
            self._write_tasks(detector, chosen, [free[page.look.name] for page in chosen], self.tasks, self.out)
        return ranked

    def _pages(self) -> tuple[dict[str, PageSource], dict[str, PageSource]]:
        """By their names, those without labels and those that are labelled; a page that is given twice counts once."""
        free: dict[str, PageSource] = {}
        labelled: dict[str, PageSource] = {}
        for file in self.images:
            for page in pages_of(file):
                (labelled if self.labelled.has(page) else free)[self.images.name(page)] = page
        if not free:
            raise ConfigError(
                f"images={self.config.images}: all of its {len(labelled)} pages are labelled "
                f"(labelled={self.config.labelled}). Give pages that are not",
                setting="labelled",
                value=self.config.labelled,
            )
        inside = {Path(page.name).resolve() for page in labelled.values()}
        for file in self.labelled.files:
            if Path(file).resolve() not in inside:
                labelled |= {self.images.name(page): page for page in pages_of(file) if self.labelled.has(page)}
        return free, labelled

    def _look(self, detector: Detector, pages: Sequence[PageSource]) -> dict[str, PageLook]:
        looks = Looks(self.images, detector.boxes)
        with page_progress("looking", self.console) as progress:
            task = progress.add_task("", total=len(pages))
            stream = self._stream(detector, pages, looks)
            try:
                for _ in stream:
                    progress.advance(task)
            finally:
                stream.close()
        self.skipped |= stream.skipped
        return looks.by_name

    def _stream(self, detector: Detector, pages: Sequence[PageSource], looks: Looks | None = None) -> PageStream:
        config = self.config
        return PageStream(detector, pages, config.batch_size, config.readers, config.on_bad_sample, looks)

    def _show(self, chosen: Sequence[RankedPage], pages: int, labelled: int) -> None:
        beside = f", beside {labelled} labelled ones" if labelled else ""
        table = Table(title=f"{len(chosen)} of {pages} pages to label next{beside}", title_justify="left")
        for column in ("", "page", "unsure", "unlike", "boxes", "why"):
            table.add_column(column, justify="left" if column in ("page", "why") else "right")
        for rank, page in enumerate(chosen, 1):
            figures = (f"{page.unsure:.3f}", f"{page.unlike:.2f}", str(page.look.boxes))
            table.add_row(str(rank), Text(page.look.name, overflow="fold"), *figures, Text(page.reason))
        self.console.print(table)
        notes = [f"skipped {reason}" for reason in self.skipped.values()]
        if len(chosen) < self.config.pages:
            notes.append(f"{self.config.pages} pages were asked for, and there are {pages}: all of them are listed")
        if lost := self.labelled.lost:
            notes.append(f"{len(lost)} labelled pages are no files, and not compared with: {lost[0]}, ...")
        for note in notes:
            self.console.print(escape(note), highlight=False, soft_wrap=True)

    def _write_ranking(self, ranked: Sequence[RankedPage], labelled: int) -> None:
        rows = [page.row(rank) for rank, page in enumerate(ranked, 1)]
        if self.config.json is not None:
            detector = None if self.config.checkpoint_path is None else str(self.config.checkpoint_path)
            found = {"detector": detector, "labelled": labelled, "pages": rows, "skipped": self.skipped}
            with replacing(Path(str(self.config.json))) as stream:
                stream.write(json.dumps(found, indent=1).encode())
        if self.config.csv is not None:
            write_csv(Path(str(self.config.csv)), rows)
        for file in (self.config.json, self.config.csv):
            if file is not None:
                self.console.print(Text(f"ranking: {file}"), soft_wrap=True)

    def _write_tasks(
        self, detector: Detector, chosen: Sequence[RankedPage], sources: Sequence[PageSource], format: str, out: Path
    ) -> None:
        """Boxes are found again for the chosen pages: to keep those of all pages would take memory."""
        pages: dict[str, Page] = {}
        scores: dict[str, list[float]] = {}
        reasons = {page.look.name: page.reason for page in chosen}
        for found in self._stream(detector, sources):
            name = self.images.name(found.source)
            page, scores[name] = as_annotation(found.to_dict())
            # A region is what tools show reasons with, so that of the page is on the first.
            first = tuple(replace(word, note=reasons[name]) for word in page.words[:1])
            pages[name] = replace(page, words=(*first, *page.words[1:]))
        folder = None if self.images.folder is None else Path(self.images.folder)
        annotations = Annotations(str(out), format, pages)
        for note in write_annotations(annotations, out, format, scores, "ocr label-next", folder):
            self.console.print(escape(note), highlight=False, soft_wrap=True)
        self.console.print(Text(f"tasks: {out}"), soft_wrap=True)


def label_next(config: DictConfig, console: Console) -> None:
    """Choose the pages of `images` that are worth labelling next."""
    LabelNext(config, console).run()


def _as_settings(words: Sequence[str]) -> list[str]:
    """`--pages 20` and `--pages=20` as settings: Hydra knows no options of ours.

    >>> _as_settings(["images=a", "--pages", "5", "--out=b.json"])
    ['images=a', 'pages=5', "out='b.json'"]
    """
    settings, left = [], list(words)
    while left:
        word = left.pop(0)
        option, equals, value = word.partition("=")
        if option not in OPTIONS:
            settings.append(word)
            continue
        if not equals:
            if not left:
                raise ConfigError(
                    f"{option} needs a value: ocr label-next images=FOLDER {option} VALUE", setting=option
                )
            value = left.pop(0)
        key = option.removeprefix("--")
        settings.append(f"{key}={value}" if key == "pages" else quoted_override(key, value))
    return settings


def main() -> None:
    """`ocr label-next`."""
    from ocr.exit_status import one_line_errors

    with one_line_errors():
        sys.argv[1:] = _as_settings(sys.argv[1:])
    run_job("label_next", label_next)


if __name__ == "__main__":
    main()
