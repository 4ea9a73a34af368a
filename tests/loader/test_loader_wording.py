"""What a user reads when a loader cannot make batches of what it is given."""

from typing import Any

import pytest
from test_loader import open_split

from ocr.datasets import DBTransforms
from ocr.errors import GlyphFeedError
from ocr.loader import Loader
from ocr.loader.order import EpochBatches


def test_the_wording_of_errors_of_loaders(synthetic, tmp_path, snapshot):
    pages = open_split(synthetic, "val")
    unboxed = open_split(synthetic, "val", DBTransforms([]))
    empty: list[Any] = []
    texts = []

    def add(dataset: Any, batch_size: int = 2, **settings: Any) -> None:
        with pytest.raises(GlyphFeedError) as caught:
            list(Loader(dataset, batch_size, 0, **settings))
        texts.append(str(caught.value).replace(str(synthetic), "DIR"))

    add(pages, engine="fibres")
    add(pages, order="block")
    add(pages, batches_ahead=0)
    add(pages, batch_size=0)
    add(pages, rank=2, world_size=2)
    add(pages, sampler=[1])
    add(pages, pin_memory=True)
    add(pages, batch_pixels=1000)
    add(pages, batch_size=7, drop_last=True)
    add(pages, world_size=9)
    add(empty)
    add(item for item in "ab")
    add([(1, 2)])
    add(unboxed)
    with pytest.raises(GlyphFeedError) as caught:
        Loader(pages, 4).load_state_dict({"epoch": 1, "batches": 1, "batch_size": 2, "world_size": 1})
    texts.append(str(caught.value))
    with pytest.raises(GlyphFeedError) as caught:
        EpochBatches(4, 2, shuffle=False, drop_last=False).set_epoch(-1)
    texts.append(str(caught.value))
    snapshot("loader_errors", "\n".join(texts))
