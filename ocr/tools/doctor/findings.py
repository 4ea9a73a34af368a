"""The kinds of findings, their severity, and the report."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ocr.formats.annotation import Annotations
from ocr.formats.row_mapping import RowMapping
from ocr.tools.doctor.frames import Verdict
from ocr.tools.doctor.images import ImageFacts
from ocr.tools.terminal import printable

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of finding: how bad it is, what it means and how to fix it."""

    severity: Severity
    meaning: str
    fix: str


# In the order of the tables. Errors break training or teach something wrong, warnings lose or distort single words or
# pages; both make the exit status 1. Notes are handled by the data path and leave it 0.
KINDS: dict[str, Kind] = {
    "annotation-error": Kind(
        "error", "the annotation file cannot be used", "Correct it, or name another: --annotation-path"
    ),
    "missing-folder": Kind("error", "the split has annotations and no image folder", "Put its images there"),
    "missing-image": Kind("error", "annotated, and not in the folder", "Restore it; --fix drops the page"),
    "empty-file": Kind("error", "the image has no bytes", "Copy it again; --fix drops the page"),
    "unreadable-image": Kind("error", "not an image that can be opened", "Replace it; --fix drops the page"),
    "truncated-image": Kind("error", "the end of the image is missing", "Copy it again; --fix drops the page"),
    "too-many-pixels": Kind("error", "more pixels than the limit", "Scale it down, or raise --max-pixels"),
    "leaked-image": Kind(
        "error",
        "the same image in two splits: the score is too good",
        "Remove it from one; --fix takes it out of training",
    ),
    "other-frame": Kind("error", "EXIF page, polygons drawn on the other frame", "--fix turns them"),
    "bad-points": Kind("error", "points that are not a polygon", "Draw the word again; --fix drops it"),
    "bad-text": Kind("error", "a transcription that is not text", "Put it in quotes; --fix does"),
    "size-mismatch": Kind("warning", "annotated on an image of another size", "Scale the points to this image"),
    "duplicate-image": Kind("warning", "the same image twice in one split", "Keep one of them"),
    "unreferenced-image": Kind("warning", "a good image that no annotation names", "Annotate it, or move it away"),
    "degenerate-polygon": Kind("warning", "a polygon without area", "Draw the word again; --fix drops it"),
    "self-intersecting": Kind("warning", "the outline crosses itself", "--fix reorders or repairs it"),
    "double-label": Kind("warning", "two labels in one place", "Keep one; --fix drops the other"),
    "out-of-page": Kind("warning", "vertices outside the page", "--fix clips it"),
    "annotation-note": Kind(
        "note", "a part of the annotation was skipped, or read by an assumption", "Correct the annotation, or set it"
    ),
    "corrupt-but-readable": Kind("note", "damaged, and still decoded", "Copy it again if you can"),
    "ambiguous-frame": Kind("note", "EXIF page whose frame is unclear", "Look at it; annotation_frame decides"),
    "no-words": Kind("note", "a page without words", "Fine for a page without text"),
    "tiny-after-resize": Kind("note", "too small to learn after resize, masked out of the loss", "Use a larger size"),
    "unreferenced-copy": Kind("note", "not annotated, but a copy of it is", "Nothing is lost without it"),
    "unreferenced-file": Kind(
        "note", "a file that no annotation names and that is not a readable image", "Move it away"
    ),
    # What a detector (--model) suspects: its word against the labels', so notes.
    "suspect-page": Kind("note", "the labels fit another frame, or nothing", "Look at it; --fix moves them"),
    "suspect-duplicate": Kind("note", "two labels in one place", "Keep one; --fix drops the other"),
    "suspect-shifted": Kind("note", "text of the label's size is next to it", "Draw it again; --fix moves it"),
    "suspect-merged": Kind("note", "several pieces of text in one label", "Draw each; --fix splits it"),
    "suspect-missing": Kind("note", "text without a label", "Label it, or mark it illegible; --fix adds it"),
    "suspect-unsupported": Kind("note", "a label where the detector sees no text", "Look at it, and keep or remove it"),
}
Points = tuple[tuple[float, float], ...]


def as_points(outline: NDArray[np.float32]) -> Points:
    """Rows of x and y, to hundredths of a pixel."""
    return tuple((round(float(x), 2), round(float(y), 2)) for x, y in outline)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one image or one word; `points` are as written in the annotation."""

    split: str
    image: str
    kind: str
    detail: str
    word: str | None = None
    points: Points = ()
    score: float | None = None
    """How suspicious, 0 to 1, of what a detector suspects."""
    proposal: tuple[Points, ...] | None = None
    """What should be there instead; () for nothing, None if unknown."""
    matrix: tuple[tuple[float, ...], ...] | None = None
    """3x3: moves all labels of the page to where they fit."""

    @property
    def severity(self) -> Severity:
        """How bad: a property of the kind."""
        return KINDS[self.kind].severity

    @property
    def place(self) -> str:
        """Split, file and word."""
        word = "" if self.word is None else f", word {self.word}"
        return printable(f"{self.split}/{self.image}{word}")

    @property
    def message(self) -> str:
        """The page, the problem and the fix, in one line."""
        return printable(f"{self.place}: {self.detail}. {KINDS[self.kind].fix}.")

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; the keys are stable."""
        return {
            "split": self.split,
            "image": self.image,
            "word": self.word,
            "kind": self.kind,
            "severity": self.severity,
            "message": self.message,
            "points": [list(point) for point in self.points],
        } | ({} if self.score is None else {"score": self.score, "proposal": self.proposal, "matrix": self.matrix})


@dataclass(frozen=True, slots=True)
class SplitCounts:
    """The contents of a split, including bad pages."""

    pages: int
    words: int
    ignored: int
    images: int
    megapixels: tuple[float, float, float] | None  # smallest, median, largest of the readable annotated pages
    orientations: Mapping[int, int]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; the keys are stable."""
        return {
            "pages": self.pages,
            "words": self.words,
            "ignored": self.ignored,
            "images": self.images,
            "megapixels": self.megapixels and dict(zip(("min", "median", "max"), self.megapixels, strict=True)),
            "orientations": {str(key): count for key, count in sorted(self.orientations.items())},
        }


@dataclass(frozen=True, slots=True)
class Split:
    """A split as it was read: its files, its words, and the frame of its EXIF pages."""

    name: str
    folder: Path
    annotations: Annotations | None
    images: RowMapping[ImageFacts] = field(default_factory=lambda: ImageFacts.writer(Path()).mapping())
    frames: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def counts(self) -> SplitCounts:
        """Pages, words, pixels and EXIF orientations."""
        pages = self.annotations.pages if self.annotations else {}
        counts: Counter[str] = Counter()
        orientations: Counter[int] = Counter()
        pixels = array("d")
        for name, page in pages.items():
            counts.update(words=len(page.words), ignored=sum(word.ignore for word in page.words))
            facts = self.images.get(name)
            if facts is not None and facts.readable:
                pixels.append(facts.raw_size[0] * facts.raw_size[1] / 1e6)
                orientations[facts.orientation] += 1
        spread = (min(pixels), float(np.median(np.asarray(pixels))), max(pixels)) if pixels else None
        return SplitCounts(
            pages=len(pages),
            words=counts["words"],
            ignored=counts["ignored"],
            images=len(self.images),
            megapixels=spread and (round(spread[0], 2), round(spread[1], 2), round(spread[2], 2)),
            orientations=orientations,
        )


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the doctor read and found in a dataset."""

    data: Path
    size: int
    annotation_frame: str
    splits: tuple[Split, ...]
    findings: tuple[Finding, ...]

    @property
    def suspects(self) -> list[Finding]:
        """What a detector suspects, the most suspicious first."""
        return [finding for finding in self.findings if finding.score is not None]

    @property
    def ok(self) -> bool:
        """True if there is neither an error nor a warning."""
        return all(finding.severity == "note" for finding in self.findings)

    @property
    def exit_status(self) -> int:
        """0 for sound data, 1 if something is wrong."""
        return 0 if self.ok else 1

    def by_kind(self) -> dict[str, list[Finding]]:
        """The findings of each kind that occurs, the worst kinds first."""
        grouped: dict[str, list[Finding]] = {kind: [] for kind in KINDS}
        for finding in self.findings:
            grouped[finding.kind].append(finding)
        return {kind: found for kind, found in grouped.items() if found}

    def severities(self) -> dict[Severity, int]:
        """How many errors, warnings and notes."""
        counts = Counter(finding.severity for finding in self.findings)
        return {"error": counts["error"], "warning": counts["warning"], "note": counts["note"]}

    def to_json(self) -> str:
        """The report as JSON."""
        document = {
            "data": str(self.data),
            "ok": self.ok,
            "size": self.size,
            "annotation_frame": self.annotation_frame,
            "severities": self.severities(),
            "kinds": {kind: len(found) for kind, found in self.by_kind().items()},
            "splits": {split.name: split.counts.as_dict() for split in self.splits},
            "findings": [finding.as_dict() for finding in self.findings],
        }
        return json.dumps(document, indent=2)
