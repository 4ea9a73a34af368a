"""A page seen at an angle: pixels through a projective matrix, one division per pixel, in one pass.

Coordinates are float64 and count from the first pixel of the page that comes out, so a window of it has its pixels.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled


@compiled()
def sample_perspective(
    page: NDArray[np.uint8],
    window: tuple[int, int, int, int],
    matrix: NDArray[np.float64],
    corner: tuple[int, int],
    fill: int,
    out: NDArray[np.uint8],
) -> None:
    """Sample a window of a page into `out` (H, W, 3), linearly.

    `window` is (left, top, right, bottom); everything around it is `fill`. `matrix` (3, 3) leads from the pixels that
    come out to those of the window, and `out` begins at the pixel `corner` of them.
    """
    out[:] = fill
    left, top, right, bottom = window
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            x, y = float(column + corner[0]), float(row + corner[1])
            depth = matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2]
            source_x = (matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2]) / depth + left
            source_y = (matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2]) / depth + top
            # Behind the horizon there is no page.
            if depth > 0 and left - 1 < source_x < right and top - 1 < source_y < bottom:
                _blend(page, window, source_x, source_y, fill, out[row, column])


@compiled()
def _blend(page, window, x, y, fill, pixel) -> None:  # type: ignore[no-untyped-def]
    """Mix the four neighbours of a point."""
    left, top, right, bottom = window
    i, j = math.floor(x), math.floor(y)
    to_right, down = np.float32(x - i), np.float32(y - j)
    is_left, is_right, is_upper, is_lower = i >= left, i + 1 < right, j >= top, j + 1 < bottom
    # Neighbours around the window are not read: their indices stay on the page.
    i, j, right_i, lower_j = max(i, left), max(j, top), min(i + 1, right - 1), min(j + 1, bottom - 1)
    border = np.float32(fill)
    for c in range(3):
        a = np.float32(page[j, i, c]) if is_upper and is_left else border
        b = np.float32(page[j, right_i, c]) if is_upper and is_right else border
        above = a + to_right * (b - a)
        a = np.float32(page[lower_j, i, c]) if is_lower and is_left else border
        b = np.float32(page[lower_j, right_i, c]) if is_lower and is_right else border
        below = a + to_right * (b - a)
        pixel[c] = np.uint8(np.rint(above + down * (below - above)))
