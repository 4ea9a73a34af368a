"""Which shapes batches have if pages keep their own: few, and with as little padding as so few allow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.pipeline.padding import STRIDE
from ocr.pipeline.stage import Sizes

_SIDE = 1 << 31
Numbers = NDArray[np.signedinteger[Any]]


def choose_shapes(sizes: Sizes, limit: int) -> Sizes:
    """At most `limit` (width, height), multiples of 32, that hold pages of these sizes with the least padding.

    The smallest come first; the last one holds every page. A dynamic program over the distinct sizes, sorted by
    aspect: each shape serves a run of them.

    >>> choose_shapes(np.array([[320, 640], [300, 640], [470, 640], [640, 640]]), 2).tolist()
    [[320, 640], [640, 640]]
    """
    steps, counts = np.unique(-(-sizes // STRIDE) @ [_SIDE, 1], return_counts=True)
    found = np.stack(np.divmod(steps, _SIDE), axis=1) * STRIDE
    by_aspect = np.lexsort((found.prod(axis=1), found[:, 0] / found[:, 1]))
    found, counts = found[by_aspect], counts[by_aspect]
    runs = _best_runs(found, counts, limit)
    largest = found.max(axis=0)
    if not any((found[first:last].max(axis=0) == largest).all() for first, last in runs):
        # Pages that are left over, tall and wide ones, need a shape that holds both.
        runs = _best_runs(found, counts, limit - 1) if limit > 1 else [(0, len(found))]
    shapes = np.array([*(found[first:last].max(axis=0) for first, last in runs), largest])
    shapes = np.unique(shapes, axis=0)
    return shapes[np.lexsort((shapes[:, 0], shapes.prod(axis=1)))]


def smallest_holding(shapes: Sizes, sizes: Sizes) -> Numbers:
    """The number of the smallest shape that holds each page, of shapes in the order of `choose_shapes`.

    >>> smallest_holding(np.array([[320, 640], [640, 640]]), np.array([[300, 640], [640, 64]])).tolist()
    [0, 1]
    """
    number = np.full(len(sizes), len(shapes) - 1, dtype=np.int64)
    for shape in range(len(shapes) - 2, -1, -1):
        number[(sizes <= shapes[shape]).all(axis=1)] = shape
    return number


def _best_runs(found: Sizes, counts: Numbers, limit: int) -> list[tuple[int, int]]:
    """The runs of sizes that share a shape: at most `limit`, with the fewest pixels in all."""
    total = len(found)
    pages = np.concatenate([[0], np.cumsum(counts)])
    best = np.full(total + 1, np.inf)
    best[0] = 0
    starts: list[Numbers] = []
    for _ in range(min(limit, total)):
        reached, start = best.copy(), np.full(total + 1, -1)
        for last in range(1, total + 1):
            # From the last size backwards: the largest sides of every run that ends here.
            area = np.maximum.accumulate(found[last - 1 :: -1], axis=0).prod(axis=1)
            pixels = best[:last] + area[::-1] * (pages[last] - pages[:last])
            first = int(np.argmin(pixels))
            if pixels[first] < reached[last]:
                reached[last], start[last] = pixels[first], first
        starts.append(start)
        best = reached
    runs: list[tuple[int, int]] = []
    last = total
    for start in reversed(starts):
        # No run starts here if fewer shapes serve as well.
        if last and start[last] >= 0:
            runs.append((int(start[last]), last))
            last = int(start[last])
    return runs[::-1]
