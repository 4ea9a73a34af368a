"""The pages that are measured: a split without its caches, and pages of all sizes from all over it."""

from __future__ import annotations

import numpy as np
from omegaconf import DictConfig

from ocr.datasets.build import build_dataset
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError, DataError

CACHES: dict[str, str | bool] = {
    "cache": "off",
    "preload_maps": False,
    "preload_images": False,
    "preload_everything": False,
    "prenormalize_images": False,
    "cache_transformed_tensors": False,
}
"""The settings of a dataset that caches nothing."""


def open_uncached(config: DictConfig, split: str) -> PageDataset:
    """The dataset of a split, with every cache off: each page is read and made again in every epoch."""
    node = (config.get("datasets") or {}).get(f"{split}_dataset")
    if node is not None:
        node.update({name: value for name, value in CACHES.items() if name in node})
    dataset = build_dataset(config, split)
    if not isinstance(dataset, PageDataset):
        raise ConfigError(
            f"datasets.{split}_dataset is a stream: its pages cannot be read one by one. Give shards with their "
            "index, as `ocr convert` writes them, or a folder: data=base",
            setting=f"datasets.{split}_dataset",
        )
    return dataset


def spread(count: int, wanted: int) -> list[int]:
    """At most `wanted` indices below `count`, evenly spread.

    >>> spread(9, 3), spread(2, 3)
    ([0, 4, 8], [0, 1])
    """
    indices: list[int] = np.unique(np.linspace(0, count - 1, min(wanted, count)).round().astype(int)).tolist()
    return indices


def choose_pages(dataset: PageDataset, wanted: int) -> list[int]:
    """Pages of all sizes, in proportion: every n-th by the bytes of its file, those that would be skipped left out."""
    ordered = sorted((file_bytes(dataset, index), index) for index in range(len(dataset)))
    chosen = [ordered[position][1] for position in spread(len(ordered), wanted)]
    return [index for index in chosen if dataset.on_bad_sample == "raise" or _is_readable(dataset, index)]


def _is_readable(dataset: PageDataset, index: int) -> bool:
    try:
        dataset.page(index)
    except DataError:
        return False
    return True


def file_bytes(dataset: PageDataset, index: int) -> int:
    """Bytes of a page's file; 0 if it is missing."""
    signature = dataset.source.signature(index)
    return signature.size if signature else 0
