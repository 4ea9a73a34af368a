"""page: what was found on one page, and on many."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.deploy.inputs import PageSource, numbered
from ocr.evaluation.boxes import Detections
from ocr.pipeline.decode import Decode

if TYPE_CHECKING:
    import pandas

CORNERS = 4
NOTEBOOK_SIDE = 1200
"""Longest side of the picture that a notebook shows."""


@dataclass(frozen=True, slots=True, eq=False)
class TextBox:
    """One piece of text on a page, in pixels."""

    polygon: NDArray[np.float32]
    """The outline, (n, 2): x and y."""
    box: NDArray[np.float32]
    """A quadrilateral (4, 2), clockwise from the top left of the text; the outline itself if it has four corners."""
    score: float
    """Mean probability inside."""


@dataclass(frozen=True, eq=False)
class TextPage:
    """The text found on one page, in pixels of the upright page, top to bottom; iterates over its `TextBox`es."""

    source: PageSource
    width: int
    height: int
    detections: Detections
    decode: Decode

    @property
    def name(self) -> str:
        """The path as it was passed, or the kind of input."""
        return self.source.name

    @property
    def number(self) -> int | None:
        """Of the page in its PDF or TIFF, from 1; None for an image."""
        return self.source.number

    @property
    def polygons(self) -> list[NDArray[np.float32]]:
        """The outline of each box, (n, 2): x and y."""
        return list(self.detections.polygons)

    @cached_property
    def boxes(self) -> NDArray[np.float32]:
        """A quadrilateral around each outline, (n, 4, 2), clockwise from the top left of the text."""
        quads = [_quadrilateral(polygon) for polygon in self.polygons]
        return np.array(quads, dtype=np.float32).reshape(-1, CORNERS, 2)

    @property
    def scores(self) -> NDArray[np.float32]:
        """Mean probability inside each box."""
        return self.detections.scores

    def __len__(self) -> int:
        return len(self.detections)

    def __bool__(self) -> bool:
        """A page without text is a page."""
        return True

    def __iter__(self) -> Iterator[TextBox]:
        for polygon, box, score in zip(self.polygons, self.boxes, self.scores, strict=True):
            yield TextBox(polygon, box, float(score))

    def __repr__(self) -> str:
        page = "" if self.number is None else f", page {self.number}"
        return f"TextPage({self.name!r}{page}, {self.width}x{self.height}, {len(self)} boxes)"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; `words` is as in the native annotation format, with scores."""
        words = {}
        for number, (polygon, score) in enumerate(zip(self.polygons, self.scores, strict=True), 1):
            words[f"{number:04d}"] = {"points": _rounded(polygon), "score": round(float(score), 4)}
        named = {"name": self.name} | ({} if self.number is None else {"page": self.number})
        return {**named, "img_w": self.width, "img_h": self.height, "words": words}

    def to_json(self, path: str | Path | None = None) -> str:
        """`to_dict` as JSON, also written to `path` if it is set."""
        return _json(self.to_dict(), path)

    def to_coco(self, path: str | Path | None = None) -> dict[str, Any]:
        """A COCO dataset of this page, also written to `path` if it is set."""
        return TextPages([self]).to_coco(path)

    def to_pandas(self) -> pandas.DataFrame:
        """A row per box: name, page, left, top, right, bottom, score, polygon."""
        return TextPages([self]).to_pandas()

    def draw(self, path: str | Path | None = None) -> NDArray[np.uint8]:
        """The page (H, W, 3) with its boxes, in full size; written to `path` if it is set. Reads the page again."""
        from ocr.evaluation.drawing import draw_page, write_picture

        pixels = self.pixels()
        # An array that was passed is read-only here, and must stay as it is.
        picture = draw_page(pixels if pixels.flags.writeable else pixels.copy(), self.detections)
        if path is not None:
            write_picture(Path(path), picture)
        return picture

    def crops(self) -> list[NDArray[np.uint8]]:
        """Each box cut out and straightened, (h, w, 3), for a recogniser. Reads the page again, in full size."""
        pixels = self.pixels()
        return [_cut(pixels, box) for box in self.boxes]

    def pixels(self) -> NDArray[np.uint8]:
        """The upright page (H, W, 3), read again in full size."""
        return self.source.read(replace(self.decode, scaled="off")).image

    def _repr_png_(self) -> bytes:
        """The picture that a notebook shows."""
        picture = self.draw()
        scale = min(1.0, NOTEBOOK_SIDE / max(picture.shape[:2]))
        small = cv2.resize(picture, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        return cv2.imencode(".png", small[:, :, ::-1])[1].tobytes()


class TextPages(list[TextPage]):
    """The pages of a PDF, a folder or a list, in their order."""

    def to_dict(self) -> dict[str, Any]:
        """The native annotation format, with scores: {"images": {name: page}}."""
        pages = {}
        for name, page in self._named():
            pages[name] = page.to_dict()
            del pages[name]["name"]
        return {"images": pages}

    def to_json(self, path: str | Path | None = None) -> str:
        """`to_dict` as JSON, also written to `path` if it is set."""
        return _json(self.to_dict(), path)

    def to_coco(self, path: str | Path | None = None) -> dict[str, Any]:
        """A COCO dataset with polygons and scores, also written to `path` if it is set."""
        images, annotations = [], list[dict[str, Any]]()
        for image_id, (name, page) in enumerate(self._named(), 1):
            images.append({"id": image_id, "file_name": name, "width": page.width, "height": page.height})
            polygons = page.detections.polygons
            for outline, area, (x, y, right, bottom), score in zip(
                page.polygons, polygons.areas, polygons.bounds.astype(float), page.scores, strict=True
            ):
                annotations.append(
                    {
                        "id": len(annotations) + 1,
                        "image_id": image_id,
                        "category_id": 1,
                        "segmentation": [[value for point in _rounded(outline) for value in point]],
                        "bbox": [round(value, 2) for value in (x, y, right - x, bottom - y)],
                        "area": round(float(area), 2),
                        "iscrowd": 0,
                        "score": round(float(score), 4),
                    }
                )
        coco = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "text"}]}
        _json(coco, path)
        return coco

    def to_pandas(self) -> pandas.DataFrame:
        """A row per box: name, page, left, top, right, bottom, score, polygon."""
        from ocr.optional import require

        columns = ["name", "page", "left", "top", "right", "bottom", "score", "polygon"]
        rows = [
            (page.name, page.number, *bounds, float(score), polygon)
            for page in self
            for bounds, score, polygon in zip(
                page.detections.polygons.bounds.tolist(), page.scores, page.polygons, strict=True
            )
        ]
        frame: pandas.DataFrame = require("pandas", "to_pandas()").DataFrame(rows, columns=columns)
        return frame

    def _named(self) -> Iterator[tuple[str, TextPage]]:
        """Each page by a name of its own: arrays and bytes share theirs."""
        seen: dict[str, int] = {}
        for page in self:
            name = numbered(page.name, page.number)
            seen[name] = seen.get(name, 0) + 1
            yield (name if seen[name] == 1 else f"{name} ({seen[name]})"), page


def _quadrilateral(polygon: NDArray[np.float32]) -> NDArray[np.float32]:
    corners = polygon if len(polygon) == CORNERS else cv2.boxPoints(cv2.minAreaRect(polygon))
    return _reading_order(np.asarray(corners, dtype=np.float32))


def _reading_order(corners: NDArray[np.float32]) -> NDArray[np.float32]:
    """Clockwise from the top left: of a line that is turned by less than 45 degrees, from where it begins.

    >>> _reading_order(np.array([[10, 4], [10, 0], [0, 0], [0, 4]], dtype=np.float32)).tolist()
    [[0.0, 0.0], [10.0, 0.0], [10.0, 4.0], [0.0, 4.0]]
    """
    x, y = corners.T
    # The signed area, with y downwards: negative is counter-clockwise.
    if np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) < 0:
        corners = corners[::-1]
    return np.roll(corners, -int(corners.sum(axis=1).argmin()), axis=0)


def _cut(pixels_hwc: NDArray[np.uint8], box: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The pixels inside a quadrilateral, as a rectangle."""
    sides = np.linalg.norm(box - np.roll(box, -1, axis=0), axis=1)
    width, height = (max(1, round(float(max(sides[side], sides[side + 2])))) for side in (0, 1))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    # OpenCV counts from the centre of the first pixel, boxes from its corner.
    matrix = cv2.getPerspectiveTransform(box - 0.5, target - 0.5)
    cut = cv2.warpPerspective(
        pixels_hwc, matrix, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(cut, dtype=np.uint8)


def _rounded(polygon: NDArray[np.float32]) -> list[list[float]]:
    points: list[list[float]] = np.round(polygon.astype(np.float64), 2).tolist()
    return points


def _json(value: object, path: str | Path | None) -> str:
    text = json.dumps(value)
    if path is not None:
        from ocr.atomic import replacing

        with replacing(path) as stream:
            stream.write(text.encode(errors="surrogateescape"))
    return text
