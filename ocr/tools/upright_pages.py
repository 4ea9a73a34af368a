"""Annotations in the frame that labelling tools draw in: the upright page, with its size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ocr.errors import AnnotationError
from ocr.formats.annotation import Annotations, Page
from ocr.formats.validate import to_polygons
from ocr.geometry.orientation import frame_by_geometry, orientation_matrix, upright_size
from ocr.geometry.polygons import move_points
from ocr.pipeline.decode import Decode, read_header


def to_upright(
    annotations: Annotations, image_path: Path, annotation_frame: str, names: Iterable[str]
) -> tuple[Annotations, int]:
    """The annotations with `names` of the pages moved into the upright frame; how many had to be moved.

    Pages whose image is not there are left as they are.
    """
    decode = Decode(annotation_frame=annotation_frame)
    pages = dict(annotations.pages)
    moved = 0
    for name in names:
        file = image_path / name
        if file.is_file():
            header = read_header(file.read_bytes(), str(file), decode.max_pixels)
            page = _upright_page(pages[name], header.orientation, header.raw_size, decode.annotation_frame, name)
            moved += page.words != pages[name].words
            pages[name] = page
    return replace(annotations, pages=pages), moved


def _upright_page(page: Page, orientation: int, raw_size: tuple[int, int], frame: str, name: str) -> Page:
    size = upright_size(orientation, *raw_size)
    if orientation == 1:
        # An annotation that states another size was made on a resized copy, and percents of that are right.
        return replace(page, size=page.size or size)
    try:
        polygons = to_polygons(page, name)
    except AnnotationError as error:
        raise AnnotationError(
            f"{error}: an EXIF page cannot be turned upright with such a word",
            setting=error.setting,
            value=error.value,
            path=name,
        ) from error
    if frame == "auto":
        frame = frame_by_geometry(polygons.vertices, orientation, raw_size, page.size) or "upright"
    if frame == "upright":
        return replace(page, size=size)
    matrix = orientation_matrix(orientation, *raw_size)
    words = [
        replace(word, points=np.round(move_points(points, matrix).astype(np.float64), 4).tolist())
        for word, points in zip(page.words, polygons, strict=True)
    ]
    return Page(tuple(words), size)
