"""Scores of a page: CLEval against the published package, IoU H-mean against a plain loop over shapely polygons.

python benchmarks/scores.py                # a page of 105 boxes; needs pip install cleval
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import shapely
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console, show, take_turns
from ocr.evaluation import CLEvalMetric, HmeanIoU

Page = tuple[NDArray[np.float32], NDArray[np.float32], list[str], list[str], list[bool]]


def receipt_page(boxes: int, seed: int) -> Page:
    """A page in two columns and what a detector finds: most words, some split, merged, missed or misread."""
    rng = np.random.default_rng(seed)
    lines = np.arange(boxes) // 2
    x, y = 30 + np.arange(boxes) % 2 * 330 + rng.uniform(0, 30, boxes), 20 + lines * 24 + rng.uniform(0, 2, boxes)
    width = rng.uniform(60, 260, boxes)
    gts = np.stack([x, y, x + width, y, x + width, y + 18, x, y + 18], axis=1)
    letters = ["".join(rng.choice(list("abcdefgh 0123456789"), max(1, int(w / 12)))) for w in width]
    near = gts + rng.normal(0, 1.2, gts.shape)
    halves = near[:: boxes // 7 or 1]
    left, right = halves.copy(), halves.copy()
    left[:, [2, 4]] = right[:, [0, 6]] = (halves[:, [0, 6]] + halves[:, [2, 4]]) / 2
    merged = near[1::10].copy()
    merged[:, [0, 6]] -= 330
    kept = np.setdiff1d(np.arange(boxes), np.r_[0 : boxes : boxes // 7 or 1, 3:boxes:15])
    dets = np.concatenate([near[kept], left, right, merged])
    texts = [letters[index] for index in kept] + ["abc 012"] * (2 * len(halves) + len(merged))
    ignore = (rng.random(boxes) < 0.05).tolist()
    return dets.astype(np.float32), gts.astype(np.float32), texts, letters, ignore


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


def compare_cleval(page: Page, rounds: int) -> bool:
    from cleval import CLEvalMetric as PublishedMetric

    dets, gts, _, letters, ignore = page
    published, ours = PublishedMetric(), CLEvalMetric()
    expected, found = published(*page), ours(*page)
    gap = max(abs(float(found[key]) - float(expected[key])) for key in found)
    best = take_turns(
        {
            "cleval": lambda: published(*page),
            "CLEvalMetric": lambda: ours(*page),
            "CLEvalMetric, detection alone": lambda: ours(dets, gts, None, letters, ignore),
        },
        rounds,
    )
    show(f"CLEval, {len(gts)} words, {len(dets)} detections", best, 1, "cleval")
    console.print(f"det_h {float(found['det_h']):.4f}, e2e_h {float(found['e2e_h']):.4f}; largest gap {gap:.1e}\n")
    return gap < 1e-6


def compare_hmean(page: Page, rounds: int) -> bool:
    dets, gts, _, _, ignore = page
    hmean, both = HmeanIoU(), HmeanIoU(also_at=[0.7])
    hmean.update(dets, gts, ignore)
    same = (int(hmean.matched), int(hmean.detections)) == shapely_counts(dets, gts, ignore)
    best = take_turns(
        {
            "shapely loop": lambda: shapely_counts(dets, gts, ignore),
            "HmeanIoU": lambda: hmean(dets, gts, ignore),
            "HmeanIoU, also at 0.7": lambda: both(dets, gts, ignore),
        },
        rounds,
    )
    show("IoU H-mean, the same page", best, 1, "shapely loop")
    console.print(f"the same counts: {'yes' if same else 'NO'}\n")
    return same


def time_far_apart(rounds: int) -> None:
    x, y = np.meshgrid(np.arange(50, dtype=np.float32) * 1000, np.arange(40, dtype=np.float32) * 1000)
    quads = np.stack([x, y, x + 90, y, x + 90, y + 20, x, y + 20], axis=-1).reshape(-1, 8)
    letters = ["abcdefgh"] * len(quads)
    cleval, hmean = CLEvalMetric(), HmeanIoU()
    best = take_turns(
        {"CLEvalMetric": lambda: cleval(quads, quads, letters, letters), "HmeanIoU": lambda: hmean(quads, quads)},
        rounds,
    )
    show(f"{len(quads)} boxes far apart against themselves", best, 1, "CLEvalMetric")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--boxes", type=int, default=105, help="words on the page (default: 105)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default: 7)")
    options = parser.parse_args()
    if find_spec("cleval") is None:
        console.print("the published metric is not installed: pip install cleval")
        return 2
    page = receipt_page(options.boxes, seed=0)
    same_cleval, same_hmean = compare_cleval(page, options.rounds), compare_hmean(page, options.rounds)
    time_far_apart(options.rounds)
    return 0 if same_cleval and same_hmean else 1


if __name__ == "__main__":
    raise SystemExit(main())
