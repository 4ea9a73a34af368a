"""A dataset of small pages that a test fills with the defects it is about."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ocr.geometry.orientation import apply_orientation, orientation_matrix, upright_size
from ocr.tools.doctor import Report, examine

INVERSE = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}


def box(x: float, y: float, width: float = 60, height: float = 20) -> list[list[float]]:
    """A quad, as an annotator would write it."""
    return [[x, y], [x + width, y], [x + width, y + height], [x, y + height]]


SIZE = (240, 400)
# Not symmetric in any way, and reaching further down than a page on its side is high.
BOXES = [box(20, 20, 120), box(30, 60, 90), box(20, 120, 150), box(60, 250, 120), box(20, 330, 70), box(25, 365, 60)]


def text_page(size: tuple[int, int] = SIZE, boxes: list[list[list[float]]] = BOXES) -> NDArray[np.uint8]:
    """White, with bars where the words are."""
    page = np.full((size[1], size[0], 3), 255, dtype=np.uint8)
    for (x0, y0), _, (x1, y1), _ in np.array(boxes, dtype=int):
        page[y0 + 3 : y1 - 3, x0:x1:6] = 0
        page[y0 + 3 : y1 - 3, x0 + 1 : x1 : 6] = 0
    return page


class SmallDataset:
    """Pages and words by split; `examine` writes them out and looks at them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pages: dict[str, dict[str, Any]] = {}
        self.noise = np.random.default_rng(0)

    def image_path(self, name: str, split: str = "train") -> Path:
        return self.root / "images" / split / name

    def json_path(self, split: str = "train") -> Path:
        return self.root / "jsons" / f"{split}.json"

    def add(self, name: str = "a.jpg", words: Any = None, split: str = "train", **page: Any) -> Path:
        """A readable page with one good word, or with these words."""
        image = page.pop("image", None)
        size = page.pop("size", (200, 120))
        orientation = page.pop("orientation", 1)
        if image is None:
            image = self.noise.integers(200, 255, (size[1], size[0], 3), dtype=np.uint8)
        path = self.image_path(name, split)
        path.parent.mkdir(parents=True, exist_ok=True)
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(apply_orientation(image, INVERSE[orientation])).save(path, exif=exif)
        if words is None:
            words = {"0001": {"points": box(20, 30), "transcription": "total"}}
        self.pages.setdefault(split, {})[name] = {**page, "words": words}
        return path

    def write(self) -> Path:
        for split, pages in self.pages.items():
            self.json_path(split).parent.mkdir(parents=True, exist_ok=True)
            self.json_path(split).write_text(json.dumps({"images": pages}))
        return self.root

    def examine(self, **options: Any) -> Report:
        return examine(self.write(), show_progress=False, workers=2, **options)


def kinds(report: Report) -> list[str]:
    """The kinds of all findings, in order."""
    return [finding.kind for finding in report.findings]


def raw_points(points: list[list[float]], orientation: int, upright: tuple[int, int]) -> list[list[float]]:
    """Upright points as an annotator of the raw page would have written them."""
    back = np.linalg.inv(orientation_matrix(orientation, *upright_size(orientation, *upright)))
    return (np.array(points) @ back[:2, :2].T + back[:2, 2]).round(6).tolist()
