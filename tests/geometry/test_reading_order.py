"""Reading order on layouts whose order is known: columns, headlines, tables, letters; level, skewed and curved."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ocr.geometry.reading_order import reading_order

Boxes = list[tuple[float, float, float, float]]
HEIGHT, LEADING = 20.0, 30.0


def box(x: float, y: float, width: float, height: float = HEIGHT) -> tuple[float, float, float, float]:
    return x, y, x + width, y + height


def paragraphs(rng: np.random.Generator, x: float, y: float, width: float, rows: int, phase: float = 0.0) -> Boxes:
    """Running text: full lines, but the last one of each paragraph and the first one's indent."""
    lines, top, ends = [], y + phase, 0
    for row in range(rows):
        if row and ends == row:
            top += rng.choice([0.0, 12.0])
        if row == ends:
            ends = row + int(rng.integers(3, 9))
        indent = 25.0 if rng.random() < 0.1 else 0.0
        last = row == ends - 1
        lines.append(box(x + indent, top, (width - indent) * (rng.uniform(0.2, 1) if last else rng.uniform(0.93, 1))))
        top += LEADING
    return lines


def one_column(rng: np.random.Generator) -> Boxes:
    return [box(300, 20, 350, 40), *paragraphs(rng, 100, 100, 800, 30)]


def columns(rng: np.random.Generator, count: int, headline: bool = True) -> Boxes:
    width, gutter = 1000 / count, rng.uniform(22, 50)
    lines = [box(60, 10, 1000, 45), box(60, 65, rng.uniform(300, 1000), 30)] if headline else []
    for column in range(count):
        phase = rng.choice([0.0, rng.uniform(0, 25)])
        rows = int(rng.integers(12, 30))
        lines += paragraphs(rng, 60 + column * width, 120, width - gutter, rows, phase)
    return lines


def headline_between(rng: np.random.Generator) -> Boxes:
    lines = []
    for part in range(2):
        lines.append(box(60, part * 600, 1000, 40))
        for column in range(2):
            lines += paragraphs(rng, 60 + 515 * column, part * 600 + 80, 480, 12)
    return lines


def table(rng: np.random.Generator) -> Boxes:
    lines, top = [box(60, 0, 400, 35)], 80.0
    for _ in range(int(rng.integers(5, 20))):
        lines.append(box(60, top, rng.uniform(80, 380)))
        lines += [
            box(edge - width, top + rng.uniform(-2, 2), width)
            for edge, width in zip((560, 720, 900), rng.uniform(20, 100, 3), strict=True)
        ]
        top += rng.choice([32.0, 45.0])
    return lines


def receipt(rng: np.random.Generator) -> Boxes:
    lines, top = [], 0.0
    for _ in range(4):
        width = rng.uniform(120, 420)
        lines.append(box(250 - width / 2, top, width))
        top += 26
    for _ in range(int(rng.integers(4, 20))):
        lines.append(box(20, top, rng.uniform(60, 280)))
        price = rng.uniform(40, 90)
        lines.append(box(480 - price, top, price))
        top += 26
        if rng.random() < 0.3:
            lines.append(box(50, top, rng.uniform(60, 300)))
            top += 26
    lines.append(box(120, top + 10, 260))
    return lines


def letter(rng: np.random.Generator) -> Boxes:
    lines, top = [], 0.0
    for _ in range(int(rng.integers(3, 6))):
        lines.append(box(650, top, rng.uniform(120, 300)))
        top += 26
    top += 20
    for _ in range(int(rng.integers(3, 6))):
        lines.append(box(60, top, rng.uniform(120, 300)))
        top += 26
    lines += [box(700, top + 40, 160), box(60, top + 100, 400), *paragraphs(rng, 60, top + 160, 880, 15)]
    return [*lines, box(60, lines[-1][3] + 50, 200)]


def newspaper(rng: np.random.Generator) -> Boxes:
    return columns(rng, 3)


LAYOUTS: dict[str, Callable[[np.random.Generator], Boxes]] = {
    "one column": one_column,
    "two columns": lambda rng: columns(rng, 2, headline=False),
    "two columns under a headline": lambda rng: columns(rng, 2),
    "three columns under a headline": newspaper,
    "a headline between columns": headline_between,
    "table": table,
    "receipt": receipt,
    "letter": letter,
}
Bend = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def skewed(degrees: float) -> Bend:
    angle = np.radians(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return lambda points: np.asarray(points @ turn + 50)


def curved(points: NDArray[np.float64]) -> NDArray[np.float64]:
    return points + np.column_stack([np.zeros(len(points)), 25 * np.sin(points[:, 0] / 1000 * np.pi)])


BENDS: dict[str, Bend] = {"level": skewed(0), "skewed": skewed(5), "skewed back": skewed(-5), "curved": curved}


def outline(edges: tuple[float, float, float, float], points: int = 8) -> NDArray[np.float64]:
    left, top, right, bottom = edges
    along = np.linspace(left, right, points)
    upper, lower = (np.column_stack([along, np.full(points, y)]) for y in (top, bottom))
    return np.concatenate([upper, lower[::-1]])


def share_in_order(boxes: Boxes, bend: Bend, rng: np.random.Generator) -> tuple[int, int]:
    """Neighbours that are found as such, of all neighbours."""
    shuffled = rng.permutation(len(boxes))
    found = reading_order([bend(outline(boxes[at])) for at in shuffled])
    numbers = [int(shuffled[line.line]) for line in found]
    assert sorted(numbers) == list(range(len(boxes)))
    return sum(b == a + 1 for a, b in pairwise(numbers)), len(boxes) - 1


@pytest.mark.parametrize("bend", BENDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_neighbouring_lines_of_a_layout_are_read_in_order(layout: str, bend: str) -> None:
    right, total = 0, 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        counts = share_in_order(LAYOUTS[layout](rng), BENDS[bend], rng)
        right, total = right + counts[0], total + counts[1]
    assert right / total >= 0.99


def test_words_follow_each_other_in_their_line_on_a_skewed_page() -> None:
    bend = skewed(5)
    lines = [bend(outline(box(0, 40 * row, 600))) for row in range(5)]
    words = [bend(outline(box(150 * at, 40 * row - 2, 130, 24))) for row in range(5) for at in range(4)]
    shuffled = np.random.default_rng(0).permutation(20)
    found = reading_order(lines, [words[at] for at in shuffled])
    assert [line.line for line in found] == [0, 1, 2, 3, 4]
    assert [int(shuffled[word]) for line in found for word in line.words] == list(range(20))


def test_a_word_in_no_line_is_left_out() -> None:
    (line,) = reading_order([outline(box(0, 0, 100))], [outline(box(0, 300, 50)), outline(box(10, 0, 50))])
    assert line.words == [1]


def test_a_page_without_lines_has_none() -> None:
    assert reading_order([], [outline(box(0, 0, 9))]) == []


points = st.floats(-1000, 1000, width=32)
shapes = st.lists(st.tuples(points, points), min_size=3, max_size=8)


@given(st.lists(shapes, max_size=12), st.lists(shapes, max_size=6))
def test_every_line_is_read_once_and_a_word_at_most_once(lines: list[object], words: list[object]) -> None:
    found = reading_order(lines, words)  # type: ignore[arg-type]
    assert sorted(line.line for line in found) == list(range(len(lines)))
    read = [word for line in found for word in line.words]
    assert len(set(read)) == len(read)


@given(st.permutations(range(12)))
def test_the_order_does_not_depend_on_the_order_of_the_boxes(order: list[int]) -> None:
    boxes = receipt(np.random.default_rng(1))[:12]
    found = reading_order([outline(boxes[at]) for at in order])
    assert [order[line.line] for line in found] == list(range(12))
