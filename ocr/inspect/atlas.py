"""The atlas: all pages and errors as one HTML file that opens from disk and needs nothing else."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.inspect.compare import CHANGES, Comparison, PageChange
from ocr.inspect.inspection import Inspection
from ocr.inspect.page import IOU, PageInput, page_rectangle
from ocr.inspect.result import Error, PageResult
from ocr.report.charts import Line, LineChart
from ocr.report.numbers import in_count, in_points, in_score
from ocr.report.page import write_page

QUALITY = 55
"""Of WebP: text of 10 pixels stays legible, and a page of 960 takes about 50 kB."""
CURVES = {"thresh": "boxes.thresh", "box_thresh": "boxes.box_thresh", "iou": "IoU from which a box counts"}
DETAILS = {
    "gained": "found, and missed by the baseline",
    "lost": "missed, and found by the baseline",
    "gone": "a false box of the baseline only",
    "new": "a false box that the baseline does not have",
}
LINES = {"hmean": ("H-mean", "c1"), "precision": ("precision", "c2 dashed"), "recall": ("recall", "c3 dotted")}


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A page as the model saw it, without padding."""

    webp: bytes
    width: int
    height: int


def take_picture(page: PageInput, longest_side: int) -> Picture:
    """The page's part of the model's image, no larger than `longest_side`."""
    left, top, right, bottom = page_rectangle(page)
    x, y = max(0, round(left)), max(0, round(top))
    cut = page.image_hwc[y : max(y + 1, round(bottom)), x : max(x + 1, round(right))]
    shrink = longest_side / max(cut.shape[:2])
    if shrink < 1:
        cut = np.asarray(cv2.resize(cut, None, fx=shrink, fy=shrink, interpolation=cv2.INTER_AREA), dtype=np.uint8)
    encoded = cv2.imencode(".webp", np.ascontiguousarray(cut[:, :, ::-1]), [cv2.IMWRITE_WEBP_QUALITY, QUALITY])[1]
    return Picture(encoded.tobytes(), cut.shape[1], cut.shape[0])


def write_atlas(
    inspection: Inspection, pictures: Mapping[str, Picture], path: Path, comparison: Comparison | None = None
) -> None:
    """Write the page, completely or not at all; pages go to the disk one after the other."""
    changes = {change.candidate.name: change for change in comparison.pages} if comparison is not None else {}
    errors: dict[str, list[Error]] = {}
    for error in inspection.errors:
        errors.setdefault(error.page, []).append(error)
    drawn = [
        _Drawn(page, errors.get(page.name, []), pictures[page.name], changes.get(page.name))
        for page in inspection.worst
        if page.name in pictures
    ]
    sentence = inspection.sentence
    if comparison is not None:
        sentence += f". {in_points(comparison.points)} points against the baseline"
    write_page(
        path,
        "atlas.html",
        title=f"inspection: {Path(inspection.detector).name}",
        heading="inspection",
        sentence=sentence,
        state="plain",
        inspection=inspection,
        comparison=comparison,
        tiles=_tiles(inspection),
        changes=[] if comparison is None else _changes(comparison),
        charts=_charts(inspection),
        groups=[
            [
                f"{group.kind}: {group.name}",
                *(in_count(group.words), in_score(group.recall)),
                *(in_count(group.boxes), in_score(group.precision), in_score(group.hmean)),
            ]
            for group in inspection.groups
        ],
        bins=[
            [f"{one.low:.1f} to {one.high:.1f}", in_count(one.boxes), in_score(one.mean_score), in_score(one.right)]
            for one in inspection.calibration[0]
        ],
        causes=[gain.cause for gain in inspection.gains] + (list(CHANGES) if comparison is not None else []),
        index=[page.entry(number) for number, page in enumerate(drawn)],
        pages=(page.content() for page in drawn),
    )


def _tiles(inspection: Inspection) -> list[tuple[str, str]]:
    counts = inspection.counts
    return [
        ("H-mean at IoU 0.5", in_score(counts.hmean)),
        ("H-mean at IoU 0.7", in_score(inspection.tight.hmean)),
        ("CLEval H-mean", in_score(inspection.cleval[2])),
        ("pages", in_count(len(inspection.pages))),
        (f"of {in_count(counts.words)} words missed", in_count(counts.missed)),
        (f"of {in_count(counts.boxes)} boxes false", in_count(counts.false)),
    ]


def _changes(comparison: Comparison) -> list[list[str]]:
    rows = []
    for change, meaning in CHANGES.items():
        causes = comparison.causes_of(change)
        counts = ", ".join(f"{cause} {in_count(count)}" for cause, count in causes.most_common())
        rows.append([f"{change}: {meaning}", in_count(causes.total()), counts])
    return rows


def _charts(inspection: Inspection) -> list[LineChart]:
    """Precision, recall and H-mean over each threshold; the figures are those at the value in use."""
    charts = []
    for name, curve in inspection.curves.items():
        in_use = IOU if name == "iou" else getattr(inspection.boxes, name)
        lines = []
        for score, (label, style) in LINES.items():
            points = [(value, getattr(counts, score)) for value, counts in curve.items()]
            lines.append(Line(label, points, in_score(getattr(curve[in_use], score)), style))
        note = f"Vertical: {in_use:g}, the value in use; figures are those there."
        charts.append(LineChart(CURVES[name], "threshold", "score", lines, note, x_from_zero=False, mark=in_use))
    return [chart for chart in charts if chart.shown]


class _Drawn:
    """A page of the atlas: what filters need, and what is read when it is shown."""

    def __init__(self, page: PageResult, errors: Sequence[Error], picture: Picture, change: PageChange | None) -> None:
        self.page, self.errors, self.picture, self.change = page, errors, picture, change
        self.scale: NDArray[np.float64] = np.array([picture.width, picture.height]) / np.array(page.size)

    def entry(self, number: int) -> dict[str, Any]:
        """What filters and orders need."""
        marks = Counter((mark["kind"], mark["cause"]) for mark in self.marks())
        entry = {
            "id": number,
            "name": self.page.name,
            "width": self.picture.width,
            "height": self.picture.height,
            "hmean": round(self.page.counts.hmean, 4),
            "missed": self.page.missed,
            "false": self.page.false,
            "marks": [[kind, cause, count] for (kind, cause), count in marks.items()],
        }
        return entry if self.change is None else entry | {"change": round(self.change.points, 2)}

    def content(self) -> dict[str, Any]:
        page, truth = self.page, self.page.truth
        kept = page.found | truth.ignore
        return {
            "picture": base64.b64encode(self.picture.webp).decode(),
            "truth": [
                [self.points(outline), ignored]
                for outline, ignored in zip(truth.select(kept), truth.ignore[kept].tolist(), strict=True)
            ],
            "boxes": [self.points(outline) for outline in page.detections.polygons.select(page.right)],
            "errors": list(self.marks()),
        }

    def marks(self) -> Iterator[dict[str, Any]]:
        """Errors, and what got better or worse."""
        for error in self.errors:
            yield self.mark(error.kind, error.cause, error.detail, error.text, error.points, error.score)
        if self.change is None:
            return
        words, baseline = self.page.truth, self.change.baseline.detections.polygons
        sources = {"gained": words, "lost": words, "gone": baseline, "new": self.page.detections.polygons}
        for kind, polygons in sources.items():
            outlines = list(polygons)
            for number in getattr(self.change, kind).tolist():
                yield self.mark(kind, kind, DETAILS[kind], polygons.texts[number], outlines[number])

    def mark(
        self, kind: str, cause: str, detail: str, text: str | None, points: Any, score: float | None = None
    ) -> dict[str, Any]:
        mark = {"kind": kind, "cause": cause, "detail": detail, "text": text, "score": score}
        return mark | {"points": self.points(np.array(points))}

    def points(self, outline: NDArray[Any]) -> list[float]:
        """On the picture."""
        points: list[float] = np.round(outline * self.scale, 1).ravel().tolist()
        return points
