"""Numbers behind four corners: further points of an outline, or a text such as `1,000`."""

from __future__ import annotations

import math
from typing import Literal

from ocr.formats.lines import to_pairs

MAX_NUMBERS = 20
"""From here on they are points: curved outlines have 10 points and more, and no text begins with 12 numbers."""
# Measured on generated shapes: of arcs of 5 to 14 points, drawn along the top and back, 0.05 % or fewer are below; of
# quads with corners off by 10 % of their height, none is above (at most 0.135). An outline of five points that begins
# with four corners is below too, and is recognised by its neighbours only.
_MAX_SKEW = 0.15


def judge_numbers(numbers: list[float]) -> Literal["points", "text", "either"]:
    """What the numbers after the first eight of a line are.

    The corners of a word are nearly a parallelogram, and the first four points of a longer outline are not. Behind
    corners, numbers are a text, unless they return to the first corner; if they are points inside the corners' own
    box, the line alone does not show which.

    >>> judge_numbers([1, 2, 9, 2, 9, 5, 1, 5, 10, 50]), judge_numbers([0, 0, 5, 1, 9, 0, 9, 5, 5, 6, 0, 5])
    ('text', 'points')
    """
    if len(numbers) < 10 or len(numbers) >= MAX_NUMBERS:
        return "text" if len(numbers) < 10 else "points"
    a, b, c, d = corners = to_pairs(numbers[:8])
    further = to_pairs(numbers[8 : len(numbers) // 2 * 2])
    skew = math.hypot(a[0] - b[0] + c[0] - d[0], a[1] - b[1] + c[1] - d[1])
    perimeter = math.dist(a, b) + math.dist(b, c) + math.dist(c, d) + math.dist(d, a)
    if skew > _MAX_SKEW * perimeter or further[-1] == a:
        return "points"
    (left, right), (top, bottom) = ((min(axis), max(axis)) for axis in zip(*corners, strict=True))
    return "either" if all(left <= x <= right and top <= y <= bottom for x, y in further) else "text"
