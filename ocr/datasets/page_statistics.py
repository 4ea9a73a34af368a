"""What a recipe must know about the pages of a split: how high their text is, whether it is words or lines, colours.

It is measured from annotations and image headers; only a few pages are decoded, for their colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError, DataError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import Sample

RUNS, RUN_LENGTH = 8, 25
"""Pages are read in runs of neighbours: of remote shards, each run fetches one or two."""
COLOUR_PAGES = 24
"""Pages that are decoded: about 2 ms each, reduced."""
COLOUR_SIDE = 256
MAX_WORDS = 300
"""Per page, whose neighbours are looked for: a page of the forms has 150."""
LOW_PERCENTILE = 10
"""Of the text heights: what is smaller is often not text but dots, or marked by mistake."""


@dataclass(frozen=True, slots=True)
class PageStatistics:
    """The text of a split, measured on some of its pages."""

    pages: int
    """All pages of the split."""
    measured: int
    words_per_page: float
    """Median."""
    text_height: float
    """10th percentile of the text's heights, each as a share of the longest side of its page."""
    neighbour_share: float
    """Share of a page's text that is closely followed by other text: most words, few lines. Median of the pages."""
    colour_share: float
    """Share of the pages that have colours."""


def measure_pages(dataset: PageDataset) -> PageStatistics:
    """Measure up to 200 pages; a ConfigError if they have no text."""
    chosen = _spread(len(dataset))
    pages = [page for page in _measured(dataset, chosen) if len(page.polygons)]
    if not pages:
        raise ConfigError(
            f"a setting is auto, but {dataset.source.location} has no annotated text to derive it from. Set a number",
            path=dataset.source.location,
        )
    text = [_pieces(page.polygons) for page in pages]
    heights = np.concatenate([pieces.heights / max(page.size) for pieces, page in zip(text, pages, strict=True)])
    step = max(1, len(chosen) // COLOUR_PAGES)
    return PageStatistics(
        len(dataset),
        len(pages),
        float(np.median([len(page.polygons) for page in pages])),
        float(np.percentile(heights, LOW_PERCENTILE)),
        float(np.median([_have_neighbours(pieces).mean() for pieces in text])),
        _colour_share(dataset, chosen[::step]),
    )


def _spread(count: int) -> list[int]:
    """All pages, or runs of them at equal distances."""
    if count <= RUNS * RUN_LENGTH:
        return list(range(count))
    starts = np.linspace(0, count - RUN_LENGTH, RUNS).astype(int).tolist()
    return sorted({start + offset for start in starts for offset in range(RUN_LENGTH)})


def _measured(dataset: PageDataset, indices: Sequence[int]) -> Iterator[Sample]:
    """Pages without pixels, their text upright; without text that is marked ignore."""
    for index in indices:
        try:
            page = dataset.decode.measure(dataset.source.read(index))
        except DataError:
            if dataset.path.on_bad_sample == "raise":
                raise
            continue  # The dataset names it when it skips it.
        yield replace(page, polygons=page.polygons.select(~page.polygons.ignore))


class _Pieces(NamedTuple):
    """The text of a page as turned rectangles, so that a page that lies askew is measured like any other."""

    centres: NDArray[np.float64]
    """(P, 2)"""
    along: NDArray[np.float64]
    """(P, 2): the direction of each, of length 1."""
    lengths: NDArray[np.float64]
    heights: NDArray[np.float64]


def _pieces(polygons: Polygons) -> _Pieces:
    found = [cv2.minAreaRect(outline) for outline in polygons]
    sides = np.array([sides for _, sides, _ in found])
    is_first_longer = sides[:, 0] >= sides[:, 1]
    angles = np.deg2rad(np.array([angle for *_, angle in found]) + np.where(is_first_longer, 0, 90))
    heights, lengths = np.sort(sides, axis=1).T
    # Twice the angle: a line of 179 degrees runs like one of -1.
    is_long = lengths > 1.5 * heights
    text = (lengths * is_long * np.exp(2j * angles)).sum() if is_long.any() else 1 + 0j
    page_angle = np.angle(text) / 2
    # A short piece can be higher than it is long; all pieces run the same way.
    angles = np.where(is_long, angles, page_angle)
    angles = np.where(np.cos(angles - page_angle) < 0, angles + np.pi, angles)
    along = np.column_stack([np.cos(angles), np.sin(angles)])
    return _Pieces(np.array([centre for centre, *_ in found]), along, lengths, heights)


def _have_neighbours(pieces: _Pieces) -> NDArray[np.bool_]:
    """Which pieces, or which of an even choice of them, are closely followed by another on their line."""
    centres, along, lengths, heights = pieces
    half = along * lengths[:, None] / 2
    some = slice(None, None, -(-len(centres) // MAX_WORDS))
    starts, ends = centres - half, (centres + half)[some]
    gaps = starts - ends[:, None]
    direction, height = along[some, None], heights[some, None]
    ahead = (gaps * direction).sum(axis=2)
    aside = np.abs(gaps[..., 0] * direction[..., 1] - gaps[..., 1] * direction[..., 0])
    # Boxes of neighbours can overlap a little.
    is_close = (ahead > -0.2 * height) & (ahead < height) & (aside < 0.5 * height)
    # A piece that is a dot begins where it ends.
    is_itself = np.arange(len(centres)) == np.arange(len(centres))[some, None]
    return np.asarray((is_close & ~is_itself).any(axis=1))


def _colour_share(dataset: PageDataset, indices: Sequence[int]) -> float:
    decode = replace(dataset.decode, needed_side=COLOUR_SIDE)
    coloured = []
    for index in indices:
        try:
            image = decode(dataset.source.read(index)).image
        except DataError:
            continue  # Of no interest here: training raises or skips it.
        small = cv2.resize(image, (COLOUR_SIDE, COLOUR_SIDE), interpolation=cv2.INTER_AREA).astype(np.int16)
        # The traces of JPEG are below 16 levels; a thousandth of the pixels is a stamp, or a signature in blue.
        coloured.append((small.max(axis=2) - small.min(axis=2) > 16).mean() > 0.001)
    return float(np.mean(coloured)) if coloured else 0.0
