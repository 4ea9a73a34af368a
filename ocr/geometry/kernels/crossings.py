"""Where outlines cross or touch themselves: every pair of edges of a polygon, so the caller bounds its vertices."""

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled


@compiled()
def self_crossings(vertices: NDArray[np.float64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """(P, 2): how many pairs of edges of each polygon cross, and how many only touch; neighbours do not count."""
    counts = np.zeros((len(starts) - 1, 2), np.int64)
    for p in range(len(counts)):
        first, size = starts[p], starts[p + 1] - starts[p]
        for i in range(size - 2):
            # The last edge is a neighbour of the first.
            for j in range(i + 2, size - 1 if i == 0 else size):
                a, b = first + i, first + i + 1
                c, d = first + j, first + (j + 1 if j + 1 < size else 0)
                to_c, to_d = _side(vertices, a, b, c), _side(vertices, a, b, d)
                to_a, to_b = _side(vertices, c, d, a), _side(vertices, c, d, b)
                if to_c * to_d < 0 and to_a * to_b < 0:
                    counts[p, 0] += 1
                elif to_c * to_d <= 0 and to_a * to_b <= 0:
                    counts[p, 1] += 1
    return counts


@compiled(inline="always")
def _side(vertices, a, b, c):  # type: ignore[no-untyped-def]
    """On which side of the line from a to b the point c is: -1, 0 or 1."""
    return np.sign(
        (vertices[b, 0] - vertices[a, 0]) * (vertices[c, 1] - vertices[a, 1])
        - (vertices[b, 1] - vertices[a, 1]) * (vertices[c, 0] - vertices[a, 0])
    )
