"""Shards without an index: scanned when they are opened, remote ones fetched for it; then read like all others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rejection import rejects
from sameness import assert_same
from splits import DEVICE, FIXED, RANDOM, Files, batches, converted, folder, names, serve, write_shards

from ocr.datasets import OCRWebDataset
from ocr.errors import DataError, ImageError
from ocr.loader import Loader
from ocr.pipeline import page_index
from ocr.shards import storage

pytest.importorskip("fsspec")
pytest.importorskip("aiohttp")
TRAIN, VAL = "train-{000000..000003}.tar", "val-{000000..000001}.tar"


@pytest.fixture
def url(synthetic, tmp_path, monkeypatch) -> Iterator[str]:
    """A server of the training pages (8, two a shard) and of the validation pages (6, three a shard)."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("GLYPHFEED_CACHE", str(tmp_path / "default"))
    monkeypatch.setattr(storage, "FIRST_PAUSE_SECONDS", 0.01)
    write_shards(folder(synthetic, "train"), tmp_path / "out", "train", per_shard=2)
    write_shards(folder(synthetic, "val"), tmp_path / "out", "val")
    for split in ("train", "val"):
        (tmp_path / "out" / f"{split}-index.json").unlink()
    Files.asked.clear()
    with serve(tmp_path / "out") as address:
        yield address


def fetched() -> list[str]:
    """The shards that the server was asked for."""
    return sorted(name for name in Files.asked if name.endswith(".tar"))


@pytest.mark.parametrize(("transform", "workers"), [(FIXED, 0), (DEVICE, 2), (RANDOM, 2)])
def test_remote_shards_give_the_batches_of_the_folder_and_are_fetched_once(
    synthetic, tmp_path, url, transform, workers
):
    dataset = OCRWebDataset(f"{url}/{TRAIN}", transform, cache_folder=tmp_path / "cache")
    assert len(dataset) == 8
    for _ in range(2):
        assert_same(batches(dataset, 3, workers), batches(folder(synthetic, "train", transform), 3))
        dataset.set_epoch(0)
    assert fetched() == [f"train-00000{number}.tar" for number in range(4)]


def test_remote_ready_shards_give_the_batches_of_the_folder(synthetic, tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    converted(folder(synthetic, "val", DEVICE), tmp_path / "out", ready=True, samples_per_shard=3)
    (tmp_path / "out" / "val-index.json").unlink()
    with serve(tmp_path / "out") as url:
        dataset = OCRWebDataset(f"{url}/{VAL}", DEVICE, cache_folder=tmp_path)
        assert_same(batches(dataset, 4, 2), batches(folder(synthetic, "val", DEVICE)))


def test_shuffled_epochs_of_remote_shards_differ_lose_nothing_and_resume(tmp_path, url):
    def loader(workers: int) -> Loader:
        dataset = OCRWebDataset(f"{url}/{TRAIN}", RANDOM, shuffle_buffer=3, shard_folder=tmp_path / "kept")
        return Loader(dataset, 3, workers, shuffle=True, seed=5)

    first, second = list(passed := loader(2)), list(passed)
    assert names(first) != names(second)
    assert sorted(names(first)) == sorted(names(second))
    assert len(set(names(first))) == 8
    begun, resumed = loader(2), loader(1)
    next(iter(begun))
    resumed.load_state_dict(begun.state_dict())
    assert_same(list(resumed), first[1:])


@pytest.mark.parametrize("is_remote", [True, False], ids=["remote", "local"])
@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "damaged"])
def test_a_shard_that_cannot_be_scanned_is_named_or_left_out_and_counted(tmp_path, url, is_remote, is_missing):
    file, place = tmp_path / "out" / "train-000001.tar", url if is_remote else tmp_path / "out"
    data = file.read_bytes()
    if is_missing:
        file.unlink()
    else:
        file.write_bytes(data[: len(data) // 2])
    kept = {"shard_folder": tmp_path / "kept", "tries": 1}
    with rejects(DataError, value=None if is_missing else 0, path=f"{place}/train-000001.tar"):
        OCRWebDataset(f"{place}/{TRAIN}", FIXED, **kept)
    dataset = OCRWebDataset(f"{place}/{TRAIN}", FIXED, on_bad_sample="skip", **kept)
    for _ in range(2):
        assert len(names(Loader(dataset, 2, 2))) == 6
        assert dataset.ledger.files("skipped") == [f"{place}/train-000001.tar"]
        file.write_bytes(data)  # Its pages count from the next run on.


def test_a_bad_page_of_a_remote_shard_is_named_or_skipped_and_counted(tmp_path, url):
    file = tmp_path / "out" / "val-000000.tar"
    data = bytearray(file.read_bytes())
    data[512:1024] = bytes(512)
    file.write_bytes(data)
    kept = {"shard_folder": tmp_path / "kept"}
    with rejects(ImageError, value=bytes(8)) as caught:
        list(Loader(OCRWebDataset(f"{url}/{VAL}", FIXED, **kept), 6))
    assert str(caught.value.path).startswith(f"{url}/val-000000.tar/")
    dataset = OCRWebDataset(f"{url}/{VAL}", FIXED, on_bad_sample="skip", **kept)
    assert len(names(Loader(dataset, 6))) == 5
    assert dataset.ledger.totals()["skipped"] == 1


@pytest.mark.parametrize("preload", ["preload_images", "preload_everything", "cache_transformed_tensors"])
def test_preloading_remote_shards_fills_the_cache_in_the_folder_that_was_set(tmp_path, url, preload):
    dataset = OCRWebDataset(f"{url}/{VAL}", DEVICE, cache_folder=tmp_path / "cache", **{preload: True})
    assert dataset.cache is not None
    list(Loader(dataset, 3))
    assert dataset.ledger.totals()["cache_hits"] == 6
    assert {"shards"} < {path.name for path in (tmp_path / "cache").iterdir()}
    assert not (tmp_path / "default").exists()


def stored_rows(monkeypatch: Any) -> None:
    """Rows are kept however few they are, and however new the shards."""
    monkeypatch.setattr(page_index, "MIN_ROWS", 1)
    monkeypatch.setattr(page_index, "JUST_NOW_NS", -(10**12))


def test_what_was_scanned_is_kept_until_a_remote_shard_changes(synthetic, tmp_path, url, monkeypatch):
    stored_rows(monkeypatch)
    kept = {"cache_folder": tmp_path / "cache"}
    expected = batches(OCRWebDataset(f"{url}/{VAL}", DEVICE, **kept))
    for copy in (tmp_path / "cache" / "shards").iterdir():
        copy.unlink()
    Files.asked.clear()
    dataset = OCRWebDataset(f"{url}/{VAL}", DEVICE, **kept)
    assert fetched() == []
    assert_same(batches(dataset), expected)
    write_shards(folder(synthetic, "train"), tmp_path / "out", "val")
    (tmp_path / "out" / "val-index.json").unlink()
    changed = OCRWebDataset(f"{url}/{VAL}", DEVICE, **kept)
    assert list(changed.source.names) == list(folder(synthetic, "train").source.names)[:6]


def test_what_was_scanned_is_kept_until_a_local_shard_changes(synthetic, tmp_path, url, monkeypatch, caplog):
    stored_rows(monkeypatch)
    caplog.set_level("INFO", "ocr.shards")
    place, kept = f"{tmp_path}/out/val-*.tar", {"cache_folder": tmp_path / "cache"}
    expected = batches(OCRWebDataset(place, DEVICE, **kept))
    said = len(caplog.records)
    assert said
    assert_same(batches(OCRWebDataset(place, DEVICE, **kept)), expected)
    assert len(caplog.records) == said
    write_shards(folder(synthetic, "train"), tmp_path / "out", "val")
    (tmp_path / "out" / "val-index.json").unlink()
    assert (
        list(OCRWebDataset(place, DEVICE, **kept).source.names)[:6] == list(folder(synthetic, "train").source.names)[:6]
    )


def test_an_index_that_appears_is_used(synthetic, tmp_path, url, monkeypatch):
    stored_rows(monkeypatch)
    place, kept = f"{tmp_path}/out/val-*.tar", {"cache_folder": tmp_path / "cache"}
    assert not OCRWebDataset(place, DEVICE, **kept).source.index.samples[0].content
    write_shards(folder(synthetic, "val"), tmp_path / "out", "val")
    assert OCRWebDataset(place, DEVICE, **kept).source.index.samples[0].content


def test_a_folder_and_its_shards_without_index_share_what_is_cached(synthetic, tmp_path, url):
    kept: dict[str, Any] = {"cache": "auto", "cache_folder": tmp_path / "cache"}
    list(Loader(folder(synthetic, "val", **kept)))
    for place in (f"{url}/{VAL}", f"{Path(tmp_path)}/out/{VAL}"):
        dataset = OCRWebDataset(place, FIXED, **kept)
        list(Loader(dataset))
        assert dataset.ledger.totals()["cache_hits"] == len(dataset)
