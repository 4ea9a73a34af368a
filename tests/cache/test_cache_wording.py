"""What a user reads about a cache: settings that cannot work, items that cannot be cached, and what happened to it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cached_pages import fixed, items, open_pages, write_pages

from ocr import cached
from ocr.cache.store import close_store
from ocr.datasets import DBTransforms
from ocr.errors import GlyphFeedError
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage
from ocr.pipeline.suffix import RandomFlip

RANDOM = DBTransforms([Letterbox(64), RandomFlip(), Normalize()])


class Values:
    """A dataset of one item."""

    def __init__(self, *values: Any, is_random: bool = False) -> None:
        self.values, self.is_random = values, is_random

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> Any:
        return np.random.default_rng().normal() if self.is_random else self.values[index]


@dataclass(frozen=True)
class Brighten(FixedStage):
    """Depends on a file, which its key cannot know."""

    path: str

    def __call__(self, sample: Sample) -> Sample:
        return replace(sample, image=sample.image + int(Path(self.path).read_text()))


def error_of(call: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    with pytest.raises(GlyphFeedError) as caught:
        call(*arguments, **settings)
    return str(caught.value)


def test_the_wording_of_errors_and_warnings_of_caches(tmp_path, caplog, snapshot):
    pages, root, gain = write_pages(tmp_path / "pages"), tmp_path / "cache", tmp_path / "gain"
    texts = [
        error_of(open_pages, pages, root, cache_max_bytes="lots"),
        error_of(open_pages, pages, root, cache="perfix"),
        error_of(open_pages, pages, root, cache="off", preload_maps=True, transform=RANDOM),
        error_of(cached, Values(), str, folder=root),
        error_of(cached, Values(1, is_random=True), str, folder=root),
        error_of(cached, Values({"boxes": [1, {2}]}), str, folder=root),
        error_of(cached, Values(1), lambda index: (1.5,), folder=root),
        error_of(cached, Values(1), str, listed=["labels"], folder=root),
        error_of(cached(Values(1), lambda index: tmp_path / "gone.npy", folder=root).__getitem__, 0),
    ]
    for text in ("0", "1"):
        gain.write_text(text)
        dataset = open_pages(pages, root, fixed(Brighten(str(gain))))
        items(dataset)
        dataset.flush()
    close_store(root)
    (root / "store" / "data.mdb").write_bytes(b"garbage" * 1000)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "store").touch()
    for folder, limit in ((root, "auto"), (tmp_path / "small", "20kB"), (tmp_path / "taken", "auto")):
        dataset = open_pages(pages, folder, cache_max_bytes=limit)
        items(dataset)
        dataset.flush()
        close_store(folder)
    texts += [record.getMessage() for record in caplog.records]
    snapshot("cache_errors", "\n".join(texts))
