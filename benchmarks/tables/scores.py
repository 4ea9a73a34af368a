"""Scores of a page: CLEval against the published package, IoU H-mean against a plain loop over shapely polygons."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import shapely
from numpy.typing import NDArray

from benchmarks.harness import Data, Figure, Row, Target, benchmark, fastest, interleave, timed
from ocr.errors import DataError
from ocr.evaluation import CLEvalMetric, HmeanIoU

BOXES, FAR_APART = 105, (50, 40)
Page = tuple[NDArray[np.float32], NDArray[np.float32], list[str], list[str], list[bool]]


@benchmark("scores", pages=(), rounds=7)
def scores(data: Data) -> Iterator[Row]:
    """Seconds of a page for each score, and differences to the reference."""
    try:
        from cleval import CLEvalMetric as PublishedMetric
    except ImportError as error:
        raise DataError("the published metric is not installed. Run: pip install cleval", value="cleval") from error
    page = receipt_page()
    dets, gts, _, letters, ignore = page
    published, ours, hmean, tight = PublishedMetric(), CLEvalMetric(), HmeanIoU(), HmeanIoU(also_at=[0.7])
    expected, found = published(*page), ours(*page)
    hmean.update(dets, gts, ignore)
    counted = np.subtract((int(hmean.matched), int(hmean.detections)), shapely_counts(dets, gts, ignore))
    caption = f"CLEval, {len(gts)} words, {len(dets)} detections"
    yield from compare(
        {
            "cleval": lambda: published(*page),
            "CLEvalMetric": lambda: ours(*page),
            "CLEvalMetric, detection alone": lambda: ours(dets, gts, None, letters, ignore),
        },
        data.rounds,
        caption,
    )
    yield from compare(
        {
            "shapely loop": lambda: shapely_counts(dets, gts, ignore),
            "HmeanIoU": lambda: hmean(dets, gts, ignore),
            "HmeanIoU, also at 0.7": lambda: tight(dets, gts, ignore),
        },
        data.rounds,
        "IoU H-mean, the same page",
    )
    far = far_apart()
    words = ["abcdefgh"] * len(far)
    alone = {"CLEvalMetric": lambda: ours(far, far, words, words), "HmeanIoU": lambda: hmean(far, far)}
    yield from compare(alone, data.rounds, f"{len(far)} boxes far apart against themselves")
    gap = max(abs(float(found[key]) - float(expected[key])) for key in found)
    exact = "Differences to the reference"
    yield Row("CLEval, all figures", {"largest": Target(gap, at_most=1e-6)}, exact)
    yield Row("IoU H-mean, counts", {"largest": Target(int(np.abs(counted).max()), at_most=0)}, exact)


def compare(contenders: dict[str, Callable[[], object]], rounds: int, caption: str) -> Iterator[Row]:
    """Fastest rounds, as times of the first contender."""
    best = fastest(interleave({name: timed(run) for name, run in contenders.items()}, rounds))
    reference = next(iter(best))
    for name, seconds in best.items():
        faster = Figure(best[reference] / seconds, " x")
        yield Row(name, {"a page": Figure(seconds, "s"), f"times {reference}": faster}, caption)


def receipt_page() -> Page:
    """A page in two columns and what a detector finds: most words, some split, merged, missed or misread."""
    rng = np.random.default_rng(0)
    lines = np.arange(BOXES) // 2
    x, y = 30 + np.arange(BOXES) % 2 * 330 + rng.uniform(0, 30, BOXES), 20 + lines * 24 + rng.uniform(0, 2, BOXES)
    width = rng.uniform(60, 260, BOXES)
    gts = np.stack([x, y, x + width, y, x + width, y + 18, x, y + 18], axis=1)
    letters = ["".join(rng.choice(list("abcdefgh 0123456789"), max(1, int(w / 12)))) for w in width]
    near = gts + rng.normal(0, 1.2, gts.shape)
    halves = near[:: BOXES // 7]
    left, right = halves.copy(), halves.copy()
    left[:, [2, 4]] = right[:, [0, 6]] = (halves[:, [0, 6]] + halves[:, [2, 4]]) / 2
    merged = near[1::10].copy()
    merged[:, [0, 6]] -= 330
    kept = np.setdiff1d(np.arange(BOXES), np.r_[0 : BOXES : BOXES // 7, 3:BOXES:15])
    dets = np.concatenate([near[kept], left, right, merged])
    texts = [letters[index] for index in kept] + ["abc 012"] * (2 * len(halves) + len(merged))
    ignore = (rng.random(BOXES) < 0.05).tolist()
    return dets.astype(np.float32), gts.astype(np.float32), texts, letters, ignore


def far_apart() -> NDArray[np.float32]:
    """Boxes none of which is near another."""
    x, y = np.meshgrid(*(np.arange(count, dtype=np.float32) * 1000 for count in FAR_APART))
    return np.stack([x, y, x + 90, y, x + 90, y + 20, x, y + 20], axis=-1).reshape(-1, 8)


def shapely_counts(dets: NDArray[np.float32], gts: NDArray[np.float32], ignore: list[bool]) -> tuple[int, int]:
    """Matches and counted detections by the protocol, as evaluation scripts do it: every pair is compared."""
    det_shapes = [shapely.Polygon(quad.reshape(4, 2)) for quad in dets]
    gt_shapes = [shapely.Polygon(quad.reshape(4, 2)) for quad in gts]
    ignored = [shape for shape, flag in zip(gt_shapes, ignore, strict=True) if flag]
    free = [all(det.intersection(shape).area <= 0.5 * det.area for shape in ignored) for det in det_shapes]
    counted, matched = sum(free), 0
    for gt in (shape for shape, flag in zip(gt_shapes, ignore, strict=True) if not flag):
        overlaps = [(gt.intersection(det).area, det.area) for det in det_shapes]
        for index, (shared, area) in enumerate(overlaps):
            if free[index] and shared > 0.5 * (gt.area + area - shared):
                free[index], matched = False, matched + 1
                break
    return matched, counted
