"""Pixels of a dense page: the page without its border, as planes of differences that LZ4 packs well.

Loops over interleaved pixels count with unsigned numbers: only then does the compiler know that no index is negative,
and makes one instruction of 16 pixels (0.016 instead of 0.1 ms per page).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled

_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


@compiled()
def content_window(image_hwc: NDArray[np.uint8], border: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """The smallest (top, left, bottom, right) around every pixel that does not have the colour of the border."""
    height, width, _ = image_hwc.shape
    empty = np.empty((width, 3), dtype=np.uint8)
    empty[:] = border
    empty_row = empty.reshape(-1)
    columns = np.zeros(3 * width, dtype=np.uint8)
    top, bottom = height, 0
    for y in range(height):
        row = image_hwc[y].reshape(-1)
        found = np.uint8(0)
        for x in range(3 * width):
            difference = row[x] ^ empty_row[x]
            columns[x] |= difference
            found |= difference
        if found:
            top, bottom = min(top, y), y + 1
    used = np.flatnonzero(columns)
    if not len(used):
        return 0, 0, 0, 0
    return top, used[0] // 3, bottom, used[-1] // 3 + 1


@compiled()
def to_differences(image_hwc: NDArray[np.uint8], top: int, left: int, differences: NDArray[np.uint8]) -> bool:
    """Fill (3, H, W): green, red - green and blue - green, each minus the row above; true if all is gray."""
    _, rows, columns = differences.shape
    above = np.zeros((3, columns), dtype=np.uint8)
    green, red, blue = above
    colour = np.uint8(0)
    for y in range(rows):
        row = image_hwc[top + y].reshape(-1)[3 * left : 3 * (left + columns)]
        to_green, to_red, to_blue = differences[0, y], differences[1, y], differences[2, y]
        for x in range(np.uint64(columns)):
            g = row[_THREE * x + _ONE]
            r, b = np.uint8(row[_THREE * x] - g), np.uint8(row[_THREE * x + _TWO] - g)
            colour |= r | b
            to_green[x], to_red[x], to_blue[x] = g - green[x], r - red[x], b - blue[x]
            green[x], red[x], blue[x] = g, r, b
    return bool(colour == 0)


@compiled()
def from_differences(
    differences: NDArray[np.uint8], top: int, left: int, border: NDArray[np.uint8], page_hwc: NDArray[np.uint8]
) -> None:
    """Write the page: the border, and its content with the upper left corner at (top, left); one plane is gray."""
    planes, rows, columns = differences.shape
    sums = np.zeros((3, columns), dtype=np.uint8)
    green, red, blue = sums
    for y in range(len(page_hwc)):
        row = page_hwc[y].reshape(-1)
        if y < top or y >= top + rows:
            _fill(row, border)
            continue
        _fill(row[: 3 * left], border)
        target = row[3 * left : 3 * (left + columns)]
        for plane in range(planes):
            _add(sums[plane], differences[plane, y - top])
        if planes == 1:
            for x in range(np.uint64(columns)):
                target[_THREE * x] = target[_THREE * x + _ONE] = target[_THREE * x + _TWO] = green[x]
        else:
            for x in range(np.uint64(columns)):
                g = green[x]
                target[_THREE * x], target[_THREE * x + _TWO] = red[x] + g, blue[x] + g
                target[_THREE * x + _ONE] = g
        _fill(row[3 * (left + columns) :], border)


@compiled()
def normalized_from_differences(
    differences: NDArray[np.uint8],
    top: int,
    left: int,
    border: NDArray[np.uint8],
    offset: NDArray[np.float32],
    factor: NDArray[np.float32],
    page_chw: NDArray[np.float32],
) -> None:
    """The same as floats, plane by plane: bit for bit what `normalize_to_chw` makes of the page.

    The differences are overwritten.
    """
    planes, rows, columns = differences.shape
    _sum_up(differences)
    for channel in range(3):
        minus, times = offset[channel], factor[channel]
        empty = (np.float32(border[channel]) - minus) * times
        # Green is the first plane. A gray page has no other.
        values = differences[0 if planes == 1 or channel == 1 else 1 + channel // 2]
        # Every row from its first to its last pixel: memory takes that twice as fast as the border by itself.
        for y in range(page_chw.shape[1]):
            row = page_chw[channel, y]
            if y < top or y >= top + rows:
                _fill_floats(row, empty)
                continue
            _fill_floats(row[:left], empty)
            target, value = row[left : left + columns], values[y - top]
            for x in range(columns):
                target[x] = (np.float32(value[x]) - minus) * times
            _fill_floats(row[left + columns :], empty)


@compiled()
def _sum_up(differences: NDArray[np.uint8]) -> None:
    """Turn differences into the planes of the page, in place."""
    planes, rows, _ = differences.shape
    for y in range(rows):
        for plane in range(planes):
            if y:
                _add(differences[plane, y], differences[plane, y - 1])
    # Not above: the next row needs the difference to green.
    for plane in range(1, planes):
        for y in range(rows):
            _add(differences[plane, y], differences[0, y])


@compiled()
def _add(sums: NDArray[np.uint8], differences: NDArray[np.uint8]) -> None:
    for x in range(len(sums)):
        sums[x] += differences[x]


@compiled()
def _fill(row: NDArray[np.uint8], border: NDArray[np.uint8]) -> None:
    red, green, blue = border[0], border[1], border[2]
    if red == green and green == blue:
        # Not row[:] = red, which becomes a call of memset: it takes twice as long for such short pieces.
        for x in range(len(row)):
            row[x] = red
    else:
        for x in range(len(row)):
            row[x] = border[x % 3]


@compiled()
def _fill_floats(row: NDArray[np.float32], value: float) -> None:
    for x in range(len(row)):
        row[x] = value
