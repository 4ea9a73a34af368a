"""A short fingerprint of a dataset, for the checkpoint to name the pages that it was trained on."""

from __future__ import annotations

from typing import Any

from ocr.datasets.page_dataset import PageDataset
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.joined_source import JoinedSource

MAX_PAGES_READ = 1000


def fingerprint_data(dataset: object) -> dict[str, Any]:
    """Pages, how many have no labels, and a digest of all file names and of the words of up to 1,000 pages.

    Empty for a stream, which has none.

    Evenly spread pages, because the words of ten million would be read for minutes.
    """
    if not isinstance(dataset, PageDataset):
        return {}
    source, pages = dataset.source, len(dataset)
    chosen = range(0, pages, -(-pages // MAX_PAGES_READ) or 1)
    words = (source.state(index).annotation for index in chosen)
    unlabelled = {"unlabelled": len(source.unlabelled)} if isinstance(source, JoinedSource) else {}
    return {"pages": pages, **unlabelled, "fingerprint": digest(source.names_digest, *words)}
