"""Pages made of words and of maps as a model would give them, in one frame: the map is the page."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ocr.evaluation.boxes import BoxesFromMap
from ocr.geometry.polygons import Polygons
from ocr.inspect.inspection import Inspection
from ocr.inspect.page import PageInput
from ocr.inspect.result import PageResult, evaluate_page
from ocr.pipeline.targets import Targets, shrink

SIDE = 256
RATIO = 0.6
BOXES = BoxesFromMap(thresh=0.3, box_thresh=0.6, shrink_ratio=RATIO)
TARGETS = Targets(shrink_ratio=RATIO)
Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""
ONE, TWO, THREE = (20, 40, 180, 60), (20, 90, 180, 110), (20, 140, 100, 160)
LEFT, RIGHT, BOTH = (20, 190, 90, 210), (100, 190, 170, 210), (20, 190, 170, 210)
WORDS = [ONE, TWO, THREE, LEFT, RIGHT]
SEEN = [(ONE, 0.9), (TWO, 0.9), (THREE, 0.5), (BOTH, 0.9)]
"""Two words that are found, one under box_thresh, and two merged."""
HOSTILE = "</script><b>a&amp;.png"


def outline(box: Box) -> NDArray[np.float32]:
    left, top, right, bottom = box
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom]], dtype=np.float32)


def make_page(
    words: Sequence[Box],
    seen: Sequence[tuple[Box, float]],
    ignore: Sequence[bool] | None = None,
    name: str = "page.png",
    ink: int = 20,
) -> PageInput:
    """A light page with striped words; `seen` are the texts that the map shows, each with its probability."""
    image = np.full((SIDE, SIDE, 3), 230, dtype=np.uint8)
    for left, top, right, bottom in words:
        image[max(top, 0) : bottom, max(left, 0) : right : 4] = ink
    prob_map = np.zeros((SIDE, SIDE), dtype=np.float32)
    for box, probability in seen:
        points = outline(box)
        width, height = points[2] - points[0]
        distance = width * height * (1 - RATIO**2) / (2 * (width + height))
        for piece in shrink(points.astype(np.int32), float(distance)):
            (x0, y0), (x1, y1) = piece.min(axis=0), piece.max(axis=0)
            prob_map[y0 : y1 + 1, x0 : x1 + 1] = probability
    truth = Polygons.pack([outline(box) for box in words], ignore)
    return PageInput(name, image, prob_map, np.eye(3), (SIDE, SIDE), truth)


def evaluated(*arguments: object, **named: object) -> PageResult:
    return evaluate_page(make_page(*arguments, **named), BOXES, TARGETS)  # type: ignore[arg-type]


def inspection(*pages: PageResult, name: str = "model.ckpt") -> Inspection:
    return Inspection(name, "pages", pages, BOXES, page_size=SIDE)
