"""A repaired copy of the annotations; the originals are never changed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from ocr.atomic import replacing
from ocr.errors import ConfigError
from ocr.formats import Annotations, Page, Word, write_native
from ocr.formats.validate import points_error
from ocr.geometry.orientation import orientation_matrix
from ocr.geometry.polygons import MIN_AREA
from ocr.tools.doctor.findings import Finding, Report, Split
from ocr.tools.doctor.images import ImageFacts
from ocr.tools.doctor.labels import propose
from ocr.tools.doctor.pages import is_training
from ocr.tools.doctor.polygons import Points, clipped, find_doubles, is_out, is_sound, repaired

RECORD_NAME = "doctor.json"
# Actions on a page or a word, in the singular.
ACTIONS = {
    "page-dropped": ("page", "dropped"),
    "word-dropped": ("word", "dropped"),
    "turned": ("page", "turned"),
    "page-size-set": ("page size", "set"),
    "repaired": ("word", "repaired"),
    "clipped": ("word", "clipped"),
    "text-quoted": ("text", "quoted"),
    "page-moved": ("page", "moved"),
    "word-added": ("word", "added"),
    "word-moved": ("word", "moved"),
    "word-split": ("word", "split"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change in the repaired copy."""

    split: str
    image: str
    word: str | None
    action: str  # of ACTIONS
    reason: str


@dataclass(frozen=True, slots=True)
class FixSummary:
    """The files that were written, the splits that could not be, every change, and the file that lists them."""

    written: tuple[Path, ...]
    skipped: tuple[str, ...]
    changes: tuple[Change, ...]
    record: Path

    def counts(self) -> dict[str, int]:
        """How often each action was taken."""
        return dict(Counter(change.action for change in self.changes))

    def to_json(self) -> str:
        """Files, counts and every change, for other programs."""
        document = {
            "written": [str(path) for path in self.written],
            "skipped": list(self.skipped),
            "counts": self.counts(),
            "changes": [
                {"split": c.split, "image": c.image, "word": c.word, "action": c.action, "reason": c.reason}
                for c in self.changes
            ],
        }
        return json.dumps(document, indent=2)


def write_fixed(report: Report, target: Path) -> FixSummary:
    """Write `target/jsons/<split>.json` for every split that could be read, and link its images next to it.

    `target/doctor.json` lists the changes, and says which files a later call can replace.
    """
    sources = [(split, split.annotations) for split in report.splits if split.annotations is not None]
    files = [target / "jsons" / f"{split.name}.json" for split, _ in sources]
    record = target / RECORD_NAME
    for file in files:
        _refuse_sources(file, [Path(source.path) for _, source in sources])
    _refuse_others(record, files)
    for split, _ in sources:
        _refuse_other_images(split, target)
    expected = "raw" if report.annotation_frame == "raw" else "upright"
    changes: list[Change] = []
    suspects = defaultdict(list)
    for finding in report.suspects:
        suspects[finding.split, finding.image].append(finding)
    leaked = {
        (finding.split, finding.image)
        for finding in report.findings
        if finding.kind == "leaked-image" and is_training(finding.split)
    }
    fixed = [_fix_pages(split, source, expected, suspects, leaked, changes) for split, source in sources]
    skipped = tuple(split.name for split in report.splits if split.annotations is None)
    summary = FixSummary(tuple(files), skipped, tuple(changes), record)
    if files:
        # Written first, so that an interrupted run can be repeated.
        with replacing(record) as stream:
            stream.write(summary.to_json().encode())
    for file, (split, _), pages in zip(files, sources, fixed, strict=True):
        write_native(Annotations(str(file), "native", pages), file)
        _link_images(split, target)
    return summary


def _refuse_sources(file: Path, sources: list[Path]) -> None:
    for source in sources:
        same = file.exists() and source.exists() and file.samefile(source)
        if same or source.resolve() in (file.resolve(), *file.resolve().parents):
            raise ConfigError(
                f"--fix {file.parents[1]} would write {file} over its source {source}. Name a new folder",
                setting="--fix",
                value=file.parents[1],
                path=file,
            )


def _refuse_others(record: Path, files: Sequence[Path]) -> None:
    """Only files of an earlier call can be replaced; the record names them."""
    try:
        document = json.loads(record.read_bytes())
        own = {Path(written).name for written in document["written"]} | {record.name}
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        own = set()  # No record, or another file of that name, such as a report.
    for file in (record, *files):
        if file.name not in own and file.exists():
            raise ConfigError(
                f"--fix {record.parent} would replace {file}, which it did not write. Name another folder, "
                "or remove it",
                setting="--fix",
                value=record.parent,
                path=file,
            )


def _refuse_other_images(split: Split, target: Path) -> None:
    link = target / "images" / split.name
    if (link.exists() or link.is_symlink()) and link.resolve() != split.folder.resolve():
        raise ConfigError(
            f"--fix {target} would put the annotations of {split.folder} next to the images of {link.resolve()}. "
            f"Name another folder, or remove {link}",
            setting="--fix",
            value=target,
            path=link,
        )


def _link_images(split: Split, target: Path) -> None:
    """A link to the images makes the copy a complete dataset; its folder is separate, so maps never mix."""
    link = target / "images" / split.name
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(split.folder.resolve(), target_is_directory=True)


def _fix_pages(
    split: Split,
    annotations: Annotations,
    expected: str,
    suspects: Mapping[tuple[str, str], Sequence[Finding]],
    leaked: Container[tuple[str, str]],
    changes: list[Change],
) -> dict[str, Page]:
    pages: dict[str, Page] = {}
    for name, page in annotations.pages.items():
        facts = split.images.get(name)
        if facts is None or not facts.readable:
            reason = "missing-image" if facts is None else str(facts.problem)
            changes.append(Change(split.name, name, None, "page-dropped", reason))
        elif (split.name, name) in leaked:
            changes.append(Change(split.name, name, None, "page-dropped", "leaked-image"))
        else:
            verdict = split.frames.get(name)
            size = facts.size_in(verdict.best if verdict else "upright")
            page, taken = propose(page, suspects.get((split.name, name), ()), size)
            changes += [Change(split.name, name, word, action, reason) for word, action, reason in taken]
            pages[name] = _fix_page(split, name, page, facts, expected, changes)
    return pages


def _fix_page(split: Split, name: str, page: Page, facts: ImageFacts, expected: str, changes: list[Change]) -> Page:
    verdict = split.frames.get(name)
    matrix: NDArray[np.float64] = np.eye(3)
    frame = verdict.best if verdict else "upright"
    size = page.size
    if verdict and verdict.frame and (verdict.frame != expected or verdict.frame != verdict.used):
        # The size shows every later reader which frame it is, if width and height differ.
        size = facts.size_in(expected)
        action = "page-size-set" if verdict.frame == expected else "turned"
        changes.append(Change(split.name, name, None, action, f"other-frame: {verdict.evidence}"))
        if verdict.frame != expected:
            upright = orientation_matrix(facts.orientation, *facts.raw_size)
            matrix = upright if expected == "upright" else np.asarray(np.linalg.inv(upright), dtype=np.float64)
            frame = expected
    words = []
    for word in page.words:
        fixed, taken = fix_word(word, matrix, facts.size_in(frame))
        changes += [Change(split.name, name, word.key, action, reason) for action, reason in taken]
        if fixed is not None:
            words.append(fixed)
    return Page(tuple(_without_doubles(words, split.name, name, changes)), size)


def _without_doubles(words: list[Word], split: str, name: str, changes: list[Change]) -> list[Word]:
    """The words without those that lie on an earlier one, which takes their text if it has none."""
    if not words:
        return words
    shapes = np.array([shapely.Polygon(np.array(word.points, dtype=np.float64).reshape(-1, 2)) for word in words])
    pairs = find_doubles(shapes)
    for later, earlier in pairs:
        kept = words[earlier]
        words[earlier] = replace(kept, text=kept.text if kept.text is not None else words[later].text)
        reason = f"double-label: lies on word {kept.key}"
        changes.append(Change(split, name, words[later].key, "word-dropped", reason))
    dropped = {later for later, _ in pairs}
    return [word for at, word in enumerate(words) if at not in dropped]


def fix_word(
    word: Word, matrix: NDArray[np.float64], page: tuple[int, int]
) -> tuple[Word | None, list[tuple[str, str]]]:
    """The word as it should be, or None, and the (action, reason) of each change but the turn of its page."""
    problem = points_error(word.points)
    if problem is not None:
        return None, [("word-dropped", f"bad-points: {problem}")]
    taken: list[tuple[str, str]] = []
    text: Any = word.text
    if not isinstance(text, str | None):
        taken.append(("text-quoted", "bad-text"))
        word = replace(word, text=str(text))
    written = np.array(word.points, dtype=np.float64).reshape(-1, 2)
    points = written @ matrix[:2, :2].T + matrix[:2, 2]
    fixed, repairs = fix_points(points, page)
    if fixed is None:
        return None, [*taken, ("word-dropped", repairs[-1][1])]
    if fixed is points and np.array_equal(points, written):
        return word, taken
    return replace(word, points=_as_written(fixed)), taken + repairs


def fix_points(points: Points, page: tuple[int, int]) -> tuple[Points | None, list[tuple[str, str]]]:
    """Repair, then clip; the same array object if neither is needed."""
    fixed: Points | None = points
    taken: list[tuple[str, str]] = []
    if not is_sound(points):
        taken.append(("repaired", "self-intersecting"))
        fixed = _rounded(repaired(points)) if not shapely.Polygon(points).is_valid else None
        if fixed is None:
            return None, [("repaired", "degenerate-polygon")]
    if fixed is not None and is_out(fixed, page):
        taken.append(("clipped", "out-of-page"))
        fixed = _rounded(clipped(fixed, page))
    return fixed, taken


def _rounded(points: Points | None) -> Points | None:
    """Round to hundredths of a pixel; the hull if rounding makes the outline touch itself."""
    if points is None:
        return None
    rounded: Points = points.round(2)
    if is_sound(rounded):
        return rounded
    hull = shapely.MultiPoint(rounded).convex_hull
    return shapely.get_coordinates(hull)[:-1] if hull.area >= MIN_AREA else None


def _as_written(points: Points) -> list[list[float]]:
    return [[int(v) if v.is_integer() else v for v in point] for point in points.tolist()]
