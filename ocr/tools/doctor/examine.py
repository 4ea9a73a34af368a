"""Read every image header and every annotation of a dataset, and say what is wrong with them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ocr.errors import AnnotationError, ConfigError
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
from ocr.tools.engine import check_engine, run_tasks, started

Item = TypeVar("Item")
Result = TypeVar("Result")
CHUNK = 32
"""Images a worker gets at a time; a header takes it 0.2 ms."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to look; the defaults are those of training."""

    annotation_format: str = "auto"
    annotation_frame: str = "auto"
    size: int = 640
    min_text_size: float = 2.0
    deep: bool = False
    max_pixels: int = PIXEL_LIMIT

    def inspect(self, path: Path) -> ImageFacts:
        """Look at one image file."""
        return inspect_image(path, deep=self.deep, max_pixels=self.max_pixels)

    def judge(self, page: tuple[ImageFacts, list[NDArray[np.float64]], tuple[int, int] | None]) -> Verdict:
        """The frame of a page's outlines, given what the annotation claims its size to be."""
        return judge_frame(*page, self.annotation_frame)


@dataclass(frozen=True, slots=True)
class Pool:
    """Workers and a progress bar."""

    engine: str
    workers: int | None
    progress: Progress

    def map(self, title: str, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Apply `work` to every item, in order."""
        bar = self.progress.add_task(title, total=len(items))
        done: dict[int, Result] = {}
        with closing(run_tasks(work, items, self.engine, self.workers, chunk=CHUNK)) as results:
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
    annotation_frame: str = "auto",
    size: int = 640,
    min_text_size: float = 2.0,
    max_pixels: int = PIXEL_LIMIT,
    deep: bool = False,
    workers: int | None = None,
    show_progress: bool = True,
    engine: str = "local",
) -> Report:
    """Look at every split of a dataset: `data/images/<split>/` with `data/jsons/<split>.json`.

    With `annotation_path`, `data` is the image folder of the one split these annotations belong to. Errors and
    warnings make `report.ok` false, notes do not. `deep` also decodes every page; one of more than `max_pixels` is an
    error and never decoded.
    """
    data = Path(data)
    settings = Settings(annotation_format, annotation_frame, size, min_text_size, deep, max_pixels)
    check_frame_name(annotation_frame)
    _check_numbers(settings)
    check_engine(engine, workers)
    alone = [(data.resolve().name, data, annotation_path)] if annotation_path else None
    found = alone or find_splits(data, splits)
    examined: list[Split] = []
    findings: list[Finding] = []
    with _pool(engine, workers, show_progress) as pool:
        for name, folder, annotation_file in found:
            split, wrong = examine_split(name, folder, annotation_file, settings, pool)
            examined.append(split)
            findings += wrong
    findings += find_duplicates(examined)
    return Report(data, size, annotation_frame, tuple(examined), tuple(findings))


def _check_numbers(settings: Settings) -> None:
    for option, value, least in (
        ("size", settings.size, 1),
        ("min_text_size", settings.min_text_size, 0),
        ("max_pixels", settings.max_pixels, 1),
    ):
        if not value >= least:
            flag = option.replace("_", "-")
            raise ConfigError(f"{option}={value} (--{flag}) is too small: give {least} or more, or leave it out")


@contextmanager
def _pool(engine: str, workers: int | None, show_progress: bool) -> Iterator[Pool]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, transient=True, disable=not show_progress)
    # Ray tells of workers that died on stdout, which is for the findings.
    with redirect_stdout(sys.stderr), started(engine, workers), progress:
        yield Pool(engine, workers, progress)


def examine_split(
    name: str, folder: Path, annotation_file: Path, settings: Settings, pool: Pool
) -> tuple[Split, list[Finding]]:
    """Images first, then words, then the frames in which the words are judged."""
    if not folder.is_dir():
        detail = f"{folder} is not a folder, and {annotation_file} speaks of its images"
        return Split(name, folder, None), [Finding(name, "", "missing-folder", detail)]
    findings: list[Finding] = []
    try:
        annotations = read_annotations(annotation_file, settings.annotation_format, folder)
    except (AnnotationError, OSError) as error:
        findings.append(Finding(name, "", "annotation-error", str(error)))
        annotations = None
    files = sorted(files_below(folder))
    pages = annotations.pages if annotations else {}
    looked_at = [file for file in files if file in pages or file.lower().endswith(IMAGE_EXTENSIONS)]
    facts = pool.map(f"{name}: images", settings.inspect, [folder / file for file in looked_at])
    images = dict(zip(looked_at, facts, strict=True))
    if annotations is None:
        return Split(name, folder, None, images), findings + image_findings(name, images)
    outlines, bad = parse_words(name, annotations)
    frames = _judge_frames(name, annotations, images, outlines, settings, pool)
    findings += missing_images(name, annotations, files)
    findings += image_findings(name, {file: images[file] for file in looked_at if file in pages})
    findings += unreferenced_files(name, annotations, files, images)
    findings += bad
    findings += [Finding(name, page, "no-words", "has no words") for page in pages if not pages[page].words]
    findings += _frame_findings(name, annotations, images, frames, settings.annotation_frame)
    sizes = {
        page: images[page].size_in(frames[page].best if page in frames else "upright")
        for page in pages
        if page in images and images[page].readable
    }
    findings += check_outlines(name, outlines, sizes, settings.size, settings.min_text_size)
    return Split(name, folder, annotations, images, frames), findings


def _judge_frames(
    split: str,
    annotations: Annotations,
    images: dict[str, ImageFacts],
    outlines: Sequence[Outline],
    settings: Settings,
    pool: Pool,
) -> dict[str, Verdict]:
    """A verdict for each readable page that has words and an EXIF orientation.

    Where a verdict took the pixels and found them damaged, the page is looked at again, deeply, in `images`.
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
            detail = f"{exif}, {verdict.evidence}; {verdict.used} is taken"
            findings.append(Finding(split, page, "ambiguous-frame", detail))
        elif verdict.frame != expected or verdict.frame != verdict.used:
            detail = f"{exif}, polygons in the {verdict.frame} frame ({verdict.evidence}), {_other(verdict, expected)}"
            findings.append(Finding(split, page, "other-frame", detail))
    return findings


def _other(verdict: Verdict, expected: str) -> str:
    if verdict.frame == expected:
        return f"and its page size misleads training to {verdict.used}"
    return f"not {expected}: if all are, set annotation_frame={verdict.frame}"
