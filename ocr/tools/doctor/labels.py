"""Labels that a detector contradicts: findings of the report, proposals of `--fix`, tasks for a labelling tool."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from ocr.errors import ConfigError
from ocr.formats.annotation import Annotations, Page, Word
from ocr.formats.validate import points_error
from ocr.formats.write import check_tasks, write_annotations
from ocr.geometry.orientation import orientation_matrix
from ocr.geometry.polygons import Polygons, move_points
from ocr.tools.doctor.findings import Finding, Report, Split, as_points

if TYPE_CHECKING:  # A detector is loaded only if one is asked.
    from ocr.deploy.detector import Detector
    from ocr.inspect.page import PageInput
    from ocr.tools.doctor.suspects import Suspect

PACKAGED = "glyphfeed"
"""The model that comes with the package."""
WAITING = 4
"""Pages that can wait to be checked: each holds its image and its map."""
Place = tuple[str, str]
"""Split and image."""
Checked = tuple[Place, int, "list[Suspect]"]
"""A page, its number of labels, and its suspects."""


def model_path(model: str) -> Path | None:
    """The file of a model as `--model` names it; None for the bundled one."""
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


def check_options(model: str | None, tasks: str | None, out: Path | None) -> None:
    """Refuse options that do not fit together, before anything is read."""
    if tasks is None and out is not None:
        raise ConfigError(
            f"--out {out} is for --tasks, which says in what format: --tasks label_studio", setting="--out", value=out
        )
    if tasks is not None:
        if model is None:
            raise ConfigError(
                f"--tasks {tasks}: suspects come from a detector. Add --model {PACKAGED}",
                setting="--tasks",
                value=tasks,
            )
        check_tasks(tasks, out)
    if model is not None:
        model_path(model)


def add_suspects(report: Report, model: str, console: Console | None = None) -> Report:
    """The report with the labels that a detector contradicts; the most suspicious first."""
    from ocr.tools.doctor.suspects import rank_suspects

    path, splits = model_path(model), {split.name: split for split in report.splits}
    places = [(split.name, name) for split in report.splits for name in readable_pages(split)]
    checked: Iterable[Checked] = _checked(path, places, splits) if places else ()
    if console is not None:
        checked = track(checked, "labels", len(places), console=console, transient=True)
    suspects: list[tuple[Place, Suspect]] = []
    labels = 0
    for place, count, found in checked:
        labels += count
        suspects += [(place, suspect) for suspect in found]
    ranked = rank_suspects(suspects, labels)
    findings = [_finding(splits[split], image, suspect) for (split, image), suspect in ranked]
    return replace(report, findings=(*report.findings, *findings))


def predict_page(detector: Detector, path: Path) -> PageInput:
    """A page as the model sees it, with its map, and without labels."""
    from ocr.deploy.inputs import pages_of
    from ocr.inspect.page import PageInput

    source = next(pages_of(path))
    sample = detector.prepare(source)
    prob_map = detector.maps(sample.image[None])[0]
    nothing = Polygons.pack([])
    return PageInput(path.name, sample.image, prob_map, np.asarray(sample.inverse_matrix), sample.shape, nothing)


def sound_words(split: Split, image: str) -> list[Word]:
    """The words of a page that are polygons; the index of a suspect counts these."""
    page = split.annotations.pages[image] if split.annotations else None
    return [word for word in page.words if points_error(word.points) is None] if page else []


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


def _checked(model: Path | None, places: Sequence[Place], splits: Mapping[str, Split]) -> Iterator[Checked]:
    """Pages are checked in a thread while the model works on the next."""
    from ocr.deploy.detector import Detector
    from ocr.tools.doctor.suspects import find_suspects

    detector = Detector.load(model)
    waiting: deque[tuple[Place, int, Future[list[Suspect]]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="check") as threads:
        try:
            for name, image in places:
                labels = upright_labels(splits[name], image)
                given = replace(predict_page(detector, splits[name].images[image].path), truth=labels)
                waiting.append(((name, image), len(labels), threads.submit(find_suspects, given, detector.boxes)))
                while len(waiting) > WAITING:
                    place, words, job = waiting.popleft()
                    yield place, words, job.result()
            for place, words, job in waiting:
                yield place, words, job.result()
        finally:
            threads.shutdown(wait=True, cancel_futures=True)


def _finding(split: Split, image: str, suspect: Suspect) -> Finding:
    """Points are in the annotation's frame, as in every finding."""
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


SURE_ENOUGH = 0.5
"""Suspects with a lower score are listed, and nothing is proposed for them."""
Taken = list[tuple[str | None, str, str]]
"""Word, action and reason of each change."""


def propose(page: Page, findings: Sequence[Finding], size: tuple[int, int]) -> tuple[Page, Taken]:
    """The page with what its suspects should be, in the frame of its points; `size` is the page's there."""
    taken: Taken = []
    if not findings:
        return page, taken
    words = {word.key: [word] for word in page.words}
    added: list[Word] = []
    for finding in findings:
        if finding.score is None or finding.score < SURE_ENOUGH:
            continue
        reason = f"{finding.kind}: {finding.detail} (score {finding.score:.2f})"
        if finding.matrix is not None:
            matrix = np.array(finding.matrix)
            words = {key: [_moved(word, matrix) for word in group] for key, group in words.items()}
            page = replace(page, size=size)
            taken.append((None, "page-moved", reason))
        elif finding.proposal is not None and finding.word is None:
            added += [Word(_free_key(words, added), _listed(outline)) for outline in finding.proposal]
            taken.append((added[-1].key, "word-added", reason))
        elif finding.proposal is not None and finding.word in words:
            word = words[finding.word][0]
            words[finding.word] = _replaced(word, [_listed(outline) for outline in finding.proposal])
            action = ("word-dropped", "word-moved", "word-split")[min(len(finding.proposal), 2)]
            taken.append((word.key, action, reason))
    kept = [word for group in words.values() for word in group]
    return replace(page, words=(*kept, *added)), taken


def _replaced(word: Word, outlines: list[list[list[float]]]) -> list[Word]:
    if len(outlines) == 1:
        return [replace(word, points=outlines[0])]
    # Which part of the text belongs to which piece is unknown.
    return [replace(word, key=f"{word.key}_{at}", points=points, text=None) for at, points in enumerate(outlines, 1)]


def _moved(word: Word, matrix: NDArray[np.float64]) -> Word:
    if points_error(word.points) is not None:
        return word
    points = np.array(word.points, dtype=np.float32).reshape(-1, 2)
    return replace(word, points=np.round(move_points(points, matrix).astype(np.float64), 2).tolist())


def _free_key(words: dict[str, list[Word]], added: list[Word]) -> str:
    number = len(added) + 1
    taken = {*words, *(word.key for word in added)}
    while f"new_{number:04d}" in taken:
        number += 1
    return f"new_{number:04d}"


def _listed(outline: Sequence[tuple[float, float]]) -> list[list[float]]:
    return [[x, y] for x, y in outline]


def write_tasks(report: Report, format: str, out: Path) -> list[Path]:
    """Write the pages that have suspects, the most suspicious first; returns the files, one per split."""
    by_page: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in report.suspects:
        by_page[finding.split, finding.image].append(finding)
    written = []
    concerned = [split for split in report.splits if any(name == split.name for name, _ in by_page)]
    for split in concerned:
        target = out if len(concerned) == 1 else out.with_name(f"{out.stem}.{split.name}{out.suffix}")
        pages, scores = {}, {}
        for (name, image), findings in by_page.items():
            if name == split.name:
                pages[image], scores[image] = _task(split, image, findings)
        annotations = Annotations(str(out), format, pages)
        write_annotations(annotations, target, format, scores, "glyphfeed doctor", image_path=split.folder)
        written.append(target)
    return written


def _task(split: Split, image: str, findings: Sequence[Finding]) -> tuple[Page, list[float]]:
    """The upright page with a note on each suspect; and how sure each label is, 1 if nothing speaks against it."""
    notes: dict[str | None, list[Finding]] = defaultdict(list)
    for finding in findings:
        notes[finding.word].append(finding)
    turn = to_upright(split, image)
    words, scores = [], []
    for word in sound_words(split, image):
        points = np.array(word.points, dtype=np.float32).reshape(-1, 2)
        doubts = notes.get(word.key, [])
        words.append(replace(word, points=_upright(points, turn), note=_note(doubts)))
        scores.append(1 - max((doubt.score or 0.0 for doubt in doubts), default=0.0))
    for number, finding in enumerate(notes.get(None, []), 1):
        points = np.array(finding.points, dtype=np.float32).reshape(-1, 2)
        if len(points):
            words.append(Word(f"suspect_{number:04d}", _upright(points, turn), note=_note([finding])))
            scores.append(finding.score or 0.0)
        elif words:
            # A whole page: its reason is on the first label, as a region is what tools show reasons with.
            words[0] = replace(words[0], note="; ".join(filter(None, (_note([finding]), words[0].note))))
    return Page(tuple(words), split.images[image].size_in("upright")), scores


def _note(findings: Sequence[Finding]) -> str | None:
    return "; ".join(f"{finding.kind}: {finding.detail}" for finding in findings) or None


def _upright(points: NDArray[np.float32], turn: NDArray[np.float64]) -> list[list[float]]:
    moved: list[list[float]] = np.round(move_points(points, turn).astype(np.float64), 2).tolist()
    return moved
