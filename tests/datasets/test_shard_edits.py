"""Shards that are edited: whoever reads them next, from the cache or while they are open, gets what is there now."""

import io
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sameness import assert_same
from test_webdataset import DEVICE, FIXED, folder, write_shards
from test_webstream import Files, serve

from ocr.datasets import OCRWebDataset
from ocr.errors import DataError
from ocr.loader import Loader
from ocr.shards.open import open_shards
from ocr.shards.storage import Storage


def replace_a_page(tar: Path, in_place: bool = True) -> None:
    """Another page in as many bytes instead of the first one."""
    (stored, *_) = open_shards([str(tar)], Storage(tar.parent)).index.samples
    start, size = stored.members["jpg"]
    data = bytearray(tar.read_bytes())
    with Image.open(io.BytesIO(data[start : start + size])) as page:
        other = Image.fromarray(255 - np.asarray(page))
    encoded = io.BytesIO()
    other.save(encoded, "jpeg", quality=10)
    data[start : start + size] = encoded.getvalue().ljust(size, b"\0")
    new = tar if in_place else tar.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, tar)


@pytest.fixture
def shards(synthetic, tmp_path) -> Path:
    """Two shards of three pages without an index."""
    out = write_shards(folder(synthetic, "val"), tmp_path / "shards", "val")
    (out / "val-index.json").unlink()
    return out


def batches(dataset: Any) -> list[Any]:
    return [{**batch, "image_path": 0, "image_filename": 0} for batch in Loader(dataset, 3, 2)]


@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by another file"])
def test_a_page_of_a_shard_without_index_replaced_by_one_of_the_same_size_is_made_again(shards, tmp_path, in_place):
    kept = {"cache": "auto", "cache_folder": tmp_path / "cache"}
    batches(OCRWebDataset(f"{shards}/val-*.tar", FIXED, **kept))
    replace_a_page(shards / "val-000000.tar", in_place)
    dataset = OCRWebDataset(f"{shards}/val-*.tar", FIXED, **kept)
    assert_same(batches(dataset), batches(OCRWebDataset(f"{shards}/val-*.tar", FIXED)))
    totals = dataset.ledger.totals()
    assert (totals["cache_hits"], totals["cache_invalid"]) == (5, 1)


@pytest.mark.parametrize("cache", ["off", "auto"])
@pytest.mark.parametrize("in_place", [True, False], ids=["in place", "by another file"])
def test_a_local_shard_edited_while_it_is_open_is_read_anew_in_the_next_epoch(shards, tmp_path, in_place, cache):
    dataset = OCRWebDataset(f"{shards}/val-*.tar", DEVICE, cache=cache, cache_folder=tmp_path / "cache")
    before = batches(dataset)
    replace_a_page(shards / "val-000000.tar", in_place)
    after = batches(dataset)
    assert_same(after, batches(OCRWebDataset(f"{shards}/val-*.tar", DEVICE)))
    assert not before[0]["images"].equal(after[0]["images"])


def test_shards_converted_again_while_they_are_open_are_read_by_their_new_index(synthetic, tmp_path):
    data = Path(shutil.copytree(synthetic, tmp_path / "data"))
    out = write_shards(folder(data, "val", DEVICE), tmp_path / "shards", "val", ready=True)
    dataset = OCRWebDataset(f"{out}/val-*.tar", DEVICE)
    batches(dataset)
    page = data / "images" / "val" / dataset.source.names[0]
    with Image.open(page) as image:
        Image.fromarray(255 - np.asarray(image)).save(page)
    write_shards(folder(data, "val", DEVICE), out, "val", ready=True)
    assert_same(batches(dataset)[0]["images"], batches(folder(data, "val", DEVICE))[0]["images"])


def test_shards_of_other_pages_are_not_taken_for_those_that_were_opened(synthetic, shards):
    dataset = OCRWebDataset([shards / "val-000000.tar", shards / "val-000001.tar"], FIXED)
    write_shards(folder(synthetic, "train"), shards, "val", per_shard=4)
    with pytest.raises(DataError, match=r"replaced by those of other pages.*Start again"):
        batches(dataset)


class Mute(Files):
    """Tells neither ETag nor time."""

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Last-Modified":
            super().send_header(keyword, value)


@pytest.mark.parametrize("server", [Files, Mute], ids=["tells a time", "tells nothing"])
def test_a_remote_shard_without_index_that_changed_is_fetched_again(shards, tmp_path, monkeypatch, server):
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for tar in shards.glob("*.tar"):
        os.utime(tar, (10**9, 10**9))
    with serve(shards, server) as url:
        stream = OCRWebDataset(f"{url}/val-{{000000..000001}}.tar", DEVICE, shard_folder=tmp_path / "kept")
        before = batches(stream)
        Files.asked.clear()
        again = batches(stream)
        assert_same(before, again)
        assert len(Files.asked) == (0 if server is Files else 2)
        replace_a_page(shards / "val-000001.tar")
        after = batches(stream)
    local = batches(OCRWebDataset(f"{shards}/val-*.tar", DEVICE))
    assert_same([batch["images"] for batch in after], [batch["images"] for batch in local])
    assert not before[1]["images"].equal(after[1]["images"])
