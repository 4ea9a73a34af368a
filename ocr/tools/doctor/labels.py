"""Labels that a detector contradicts, added to the report as ranked findings."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from ocr.deploy.detector import Detector
from ocr.deploy.inputs import pages_of
from ocr.errors import ConfigError
from ocr.formats.annotation import Word
from ocr.formats.validate import fault_of
from ocr.geometry.orientation import orientation_matrix
from ocr.geometry.polygons import Polygons, move_points
from ocr.inspect.page import PageInput
from ocr.inspect.suspects import Suspect, find_suspects, rank_suspects
from ocr.tools.doctor.findings import Finding, Report, Split, as_points

PACKAGED = "glyphfeed"
"""The model that comes with the package."""
WAITING = 4
"""Pages that may wait for their judgement: each holds its image and its map."""
Place = tuple[str, str]
"""Split and image."""
Judged = tuple[Place, int, list[Suspect]]
"""A page, its number of labels, and its suspects."""


@dataclass(frozen=True, slots=True)
class Judge:
    """A detector, and the pages of each split that it judges."""

    model: Path | None
    """None: the bundled detector."""
    pages: Mapping[str, Sequence[str]]


def model_path(model: str) -> Path | None:
    """The file of a model as `--model` names it; None for that of the package."""
    if model == PACKAGED:
        return None
    path = Path(model)
    if not path.exists():
        raise ConfigError(
            f"--model {model}: no such file. Pass a checkpoint, an exported model, or {PACKAGED}: the bundled detector",
            setting="--model",
            value=model,
            path=path,
        )
    return path


def readable_pages(split: Split) -> list[str]:
    """The annotated pages of a split whose image can be read."""
    pages = split.annotations.pages if split.annotations else {}
    return [name for name in pages if (facts := split.images.get(name)) is not None and facts.readable]


def add_suspects(report: Report, judges: Sequence[Judge], console: Console | None = None) -> Report:
    """The report with the labels that detectors contradict; the most suspicious first."""
    splits = {split.name: split for split in report.splits}
    total = sum(len(names) for judge in judges for names in judge.pages.values())
    judged: Iterable[Judged] = (page for judge in judges for page in _judged(judge, splits))
    if console is not None:
        judged = track(judged, "labels", total, console=console, transient=True)
    suspects: list[tuple[Place, Suspect]] = []
    labels = 0
    for place, words, found in judged:
        labels += words
        suspects += [(place, suspect) for suspect in found]
    ranked = rank_suspects(suspects, labels)
    findings = [_finding(splits[split], image, suspect) for (split, image), suspect in ranked]
    return replace(report, findings=(*report.findings, *findings))


def see_page(detector: Detector, path: Path) -> PageInput:
    """A page as the detector sees it, with its map, and without labels."""
    source = next(pages_of(path))
    sample = detector.prepare(source)
    prob_map = detector.maps(sample.image[None])[0]
    nothing = Polygons.pack([])
    return PageInput(path.name, sample.image, prob_map, np.asarray(sample.inverse_matrix), sample.shape, nothing)


def sound_words(split: Split, image: str) -> list[Word]:
    """The words of a page that are polygons; the index of a suspect counts these."""
    page = split.annotations.pages[image] if split.annotations else None
    return [word for word in page.words if fault_of(word.points) is None] if page else []


def to_upright(split: Split, image: str) -> NDArray[np.float64]:
    """From the frame that the polygons of a page are in to the upright page."""
    verdict, facts = split.frames.get(image), split.images[image]
    raw = verdict is not None and verdict.best == "raw"
    return orientation_matrix(facts.orientation, *facts.raw_size) if raw else np.eye(3)


def upright_labels(split: Split, image: str) -> Polygons:
    """The labels of a page where they belong on the upright page."""
    words = sound_words(split, image)
    outlines = [np.array(word.points, dtype=np.float32).reshape(-1, 2) for word in words]
    labels = Polygons.pack(outlines, [word.ignore for word in words], [None for _ in words])
    return labels.moved(to_upright(split, image))


def _judged(judge: Judge, splits: Mapping[str, Split]) -> Iterator[Judged]:
    """Pages are judged in a thread while the model works on the next."""
    if not any(judge.pages.values()):
        return
    detector = Detector.load(judge.model)
    waiting: deque[tuple[Place, int, Future[list[Suspect]]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="judge") as threads:
        try:
            for name, images in judge.pages.items():
                for image in images:
                    labels = upright_labels(splits[name], image)
                    seen = replace(see_page(detector, splits[name].images[image].path), truth=labels)
                    job = threads.submit(find_suspects, seen, detector.boxes)
                    waiting.append(((name, image), len(labels), job))
                    while len(waiting) > WAITING:
                        yield _result(*waiting.popleft())
            while waiting:
                yield _result(*waiting.popleft())
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _result(place: Place, labels: int, job: Future[list[Suspect]]) -> Judged:
    return place, labels, job.result()


def _finding(split: Split, image: str, suspect: Suspect) -> Finding:
    """Points are those of the annotation's frame, as in every finding."""
    back = np.asarray(np.linalg.inv(to_upright(split, image)), dtype=np.float64)

    def written(outline: NDArray[np.float32]) -> tuple[tuple[float, float], ...]:
        return as_points(move_points(outline, back))

    matrix = None if suspect.matrix is None else back @ suspect.matrix @ np.linalg.inv(back)
    return Finding(
        split.name,
        image,
        f"suspect-{suspect.kind}",
        suspect.detail,
        None if suspect.word is None else sound_words(split, image)[suspect.word].key,
        () if suspect.outline is None else written(suspect.outline),
        round(suspect.score, 4),
        None if suspect.proposal is None else tuple(written(outline) for outline in suspect.proposal),
        None if matrix is None else tuple(map(tuple, matrix.tolist())),
    )
