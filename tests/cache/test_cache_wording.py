"""What a user reads about a cache: settings that cannot work, items that cannot be cached, and what happened to it."""

import errno
import gc
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_worker import fixed, items, open_pages, read_annotation, repaint, write_annotation, write_pages

from ocr import cached
from ocr.cache.forecast import forecast
from ocr.datasets import DBTransforms
from ocr.errors import GlyphFeedError
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import RandomFlip

RANDOM = DBTransforms([Letterbox(64), RandomFlip(), Normalize()])


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Pages whose samples have the same size."""
    folder = write_pages(tmp_path / "pages")
    annotation = read_annotation(folder)
    annotation[max(annotation)]["words"]["0001"]["transcription"] = "short"
    write_annotation(folder, annotation)
    return folder


class Values:
    """A dataset of one item."""

    def __init__(self, *values: Any, is_random: bool = False) -> None:
        self.values, self.is_random = values, is_random

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng().normal() if self.is_random else self.values[index]


def error_of(call: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    with pytest.raises(GlyphFeedError) as caught:
        call(*arguments, **settings)
    return str(caught.value)


def full_disk(*_: Any) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_the_wording_of_errors_and_warnings_of_caches(pages, tmp_path, monkeypatch, caplog, snapshot):
    root = tmp_path / "cache"
    texts = [
        *(
            error_of(open_pages, pages, root, **settings)
            for settings in (
                {"cache_max_bytes": "lots"},
                {"cache_max_total_bytes": -1},
                {"cache_form": "dens"},
                {"cache": "perfix"},
                {"cache": "batch", "transform": RANDOM},
                {"cache": "off", "cache_transformed_tensors": True, "transform": RANDOM},
                {"cache": "off", "preload_maps": True, "transform": RANDOM},
            )
        ),
        error_of(cached, Values(), str, folder=root),
        error_of(cached, Values(1, is_random=True), str, folder=root),
        error_of(cached, Values({"boxes": [1, {2}]}), str, folder=root),
        error_of(cached, Values(1), lambda index: (1.5,), folder=root),
        error_of(cached, Values(1), str, listed=["labels"], folder=root),
        error_of(cached(Values(1), lambda index: tmp_path / "gone.npy", folder=root).__getitem__, 0),
    ]

    dataset = open_pages(pages, root, cache_form="raw", cache_max_bytes="300kB")
    texts.append(forecast(dataset.cache))
    items(dataset)
    for transform in (fixed(size=96), fixed(size=64)):
        items(open_pages(pages, root, transform, cache_form="raw", cache_max_total_bytes="1MB"))
        gc.collect()  # A cache that is open is not removed.
    (folder,) = root.glob("*/")
    texts.append(forecast(open_pages(pages, root, cache_form="raw").cache))
    (folder / "about.json").write_text("{}")
    dataset = open_pages(pages, root, cache_form="raw")
    items(dataset)
    os.truncate(next(root.glob("*/data")), 0)
    items(dataset)
    repaint(pages / "images" / "01.bmp")
    monkeypatch.setattr(os, "pwrite", full_disk)
    items(open_pages(pages, root, cache_form="raw"))

    texts += [record.getMessage() for record in caplog.records]
    named = re.sub(r"\b[0-9a-f]{16}-[0-9a-f]{8}-\d+\b", "NAME", "\n".join(texts))
    # What files take of a disk depends on the file system.
    snapshot("cache_errors", re.sub(r"(full at |in it, |NAME: 1, )\d+ kB", r"\1SIZE", named))
