"""One pass over the pixels of a page: sampled through a matrix, coloured, normalised, written where it belongs.

All steps are in float32 and never fused, so that every machine makes the same bytes. They follow OpenCV's linear
`warpAffine` with a constant border: single pixels differ by one gray level. On its way a pixel is a word, red in the
lowest byte: loops over words run 16 pixels at a time, loops over interleaved bytes do not.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled
from ocr.geometry.kernels.dense import content_window

RUN = 256
"""Pixels that are sampled at once: their neighbours and weights stay in the first-level cache."""
NO_FRACTION = np.float32(2**23)
"""A float32 this large has no fraction, so adding and subtracting it rounds, half to even."""
RED, GREEN, BLUE, NEXT_RED = np.uint32(0), np.uint32(8), np.uint32(16), np.uint32(24)
"""Where the channels of a pixel are in a word, and the red of the next pixel."""
BYTE, GRAY = np.uint32(255), np.uint32(0x010101)


@compiled()
def sample_page(
    page: NDArray[np.uint8],
    window: tuple[int, int, int, int],
    matrix: NDArray[np.float64],
    corner: tuple[int, int],
    fill: int,
    colours: NDArray[np.float32],
    out: NDArray[np.uint8],
) -> None:
    """Sample a window of a page into `out` (H, W, 3).

    `window` is (left, top, right, bottom); everything around it is `fill`. `matrix` (2, 3) maps output
    pixels to pixels of the window, and `out` begins at the output pixel `corner`. `colours` (3, 4) are the rows of
    a matrix with the shift as last column; (0, 4) leaves colours alone.
    """
    content, scratch, words = _content(page, window, fill), _scratch(), np.empty(out.shape[1], np.uint32)
    blank = _blank(fill, colours)
    for y in range(len(out)):
        _sample_row(page, window, content, _line(matrix, corner, y), fill, blank, colours, scratch, words)
        _store_bytes(words, out[y].reshape(-1))


@compiled()
def sample_normalized_page(
    page: NDArray[np.uint8],
    window: tuple[int, int, int, int],
    matrix: NDArray[np.float64],
    corner: tuple[int, int],
    fill: int,
    colours: NDArray[np.float32],
    mean: NDArray[np.float32],
    factor: NDArray[np.float32],
    out_chw: NDArray[np.float32],
) -> None:
    """Like `sample_page`, and then like `normalize_to_chw`."""
    content, scratch, words = _content(page, window, fill), _scratch(), np.empty(out_chw.shape[2], np.uint32)
    blank = _blank(fill, colours)
    for y in range(out_chw.shape[1]):
        _sample_row(page, window, content, _line(matrix, corner, y), fill, blank, colours, scratch, words)
        for c in range(3):
            _store_floats(words, np.uint32(8 * c), mean[c], factor[c], out_chw[c, y])


@compiled()
def _content(page, window, fill):  # type: ignore[no-untyped-def]
    """The window without the margins that are `fill` anyway: half of a letterboxed receipt need not be sampled."""
    top, left, bottom, right = content_window(page, np.full(3, fill, np.uint8))
    left, top = max(left, window[0]), max(top, window[1])
    return left, top, max(left, min(right, window[2])), max(top, min(bottom, window[3]))


@compiled()
def _scratch():  # type: ignore[no-untyped-def]
    """For the pixels of a run: their numbers, where they are, their weights, their upper and lower neighbours."""
    numbers = np.arange(RUN).astype(np.float32)
    weights, pairs = np.empty((2, RUN), np.float32), np.empty((2, 2 * RUN), np.uint32)
    return numbers, np.empty(RUN, np.int32), (weights[0], weights[1]), (pairs[0], pairs[1])


@compiled()
def _blank(fill, colours):  # type: ignore[no-untyped-def]
    """A pixel of `fill` with its colours changed."""
    words = np.full(1, np.uint32(fill) * GRAY)
    _colour(words, colours)
    return words[0]


@compiled()
def _line(matrix, corner, y):  # type: ignore[no-untyped-def]
    """A row as a line in the window: its first pixel, the steps along x and y, and where x and y start."""
    row = float(y + corner[1])
    start_x, start_y = matrix[0, 1] * row + matrix[0, 2], matrix[1, 1] * row + matrix[1, 2]
    steps = np.float32(matrix[0, 0]), np.float32(matrix[1, 0])
    return corner[0], steps, (np.float32(start_x), np.float32(start_y))


@compiled()
def _sample_row(  # type: ignore[no-untyped-def]
    page, window, content, line, fill, blank, colours, scratch, words
) -> None:
    left, top = window[:2]
    low_x, low_y, high_x, high_y = content[0] - left, content[1] - top, content[2] - left, content[3] - top
    seen, end = _span(0, len(words), line, 0, low_x - 1, high_x)
    seen, end = _span(seen, end, line, 1, low_y - 1, high_y)
    # Neighbours are read four bytes at a time, so the last column of a page, where its memory can end, is an edge.
    inner, inner_end = _span(seen, end, line, 0, low_x, min(high_x - 1, page.shape[1] - 2 - left))
    inner, inner_end = _span(inner, inner_end, line, 1, low_y, high_y - 1)
    if inner == inner_end:
        inner = inner_end = end
    words[:seen] = blank
    words[end:] = blank
    _sample_edge(page, window, content, line, seen, inner, fill, words)
    _sample_edge(page, window, content, line, inner_end, end, fill, words)
    for first in range(inner, inner_end, RUN):
        _sample_run(page, window, line, first, scratch, words[first : min(first + RUN, inner_end)])
    _colour(words[seen:end], colours)


@compiled()
def _coordinate(x, line, axis):  # type: ignore[no-untyped-def]
    corner, steps, starts = line
    return np.float32(x + corner) * steps[axis] + starts[axis]


@compiled()
def _span(first, stop, line, axis, low, high):  # type: ignore[no-untyped-def]
    """The pixels from `first` to `stop` whose coordinate is at least `low` and below `high`."""
    corner, steps, starts = line
    step, start = float(steps[axis]), float(starts[axis])
    if step == 0:
        return (first, stop) if low <= start < high else (first, first)
    near, far = (low - start) / step - corner, (high - start) / step - corner
    a = int(min(max(math.ceil(min(near, far)), float(first)), float(stop)))
    b = int(min(max(math.ceil(max(near, far)), float(first)), float(stop)))
    # Coordinates never turn back along a row, so that only the ends of the guess can be off.
    while a > first and low <= _coordinate(a - 1, line, axis) < high:
        a -= 1
    while a < b and not low <= _coordinate(a, line, axis) < high:
        a += 1
    while b < stop and low <= _coordinate(b, line, axis) < high:
        b += 1
    while a < b and not low <= _coordinate(b - 1, line, axis) < high:
        b -= 1
    return a, b


@compiled()
def _sample_run(page, window, line, first, scratch, words) -> None:  # type: ignore[no-untyped-def]
    """Pixels all of whose neighbours are on the page."""
    numbers, places, weights, pairs = scratch
    stride, count = page.shape[1] * 3, len(words)
    flat, origin = page.reshape(-1), (window[1] * page.shape[1] + window[0]) * 3
    if _is_copied(line):
        place = int(_coordinate(first, line, 1)) * stride + int(_coordinate(first, line, 0)) * 3
        _copy(flat, origin + place, 3 * int(line[1][0]), words)
        return
    _locate(line, np.float32(first + line[0]), np.int32(stride), numbers, places, weights, count)
    _gather(flat, origin, stride, places, pairs, count)
    _blend(pairs, weights, words)


@compiled()
def _is_copied(line):  # type: ignore[no-untyped-def]
    """Whether pixels fall on pixels: a page that is only mirrored, cut or coloured."""
    _, (step_x, step_y), (start_x, start_y) = line
    return abs(step_x) == 1 and step_y == 0 and start_x == math.floor(start_x) and start_y == math.floor(start_y)


@compiled()
def _copy(flat, first, step, words) -> None:  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        words[i] = _word(flat, np.uint64(first + i * step))


@compiled()
def _locate(line, first, stride, numbers, places, weights, count) -> None:  # type: ignore[no-untyped-def]
    """The byte of the window where the upper left neighbour begins, and the weights of the right and lower ones."""
    _, (step_x, step_y), (start_x, start_y) = line
    right, lower = weights
    for i in range(count):
        x = numbers[i] + first
        source_x, source_y = x * step_x + start_x, x * step_y + start_y
        whole_x, whole_y = np.int32(source_x), np.int32(source_y)
        right[i], lower[i] = source_x - np.float32(whole_x), source_y - np.float32(whole_y)
        places[i] = np.int32(whole_y * stride) + np.int32(whole_x * np.int32(3))


@compiled()
def _gather(flat, origin, stride, places, pairs, count) -> None:  # type: ignore[no-untyped-def]
    """The two upper and the two lower neighbours of each pixel: six bytes, and two that do not count."""
    upper, lower = pairs
    begin, half, below = np.uint64(origin), np.uint64(4), np.uint64(stride)
    for i in range(count):
        # Unsigned: a signed index would be tested for counting from the end. The words of a pair become one load.
        at = begin + np.uint64(np.uint32(places[i]))
        first, second = _word(flat, at), _word(flat, at + half)
        upper[2 * i], upper[2 * i + 1] = first, second
        first, second = _word(flat, at + below), _word(flat, at + below + half)
        lower[2 * i], lower[2 * i + 1] = first, second


@compiled()
def _word(flat, at):  # type: ignore[no-untyped-def]
    # Becomes a single load.
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    return (
        np.uint32(flat[at])
        | np.uint32(flat[at + one]) << GREEN
        | np.uint32(flat[at + two]) << BLUE
        | np.uint32(flat[at + three]) << NEXT_RED
    )


@compiled()
def _blend(pairs, weights, words) -> None:  # type: ignore[no-untyped-def]
    upper, lower = pairs
    to_right, down = weights
    for i in range(len(words)):
        words[i] = _between(upper[2 * i], upper[2 * i + 1], lower[2 * i], lower[2 * i + 1], to_right[i], down[i])


@compiled()
def _between(a, b, c, d, to_right, down):  # type: ignore[no-untyped-def]
    """The pixel between two upper ones, red, green, blue and red in `a`, green and blue in `b`, and two lower ones."""
    red = _mix(_level(a, RED), _level(a, NEXT_RED), _level(c, RED), _level(c, NEXT_RED), to_right, down)
    green = _mix(_level(a, GREEN), _level(b, RED), _level(c, GREEN), _level(d, RED), to_right, down)
    blue = _mix(_level(a, BLUE), _level(b, GREEN), _level(c, BLUE), _level(d, GREEN), to_right, down)
    return red | green << GREEN | blue << BLUE


@compiled()
def _mix(a, b, c, d, to_right, down):  # type: ignore[no-untyped-def]
    above, below = a + to_right * (b - a), c + to_right * (d - c)
    return _rounded(above + down * (below - above))


@compiled()
def _level(word, shift):  # type: ignore[no-untyped-def]
    return np.float32(np.int32((word >> shift) & BYTE))


@compiled()
def _rounded(level):  # type: ignore[no-untyped-def]
    return np.uint32(np.int32((level + NO_FRACTION) - NO_FRACTION))


@compiled()
def _sample_edge(page, window, content, line, first, stop, fill, words) -> None:  # type: ignore[no-untyped-def]
    """Pixels some of whose neighbours are around the content."""
    for i in range(first, stop):
        source_x, source_y = _coordinate(i, line, 0), _coordinate(i, line, 1)
        whole_x, whole_y = math.floor(source_x), math.floor(source_y)
        to_right, down = source_x - np.float32(whole_x), source_y - np.float32(whole_y)
        x, y = int(whole_x) + window[0], int(whole_y) + window[1]
        a, b = _pixel(page, content, x, y, fill), _pixel(page, content, x + 1, y, fill)
        c, d = _pixel(page, content, x, y + 1, fill), _pixel(page, content, x + 1, y + 1, fill)
        words[i] = _between(a | b << NEXT_RED, b >> GREEN, c | d << NEXT_RED, d >> GREEN, to_right, down)


@compiled()
def _pixel(page, content, x, y, fill):  # type: ignore[no-untyped-def]
    left, top, right, bottom = content
    if left <= x < right and top <= y < bottom:
        return np.uint32(page[y, x, 0]) | np.uint32(page[y, x, 1]) << GREEN | np.uint32(page[y, x, 2]) << BLUE
    return np.uint32(fill) * GRAY


@compiled()
def _colour(words, colours) -> None:  # type: ignore[no-untyped-def]
    """`matrix @ pixel + shift`, in place."""
    if not len(colours):
        return
    for i in range(len(words)):
        word = words[i]
        red, green, blue = _level(word, RED), _level(word, GREEN), _level(word, BLUE)
        changed = np.uint32(0)
        for c in range(3):
            level = colours[c, 0] * red + colours[c, 1] * green + colours[c, 2] * blue + colours[c, 3]
            changed |= _rounded(min(max(level, np.float32(0)), np.float32(255))) << np.uint32(8 * c)
        words[i] = changed


@compiled()
def _store_bytes(words, row) -> None:  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        word = words[i]
        row[3 * i], row[3 * i + 1], row[3 * i + 2] = np.uint8(word), np.uint8(word >> GREEN), np.uint8(word >> BLUE)


@compiled()
def _store_floats(words, shift, mean, factor, row) -> None:  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        row[i] = (_level(words[i], shift) - mean) * factor
