"""Read every image header and every annotation of a dataset, and say what is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.progress import Progress

from ocr.checks import SIDE, Range, check_numbers
from ocr.errors import AnnotationError
from ocr.formats import Annotations, read_annotations
from ocr.formats.annotation import Page
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.formats.row_mapping import RowMapping
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
from ocr.tools.doctor.polygons import Outline, check_doubles, check_outlines, parse_words
from ocr.tools.executor import LazyTasks, check_executor, run_tasks, started
from ocr.tools.terminal import markup, progress_bar

Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK = 32
"""Images per chunk of a worker; reading one header takes 0.2 ms."""
PAGES_AT_ONCE = 2000
"""Pages whose outlines are in memory; the outlines of 50 words take 40 kB while they are judged."""


@dataclass(frozen=True, slots=True)
class DoctorSettings:
    """How to examine a dataset; the defaults are the same as in training."""

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

    def run(self, title: str, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Apply `work` to every item; yields its number and the result, in the order in which they finish."""
        bar = self.progress.add_task(markup(title), total=len(items))
        with closing(run_tasks(work, items, self.executor, self.workers, chunk=CHUNK)) as results:
            for number, result in results:
                yield number, result
                self.progress.advance(bar)
        self.progress.remove_task(bar)


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
    duplicates = find_duplicates(examined)
    copies = {(copy.split, copy.image) for copy in duplicates if copy.kind == "unreferenced-copy"}
    findings = [one for one in findings if one.kind != "unreferenced-image" or (one.split, one.image) not in copies]
    findings += duplicates
    return Report(data, size, annotation_frame, tuple(examined), tuple(findings))


@contextmanager
def _pool(executor: str, workers: int | None, show_progress: bool) -> Iterator[Pool]:
    progress = progress_bar(show_progress, transient=True)
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
        unreadable = [Finding(name, "", "annotation-error", line) for line in str(error).split("\n")]
        return Split(name, folder, None, images), [*unreadable, *image_findings(name, images.items())]
    images = _inspect(name, folder, _images_among(files, annotations.pages), settings, pool)
    words = _Words(settings, pool)
    for some in _in_pieces(annotations.pages.items(), PAGES_AT_ONCE):
        words.examine(name, dict(some), images)
    split = Split(name, folder, annotations, images, words.frames)
    pages = annotations.pages
    return split, [
        *missing_images(name, annotations, files),
        *image_findings(name, ((file, facts) for file, facts in images.items() if facts.problem and file in pages)),
        *unreferenced_files(name, annotations, files, images, folder),
        *(Finding(name, "", "annotation-note", note) for note in annotations.notes),
        *words.bad,
        *(Finding(name, page, "no-words", "has no words") for page in words.empty),
        *_frame_findings(name, annotations, images, words.frames, settings.annotation_frame),
        *words.wrong,
    ]


class _Words:
    """Examines the words of some pages after the other, and keeps only what is wrong with them."""

    def __init__(self, settings: DoctorSettings, pool: Pool) -> None:
        self._settings, self._pool = settings, pool
        self.frames: dict[str, Verdict] = {}
        self.bad: list[Finding] = []
        self.wrong: list[Finding] = []
        self.empty: list[str] = []

    def examine(self, split: str, pages: Mapping[str, Page], images: RowMapping[ImageFacts]) -> None:
        """Examine the words first, then the frames that they are in, then the outlines."""
        outlines, bad = parse_words(split, pages)
        self.bad += bad
        self.empty += [page for page in pages if not pages[page].words]
        facts = {page: found for page in pages if (found := images.get(page)) is not None}
        frames = _judge_frames(split, pages, facts, outlines, self._settings, self._pool)
        for page in frames:
            images.replace(page, facts[page])
        self.frames |= {page: verdict for page, verdict in frames.items() if facts[page].readable}
        sizes = _page_sizes(facts, self.frames)
        self.wrong += check_outlines(split, outlines, sizes, self._settings.size, self._settings.min_text_size)
        self.wrong += check_doubles(split, outlines)


def _in_pieces(items: Iterable[Item], count: int) -> Iterator[list[Item]]:
    rest = iter(items)
    while some := list(islice(rest, count)):
        yield some


def _images_among(files: Sequence[str], pages: Container[str] = ()) -> list[str]:
    """Files that look like images, or that the annotation refers to."""
    return [file for file in files if file in pages or file.lower().endswith(IMAGE_EXTENSIONS)]


def _inspect(
    split: str, folder: Path, files: Sequence[str], settings: DoctorSettings, pool: Pool
) -> RowMapping[ImageFacts]:
    writer = ImageFacts.writer(folder)
    paths = LazyTasks(len(files), lambda number: folder / files[number])
    for number, facts in pool.run(f"{split}: images", settings.inspect, paths):
        writer.add(files[number], facts, number)
    return writer.mapping()


def _page_sizes(images: Mapping[str, ImageFacts], frames: Mapping[str, Verdict]) -> dict[str, tuple[int, int]]:
    """Size of each readable page, in the frame of its polygons."""
    return {
        page: facts.size_in(frames[page].best if page in frames else "upright")
        for page, facts in images.items()
        if facts.readable
    }


def _judge_frames(
    split: str,
    pages: Mapping[str, Page],
    images: dict[str, ImageFacts],
    outlines: Sequence[Outline],
    settings: DoctorSettings,
    pool: Pool,
) -> dict[str, Verdict]:
    """A verdict for each readable page that has words and an EXIF orientation.

    If a verdict needed the pixels and found them damaged, the page is examined again, deeply, in `images`.
    """
    turned = {page for page, facts in images.items() if facts.readable and facts.orientation != 1}
    points: dict[str, list[NDArray[np.float64]]] = {}
    for outline in outlines:
        if outline.image in turned:
            points.setdefault(outline.image, []).append(outline.points)
    to_judge = [(images[page], drawn, pages[page].size) for page, drawn in points.items()]
    judged = dict(pool.run(f"{split}: frames", settings.judge, to_judge)) if points else {}
    frames = {page: judged[number] for number, page in enumerate(points)}
    for page in [page for page, verdict in frames.items() if verdict.damaged]:
        images[page] = replace(settings, deep=True).inspect(images[page].path)
    return frames


def _frame_findings(
    split: str,
    annotations: Annotations,
    images: Mapping[str, ImageFacts],
    frames: Mapping[str, Verdict],
    annotation_frame: str,
) -> list[Finding]:
    findings = []
    expected = "raw" if annotation_frame == "raw" else "upright"
    for page, facts in images.items():
        annotated = annotations.pages.get(page)
        claimed = annotated.size if annotated is not None else None
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
