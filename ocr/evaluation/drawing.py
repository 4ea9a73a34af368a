"""Drawing: detections and annotation on their page."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.atomic import replacing
from ocr.errors import OutputError
from ocr.evaluation.boxes import Detections
from ocr.geometry.polygons import Polygons

FOUND, TRUTH, IGNORED = (220, 50, 40), (40, 180, 60), (150, 150, 150)


def draw_page(page_hwc: NDArray[np.uint8], found: Detections, truth: Polygons | None = None) -> NDArray[np.uint8]:
    """The page with its annotation, if there is one, under its detections."""
    picture = np.ascontiguousarray(page_hwc)
    thickness = max(1, round(max(picture.shape) / 800))
    if truth is not None:
        for polygon, ignored in zip(truth, truth.ignore, strict=True):
            _outline(picture, polygon, IGNORED if ignored else TRUTH, thickness)
    for polygon in found.polygons:
        _outline(picture, polygon, FOUND, thickness)
    return picture


def write_picture(path: Path, picture_hwc: NDArray[np.uint8]) -> None:
    """Write an RGB picture in the format of its name."""
    try:
        fits, encoded = cv2.imencode(path.suffix, picture_hwc[:, :, ::-1])
    except cv2.error as error:
        problem = f"cannot write {path}, suffix {path.suffix!r}. Use .jpg or .png"
        raise OutputError(problem, value=path.suffix, path=path) from error
    if not fits:  # A JPEG has at most 65,500 pixels on a side.
        height, width = picture_hwc.shape[:2]
        raise OutputError(
            f"cannot write {path}: {width}x{height} pixels are too many for {path.suffix}. Write .png, or draw nothing "
            "(draw=false)",
            value=(width, height),
            path=path,
        )
    with replacing(path) as stream:
        stream.write(encoded.tobytes())


def _outline(
    picture: NDArray[np.uint8], polygon: NDArray[np.float32], colour: tuple[int, int, int], thickness: int
) -> None:
    cv2.polylines(picture, [np.round(polygon).astype(np.int32)], True, colour, thickness, cv2.LINE_AA)
