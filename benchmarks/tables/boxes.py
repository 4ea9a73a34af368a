"""Boxes from maps like a network's: `BoxesFromMap` against the usual contour loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import cv2
import numpy as np
import pyclipper
import shapely
from numpy.typing import NDArray

from benchmarks.harness import Data, Figure, Row, Target, benchmark, fastest, interleave, timed, times
from benchmarks.loaders import SIZE, pages
from ocr.evaluation.boxes import BoxesFromMap, Detections

Array = NDArray[Any]
Boxes = list[tuple[Array, float]]
SHAPES = ((True, "polygons"), (False, "rectangles"))


class Page(NamedTuple):
    """A map and the matrix from it to the source page."""

    prob_map: NDArray[np.float32]
    inverse_matrix: NDArray[np.float64]
    size: tuple[int, int]


@benchmark("boxes", rounds=5)
def boxes(data: Data) -> Iterator[Row]:
    """Boxes of maps like a network's, against the loop that DBNet's authors published."""
    dataset = pages(data.receipts, on_bad_sample="skip")
    made = []
    for index in range(len(dataset)):
        sample = dataset.sample(index)
        prob_map = network_like(sample.maps.prob_map, np.random.default_rng((0, index)))
        made.append(Page(prob_map, sample.inverse_matrix, sample.shape))
    for use_polygon, shape in SHAPES:
        ours = BoxesFromMap(unclip_ratio=1.5, use_polygon=use_polygon)
        contenders = {
            "usual loop": timed(lambda ours=ours: [usual_loop(page, ours) for page in made]),
            "BoxesFromMap": timed(lambda ours=ours: [ours(*page) for page in made]),
        }
        best = {name: seconds / len(made) for name, seconds in fastest(interleave(contenders, data.rounds)).items()}
        agreement = Agreement()
        for page in made:
            agreement.compare(page, usual_loop(page, ours), ours(*page))
        caption = f"{shape.capitalize()} of {len(made)} maps, {SIZE}x{SIZE}, one thread"
        yield Row("usual loop", {"a page": Figure(best["usual loop"], "s")}, caption)
        yield Row("BoxesFromMap", {"a page": times(best["usual loop"], best["BoxesFromMap"], 5)}, caption)
        for name, cell in agreement.cells().items():
            yield Row(f"{shape}: {name}", {"found": cell}, "The same boxes")


def network_like(prob_map: Array, rng: np.random.Generator) -> NDArray[np.float32]:
    """A drawn map as a network would give it: soft edges, uneven level, noise, bridges between lines, false blobs."""
    height, width = prob_map.shape
    drawn = prob_map.copy()
    for y, x in rng.permutation(np.argwhere(drawn > 0))[:6]:
        cv2.line(drawn, (int(x), int(y)), (int(x), int(y) + int(rng.integers(4, 14))), 0.7, 1)
    for _ in range(25):
        centre, axes = rng.integers(0, (width, height)), rng.integers(1, 9, 2)
        cv2.ellipse(drawn, centre.tolist(), axes.tolist(), float(rng.uniform(0, 180)), 0, 360, rng.uniform(0.3, 1), -1)
    level = cv2.resize(rng.uniform(0.7, 1, (24, 24)).astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    noise = cv2.GaussianBlur(rng.normal(0, 1, drawn.shape).astype(np.float32), (0, 0), 1.2)
    return np.clip(cv2.GaussianBlur(drawn, (0, 0), 1.0) * level + 0.12 * noise, 0, 1).astype(np.float32)


def usual_loop(page: Page, boxes: BoxesFromMap) -> Boxes:
    """The published post-processing, with the page's matrix in place of two scales."""
    bitmap = page.prob_map > boxes.thresh
    contours, _ = cv2.findContours((bitmap * 255).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    found = []
    for contour in contours:
        if boxes.use_polygon:
            points = cv2.approxPolyDP(contour, 0.002 * cv2.arcLength(contour, True), True).reshape(-1, 2)
            if len(points) < 4:
                continue
        else:
            points, side = mini_box(contour)
            if side < boxes.min_size:
                continue
        score = box_score_fast(page.prob_map, points)
        if score < boxes.box_thresh:
            continue
        # A bay that closes leaves several pieces. The published loop drops such a box; here the largest piece stays.
        box = np.array(max(unclip(points, boxes.unclip_ratio), key=pyclipper.Area, default=[[0, 0]]))
        corners, side = mini_box(box.astype(np.int32))
        if side < boxes.min_size + 2:
            continue
        box = box if boxes.use_polygon else corners
        moved = cv2.perspectiveTransform(box.reshape(-1, 1, 2).astype(np.float64), page.inverse_matrix).reshape(-1, 2)
        on_page = np.clip(moved, 0, page.size)
        if cv2.contourArea(on_page.astype(np.float32)) > 0:
            found.append((on_page, score))
    return found


def mini_box(contour: Array) -> tuple[Array, float]:
    """Corners of the smallest rectangle, top left first, and its shorter side."""
    rectangle = cv2.minAreaRect(contour)
    points = sorted(cv2.boxPoints(rectangle), key=lambda point: point[0])
    left, right = sorted(points[:2], key=lambda point: point[1]), sorted(points[2:], key=lambda point: point[1])
    # One rectangle in 28 has a corner at 348.99997 for 349, or a side of 2.9999995 for 3: cut to 348 the box would
    # shift by a pixel, and under 3 it would be dropped.
    return np.round([left[0], right[0], right[1], left[1]], 3), round(min(rectangle[1]), 3)


def box_score_fast(prob_map: Array, points: Array) -> float:
    """Mean of the map under a mask of the box."""
    height, width = prob_map.shape
    box = points.copy()
    left, right = np.clip([np.floor(box[:, 0].min()), np.ceil(box[:, 0].max())], 0, width - 1).astype(int)
    top, bottom = np.clip([np.floor(box[:, 1].min()), np.ceil(box[:, 1].max())], 0, height - 1).astype(int)
    mask = np.zeros((bottom - top + 1, right - left + 1), dtype=np.uint8)
    box[:, 0] -= left
    box[:, 1] -= top
    cv2.fillPoly(mask, box.reshape(1, -1, 2).astype(np.int32), 1)
    return float(cv2.mean(prob_map[top : bottom + 1, left : right + 1], mask)[0])


def unclip(points: Array, ratio: float) -> list[list[list[int]]]:
    """The box moved out by area * ratio / length."""
    polygon = shapely.Polygon(points)
    offset = pyclipper.PyclipperOffset()
    offset.AddPath(points, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    pieces: list[list[list[int]]] = offset.Execute(polygon.area * ratio / polygon.length)
    return pieces


def outer_ring(box: Array) -> shapely.LinearRing:
    """The outline without the bays that closed, which clipper leaves as slits."""
    parts = shapely.get_parts(shapely.make_valid(shapely.Polygon(box), method="structure"))
    return max(parts, key=lambda part: part.area).exterior


class Agreement:
    """How far two sets of boxes are from each other, in pixels of the map."""

    def __init__(self) -> None:
        self.missing, self.extra, self.score_gap = 0, 0, 0.0
        self.gaps: list[float] = []

    def compare(self, page: Page, usual: Boxes, ours: Detections) -> None:
        """Match each usual box with the nearest of ours, outline against outline (symmetric Hausdorff distance)."""
        scale = float(np.sqrt(abs(np.linalg.det(page.inverse_matrix[:2, :2]))))
        rings = [outer_ring(polygon) for polygon in ours.polygons]
        free = set(range(len(rings)))
        tree = shapely.STRtree(rings)
        for box, score in usual:
            ring = outer_ring(box)
            near = [index for index in tree.query(ring, "dwithin", scale) if index in free]
            gaps = {i: shapely.hausdorff_distance(ring, rings[i], densify=0.1) / scale for i in near}
            best = min(gaps, key=gaps.__getitem__, default=None)
            if best is None or gaps[best] > 3:
                self.missing += 1
                continue
            free.remove(best)
            self.gaps.append(gaps[best])
            self.score_gap = max(self.score_gap, abs(score - float(ours.scores[best])))
        self.extra += len(free)

    def cells(self) -> dict[str, Figure | Target]:
        """What must hold."""
        return {
            "boxes of both": Figure(len(self.gaps)),
            "only of the loop, or only of GlyphFeed": Target(self.missing + self.extra, at_most=0),
            "largest distance of outlines, pixels": Target(max(self.gaps, default=0.0), at_most=1.001),
            "largest difference of scores": Figure(self.score_gap),
        }
