"""export_check: an exported model compared with its checkpoint on the same pages: boxes, H-mean and speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from ocr.deploy.detector import Detector
from ocr.deploy.inputs import PageSource
from ocr.evaluation.boxes import Detections
from ocr.evaluation.hmean import HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import Sample

MAX_OUTLINE_PIXELS = 0.5
HMEAN_TOLERANCE = {"fp32": 0.001, "fp16": 0.002, "bf16": 0.002, "int8": 0.005}
MIN_AGREEMENT = {"fp32": 0.999, "fp16": 0.98, "bf16": 0.98, "int8": 0.95}
"""H-mean with the checkpoint's boxes for labels, if there are no labels. Boxes near a threshold come and go with any
rounding, and count as two errors here, so that these are wider than the tolerances above."""
TIMED_PAGES = 12
"""Pages on which the checkpoint runs in turns with every model; its boxes are found once per page."""
CANDIDATES = 3
"""Boxes that can have almost the same centre: one inside the other."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was measured; pairs are of the checkpoint and the exported model."""

    precision: str
    pages: int
    boxes: tuple[int, int]
    outline_pixels: float | None
    """Largest distance of a corner from the other outline of its box, on the source page; None if a page has another
    number of boxes."""
    agreement: float
    hmean: tuple[float, float] | None
    """None: no labels."""
    milliseconds: tuple[float, float]
    """Median per page of the model alone, one page at a time, in turns."""
    threads: int | None = None

    @property
    def failures(self) -> list[str]:
        """What fails, with the figure and its limit; empty if the export is as good as its checkpoint."""
        failures = []
        if self.precision == "fp32":
            if self.outline_pixels is None:
                failures.append(f"{self.boxes[1]} boxes instead of {self.boxes[0]}, or others per page")
            elif self.outline_pixels > MAX_OUTLINE_PIXELS:
                failures.append(f"an outline is {self.outline_pixels:.2f} pixels off, more than {MAX_OUTLINE_PIXELS}")
        if self.hmean is not None:
            loss, limit = self.hmean[0] - self.hmean[1], HMEAN_TOLERANCE[self.precision]
            if not loss <= limit:  # True for NaN.
                failures.append(f"the H-mean is {loss:.4f} lower, more than {limit}")
        elif not self.agreement >= MIN_AGREEMENT[self.precision]:
            failures.append(f"the boxes agree to {self.agreement:.3f}, less than {MIN_AGREEMENT[self.precision]}")
        return failures

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"failures": self.failures}

    def rows(self) -> list[tuple[str, str, str]]:
        """The table: what, of the checkpoint, of the exported model."""
        distance = "other boxes" if self.outline_pixels is None else f"{self.outline_pixels:.3f} px"
        first, second = self.milliseconds
        cores = "" if self.threads is None else f", threads={self.threads}"
        rows = [
            ("boxes", *map(str, self.boxes)),
            ("largest distance of outlines", "", distance),
            ("agreement of boxes (H-mean)", "", f"{self.agreement:.4f}"),
            *([] if self.hmean is None else [("H-mean", *(f"{value:.4f}" for value in self.hmean))]),
            (f"ms per page{cores}", f"{first:.1f}", f"{second:.1f} ({first / second:.1f} x)"),
        ]
        return [(what, one, other) for what, one, other in rows]

    def table(self, name: str) -> Table:
        """Both models side by side."""
        table = Table(title=f"{self.pages} pages", title_justify="left")
        for column in ("", "checkpoint", name):
            table.add_column(column, justify="left" if not column else "right")
        for row in self.rows():
            table.add_row(*row)
        return table


class Checker:
    """Compares models with one checkpoint, whose boxes are found once per page, however many models are checked."""

    def __init__(self, reference: Detector, pages: Sequence[PageSource], threads: int | None = None) -> None:
        self.reference, self.pages, self.threads = reference, pages, threads
        self._expected: dict[int, Detections] = {}

    def check(self, exported: Detector, precision: str) -> Check:
        """Run all pages through a model. Pages with polygons give the H-mean, all of them the rest."""
        scores = {name: HmeanIoU() for name in ("agreement", "checkpoint", "exported")}
        times: list[tuple[float, float]] = []
        sizes: set[tuple[int, ...]] = set()
        boxes, distance, labelled = [0, 0], 0.0, 0
        for index, page in enumerate(self.pages):
            sample = self.reference.prepare(page)
            # The first page of a size also plans it, in every runtime.
            is_new = sample.image.shape not in sizes
            sizes.add(sample.image.shape)
            if index < TIMED_PAGES or index not in self._expected:
                self._expected[index], reference_seconds = _timed(self.reference, sample, is_new)
            two, seconds = _timed(exported, sample, is_new)
            if index < TIMED_PAGES:
                times.append((reference_seconds, seconds))
            one = self._expected[index]
            boxes = [boxes[0] + len(one), boxes[1] + len(two)]
            distance = max(distance, outline_distance(one, two))
            scores["agreement"].update(two.polygons, one.polygons)
            if sample.annotated:
                labelled += 1
                truth = sample.polygons.moved(sample.inverse_matrix)
                scores["checkpoint"].update(one.polygons, truth)
                scores["exported"].update(two.polygons, truth)
        hmeans = {name: float(score.compute()["hmean"]) for name, score in scores.items() if score.update_called}
        first_ms, second_ms = (1000 * median(column) for column in zip(*times, strict=True))
        return Check(
            precision,
            len(self.pages),
            (boxes[0], boxes[1]),
            distance if np.isfinite(distance) else None,
            hmeans["agreement"] if boxes != [0, 0] else 1.0,
            (hmeans["checkpoint"], hmeans["exported"]) if labelled else None,
            (first_ms, second_ms),
            self.threads,
        )


def _timed(detector: Detector, sample: Sample, warm: bool) -> tuple[Detections, float]:
    pages = sample.image[None]
    if warm:
        detector.maps(pages)
    start = perf_counter()
    maps = detector.maps(pages)
    seconds = perf_counter() - start
    return detector.boxes(maps[0], sample.inverse_matrix, sample.shape), seconds


def outline_distance(one: Detections, two: Detections) -> float:
    """How far a corner is at most from the other outline of its box; infinite for another number of boxes.

    The same box is the nearest one: a fraction of a pixel changes the order of boxes on one line. And it is compared
    with the outline, not with its corners: rounding also decides which corners a straight side has.
    """
    if len(one) != len(two):
        return np.inf
    return max(_to_nearest(one.polygons, two.polygons), _to_nearest(two.polygons, one.polygons)) if len(one) else 0.0


def _to_nearest(ones: Polygons, others: Polygons) -> float:
    """The largest distance from a box to the box that is nearest to it, among those of the nearest centres."""
    first, second = ((each.bounds[:, :2] + each.bounds[:, 2:]) / 2 for each in (ones, others))
    candidates = np.hypot(*np.moveaxis(first[:, None] - second[None], -1, 0)).argsort(axis=1)[:, :CANDIDATES]
    outlines = list(others)
    near = zip(ones, candidates.tolist(), strict=True)
    return max(min(_apart(outline, outlines[index]) for index in indices) for outline, indices in near)


def _apart(one: NDArray[np.float32], two: NDArray[np.float32]) -> float:
    """The largest distance from a corner of either outline to the other outline."""
    return max(
        abs(cv2.pointPolygonTest(outline, corner, measureDist=True))
        for corners, outline in ((one, two), (two, one))
        for corner in corners.tolist()
    )
