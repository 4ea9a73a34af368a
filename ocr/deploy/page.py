"""TextPage: what was found on one page, and its drawing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.deploy.inputs import PageSource
from ocr.evaluation.boxes import Detections
from ocr.evaluation.drawing import draw_page, write_picture
from ocr.pipeline.decode import Decode


@dataclass(frozen=True, slots=True, eq=False)
class TextPage:
    """The text found on one page, in pixels of the upright page, top to bottom."""

    source: PageSource
    width: int
    height: int
    detections: Detections
    decode: Decode

    @property
    def name(self) -> str:
        """The path as it was given, or the kind of input."""
        return self.source.name

    @property
    def number(self) -> int | None:
        """Of the page in its PDF or TIFF, from 1; None for an image."""
        return self.source.number

    @property
    def polygons(self) -> list[NDArray[np.float32]]:
        """The outline of each box, (n, 2): x and y."""
        return list(self.detections.polygons)

    @property
    def scores(self) -> NDArray[np.float32]:
        """Mean probability inside each box."""
        return self.detections.scores

    def __len__(self) -> int:
        return len(self.detections)

    def __repr__(self) -> str:
        page = "" if self.number is None else f", page {self.number}"
        return f"TextPage({self.name!r}{page}, {self.width}x{self.height}, {len(self)} boxes)"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `words` is that of the native annotation format, with scores."""
        words = {}
        for number, (polygon, score) in enumerate(zip(self.polygons, self.scores, strict=True), 1):
            points = np.round(polygon.astype(np.float64), 2).tolist()
            words[f"{number:04d}"] = {"points": points, "score": round(float(score), 4)}
        named = {"name": self.name} | ({} if self.number is None else {"page": self.number})
        return {**named, "img_w": self.width, "img_h": self.height, "words": words}

    def draw(self, path: str | Path | None = None) -> NDArray[np.uint8]:
        """The page (H, W, 3) with its boxes, read once more in full size; written to `path` if it is given."""
        pixels = self.source.read(replace(self.decode, scaled="off")).image
        # An array that was given is read-only here, and must stay as it is.
        picture = draw_page(pixels if pixels.flags.writeable else pixels.copy(), self.detections)
        if path is not None:
            write_picture(Path(path), picture)
        return picture
