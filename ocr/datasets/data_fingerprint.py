"""A short fingerprint of a dataset, for the checkpoint to name the pages that it was trained on."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import numpy as np

from ocr.datasets.page_dataset import PageDataset
from ocr.errors import DataError
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.joined_source import JoinedSource
from ocr.pipeline.source import Source

MAX_PAGES_READ = 1000
MAX_LABELS_READ = 50
QUAD_CORNERS = 4
MIN_QUADS = 0.95


def fingerprint_data(dataset: object) -> dict[str, Any]:
    """Pages, how many have no labels, the kind of their polygons, and a digest of all file names and of the words of up
    to 1,000 pages.

    Empty for a stream, which has none.

    Evenly spread pages, because the words of ten million would be read for minutes.
    """
    if not isinstance(dataset, PageDataset):
        return {}
    source, pages = dataset.source, len(dataset)
    chosen = range(0, pages, -(-pages // MAX_PAGES_READ) or 1)
    words = (source.state(index).annotation for index in chosen)
    unlabelled = {"unlabelled": len(source.unlabelled)} if isinstance(source, JoinedSource) else {}
    kind = {"polygons": kind_of_polygons(source)} if pages else {}
    return {"pages": pages, **unlabelled, **kind, "fingerprint": digest(source.names_digest, *words)}


def kind_of_polygons(source: Source) -> str:
    """quad: of the labels of up to 50 evenly spread pages, 95 in 100 have four corners; otherwise curved."""
    corners = Counter[bool]()
    for index in range(0, len(source), -(-len(source) // MAX_LABELS_READ)):
        # Pages that cannot be read are reported by the training itself.
        with suppress(DataError):
            corners.update((np.diff(source.read(index).polygons.offsets) == QUAD_CORNERS).tolist())
    return "quad" if corners[True] >= MIN_QUADS * corners.total() else "curved"
