"""Read every image header and every annotation of a dataset, and say what is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ocr.checks import SIDE, Range, check_numbers
from ocr.errors import AnnotationError
from ocr.formats import Annotations, read_annotations
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.tools.doctor.findings import Finding, Report, Split
from ocr.tools.doctor.frames import Verdict, check_frame_name, judge_frame
from ocr.tools.doctor.images import PIXEL_LIMIT, ImageFacts, inspect_image
from ocr.tools.doctor.pages import (
    files_below,
    find_duplicates,
    find_splits,
    image_findings,
    missing_images,
    unreferenced_files,
)
from ocr.tools.doctor.polygons import Outline, check_outlines, parse_words
from ocr.tools.executor import check_executor, run_tasks, started

Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK = 32
"""Images per chunk of a worker; reading one header takes 0.2 ms."""


@dataclass(frozen=True, slots=True)
class DoctorSettings:
    """How to examine a dataset; the defaults are those of training."""

    annotation_format: str = "auto"
    annotation_frame: str = "auto"
    size: int = 640
    min_text_size: float = 2.0
    deep: bool = False
    max_pixels: int = PIXEL_LIMIT
    annotation_categories: str | Sequence[str] = "auto"

    def __post_init__(self) -> None:
        check_numbers(self, size=SIDE, min_text_size=Range(0), max_pixels=SIDE)

    def inspect(self, path: Path) -> ImageFacts:
        """Examine one image file."""
        return inspect_image(path, deep=self.deep, max_pixels=self.max_pixels)

    def judge(self, page: tuple[ImageFacts, list[NDArray[np.float64]], tuple[int, int] | None]) -> Verdict:
        """The frame of a page's outlines, given the page size in the annotation, if it has one."""
        return judge_frame(*page, self.annotation_frame)


@dataclass(frozen=True, slots=True)
class Pool:
    """Workers and a progress bar."""

    executor: str
    workers: int | None
    progress: Progress

    def map(self, title: str, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Apply `work` to every item, in order."""
        bar = self.progress.add_task(escape(title), total=len(items))
        done: dict[int, Result] = {}
        with closing(run_tasks(work, items, self.executor, self.workers, chunk=CHUNK)) as results:
            for number, result in results:
                done[number] = result
                self.progress.advance(bar)
        return [done[number] for number in range(len(items))]


def examine(
    data: Path,
    *,
    splits: Sequence[str] | None = None,
    annotation_path: Path | None = None,
    annotation_format: str = "auto",
    annotation_categories: str | Sequence[str] = "auto",
    annotation_frame: str = "auto",
    size: int = 640,
    min_text_size: float = 2.0,
    max_pixels: int = PIXEL_LIMIT,
    deep: bool = False,
    workers: int | None = None,
    show_progress: bool = True,
    executor: str = "local",
) -> Report:
    """Examine every split of a dataset: `data/images/<split>/` with `data/jsons/<split>.json`.

    With `annotation_path`, `data` is the image folder of the split that these annotations describe. Errors and
    warnings make `report.ok` false, notes do not. `deep` also decodes every page; a page of more than `max_pixels` is
    an error and is never decoded.
    """
    data = Path(data)
    settings = DoctorSettings(
        annotation_format, annotation_frame, size, min_text_size, deep, max_pixels, annotation_categories
    )
    check_frame_name(annotation_frame)
    check_executor(executor, workers)
    alone = [(data.resolve().name, data, annotation_path)] if annotation_path else None
    found = alone or find_splits(data, splits)
    examined: list[Split] = []
    findings: list[Finding] = []
    with _pool(executor, workers, show_progress) as pool:
        for name, folder, annotation_file in found:
            split, wrong = examine_split(name, folder, annotation_file, settings, pool)
            examined.append(split)
            findings += wrong
    findings += find_duplicates(examined)
    return Report(data, size, annotation_frame, tuple(examined), tuple(findings))


@contextmanager
def _pool(executor: str, workers: int | None, show_progress: bool) -> Iterator[Pool]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, transient=True, disable=not show_progress)
    # Ray reports dead workers on stdout, which is reserved for the findings.
    with redirect_stdout(sys.stderr), started(executor, workers), progress:
        yield Pool(executor, workers, progress)


def examine_split(
    name: str, folder: Path, annotation_file: Path, settings: DoctorSettings, pool: Pool
) -> tuple[Split, list[Finding]]:
    """Examine the images first, then the words, then the frames that the words are in."""
    if not folder.is_dir():
        detail = f"{folder} is not a folder, and {annotation_file} refers to its images"
        return Split(name, folder, None), [Finding(name, "", "missing-folder", detail)]
    files = sorted(files_below(folder))
    try:
        annotations = read_annotations(
            annotation_file, settings.annotation_format, folder, settings.annotation_categories
        )
    except (AnnotationError, OSError) as error:
        images = _inspect(name, folder, _images_among(files), settings, pool)
        unreadable = [Finding(name, "", "annotation-error", fault) for fault in str(error).split("\n")]
        return Split(name, folder, None, images), [*unreadable, *image_findings(name, images)]
    images = _inspect(name, folder, _images_among(files, annotations.pages), settings, pool)
    outlines, bad_words = parse_words(name, annotations)
    frames = _judge_frames(name, annotations, images, outlines, settings, pool)
    split = Split(name, folder, annotations, images, frames)
    pages = annotations.pages
    return split, [
        *missing_images(name, annotations, files),
        *image_findings(name, {file: facts for file, facts in images.items() if file in pages}),
        *unreferenced_files(name, annotations, files, images, folder),
        *(Finding(name, "", "annotation-note", note) for note in annotations.notes),
        *bad_words,
        *(Finding(name, page, "no-words", "has no words") for page in pages if not pages[page].words),
        *_frame_findings(name, annotations, images, frames, settings.annotation_frame),
        *check_outlines(name, outlines, _page_sizes(split), settings.size, settings.min_text_size),
    ]


def _images_among(files: Sequence[str], pages: Container[str] = ()) -> list[str]:
    """Files that look like images, or that the annotation refers to."""
    return [file for file in files if file in pages or file.lower().endswith(IMAGE_EXTENSIONS)]


def _inspect(
    split: str, folder: Path, files: Sequence[str], settings: DoctorSettings, pool: Pool
) -> dict[str, ImageFacts]:
    facts = pool.map(f"{split}: images", settings.inspect, [folder / file for file in files])
    return dict(zip(files, facts, strict=True))


def _page_sizes(split: Split) -> dict[str, tuple[int, int]]:
    """Size of each readable page, in the frame of its polygons."""
    readable = {page: facts for page, facts in split.images.items() if facts.readable}
    return {
        page: facts.size_in(split.frames[page].best if page in split.frames else "upright")
        for page, facts in readable.items()
        if split.annotations is not None and page in split.annotations.pages
    }


def _judge_frames(
    split: str,
    annotations: Annotations,
    images: dict[str, ImageFacts],
    outlines: Sequence[Outline],
    settings: DoctorSettings,
    pool: Pool,
) -> dict[str, Verdict]:
    """A verdict for each readable page that has words and an EXIF orientation.

    If a verdict needed the pixels and found them damaged, the page is examined again, deeply, in `images`.
    """
    turned = {page for page in annotations.pages if page in images and images[page].readable}
    turned = {page for page in turned if images[page].orientation != 1}
    points: dict[str, list[NDArray[np.float64]]] = {}
    for outline in outlines:
        if outline.image in turned:
            points.setdefault(outline.image, []).append(outline.points)
    to_judge = [(images[page], drawn, annotations.pages[page].size) for page, drawn in points.items()]
    verdicts = pool.map(f"{split}: frames", settings.judge, to_judge) if points else []
    frames = dict(zip(points, verdicts, strict=True))
    for page in [page for page, verdict in frames.items() if verdict.damaged]:
        images[page] = replace(settings, deep=True).inspect(images[page].path)
    return {page: verdict for page, verdict in frames.items() if images[page].readable}


def _frame_findings(
    split: str,
    annotations: Annotations,
    images: dict[str, ImageFacts],
    frames: dict[str, Verdict],
    annotation_frame: str,
) -> list[Finding]:
    findings = []
    expected = "raw" if annotation_frame == "raw" else "upright"
    for page, facts in images.items():
        claimed = annotations.pages[page].size if page in annotations.pages else None
        raw, upright = facts.size_in("raw"), facts.size_in("upright")
        if claimed and facts.readable and claimed not in (raw, upright):
            detail = f"the annotation says {claimed[0]} x {claimed[1]}, the image is {upright[0]} x {upright[1]}"
            findings.append(Finding(split, page, "size-mismatch", detail))
        verdict = frames.get(page)
        if verdict is None:
            continue
        exif = f"EXIF orientation {facts.orientation}"
        if verdict.frame is None:
            detail = f"{exif}, {verdict.evidence}; {verdict.used} is used"
            findings.append(Finding(split, page, "ambiguous-frame", detail))
        elif verdict.frame != expected or verdict.frame != verdict.used:
            detail = f"{exif}, polygons in the {verdict.frame} frame ({verdict.evidence}), {_other(verdict, expected)}"
            findings.append(Finding(split, page, "other-frame", detail))
    return findings


def _other(verdict: Verdict, expected: str) -> str:
    if verdict.frame == expected:
        return f"and its page size makes training use {verdict.used}"
    return f"not {expected}: if all are, set annotation_frame={verdict.frame}"
