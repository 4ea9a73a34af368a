"""Ready shards: batches are views of the shard, arrays are proven, and what is fetched fits into its budget."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sameness import assert_same
from test_webdataset import DEVICE, FIXED, RANDOM, folder, without_paths

from ocr.datasets import OCRWebDataset
from ocr.datasets.shard_dataset import _tell_unknown_stages
from ocr.errors import ConfigError, DataError
from ocr.loader import Loader
from ocr.shards.files import ShardFiles
from ocr.shards.index import Shard
from ocr.shards.storage import Storage
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings


def write(data: Path, out: Path, **settings: Any) -> str:
    """Ready shards of the validation pages (6)."""
    assert convert({"val": folder(data, "val", DEVICE)}, str(out), ConvertSettings(**settings)) == 0
    return str(out / "val-*.tar")


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("workers", [0, 2])
def test_ready_batches_give_the_batches_of_the_folder(synthetic, tmp_path, batch_size, workers):
    place = write(synthetic, tmp_path, ready_batches=3)
    expected = list(Loader(folder(synthetic, "val", DEVICE), batch_size, 0))
    loader = Loader(OCRWebDataset(place, DEVICE), batch_size, workers)
    for _ in range(2):
        assert_same(without_paths(list(loader)), without_paths(expected))
    assert loader.dataset.ledger.totals()["maps_stored"] == 6


def test_a_ready_batch_is_a_view_that_may_be_written_to(synthetic, tmp_path):
    dataset = OCRWebDataset(write(synthetic, tmp_path, ready_batches=3), DEVICE)
    kept = dataset.peek([0, 1, 2])
    assert kept is not None
    before = kept[0]["images"].clone()
    kept[0]["images"].zero_()
    (again, _) = dataset.peek([0, 1, 2])
    assert_same(again["images"], before)
    assert dataset.peek([1, 2]) is not None
    assert dataset.peek([2, 3]) is None
    assert dataset.peek([0, 2]) is None


def test_an_index_may_list_single_samples_after_batches(synthetic, tmp_path):
    place = write(synthetic, tmp_path / "all", ready_batches=3)
    write(synthetic, tmp_path / "single", ready=True, form="raw")
    (tmp_path / "single/val-000000.tar").rename(tmp_path / "all/val-000001.tar")
    index, single = (json.loads((tmp_path / name / "val-index.json").read_text()) for name in ("all", "single"))
    index["shards"] += [shard | {"name": "val-000001.tar"} for shard in single["shards"]]
    index["samples"] += [[f"s{key}", f"s{name}", 1, *more] for key, name, _, *more in single["samples"]]
    del index["digest"]  # As in an index of another program.
    (tmp_path / "all/val-index.json").write_text(json.dumps(index))
    dataset = OCRWebDataset(place, DEVICE)
    assert [dataset.peek([at]) is not None for at in (0, 5, 6, 11)] == [True, True, False, False]
    first, second, *others = Loader(dataset, 6, 0)
    assert not others
    for name in ("images", "prob_maps", "thresh_maps"):
        assert_same(first[name], second[name])


@pytest.mark.parametrize("transform", [FIXED, RANDOM])
def test_ready_batches_are_copied_where_something_is_done_to_them(synthetic, tmp_path, transform):
    dataset = OCRWebDataset(write(synthetic, tmp_path, ready_batches=3), transform)
    assert dataset.peek([0, 1, 2]) is None
    expected = list(Loader(folder(synthetic, "val", transform), 4, 0))
    assert_same(without_paths(list(Loader(dataset, 4, 2))), without_paths(expected))


@pytest.mark.parametrize("options", [{"ready": True}, {"ready": True, "form": "raw"}, {"ready_batches": 4}])
def test_ready_shards_that_lost_their_index_give_every_page_under_its_name(synthetic, tmp_path, options):
    place = write(synthetic, tmp_path, **options)
    (tmp_path / "val-index.json").unlink()
    expected = list(Loader(folder(synthetic, "val", DEVICE), 2, 0))
    assert_same(without_paths(list(Loader(OCRWebDataset(place, DEVICE), 2, 0))), without_paths(expected))


def test_ready_shards_that_lost_their_index_tell_once_that_their_stages_are_unknown(synthetic, tmp_path, caplog):
    place = write(synthetic, tmp_path, ready=True)
    _tell_unknown_stages.cache_clear()
    OCRWebDataset(place, DEVICE)
    assert not caplog.records
    (tmp_path / "val-index.json").unlink()
    OCRWebDataset(place, DEVICE), OCRWebDataset(place, DEVICE)
    (told,) = caplog.records
    assert "Convert again, or restore the index" in told.message


def test_a_batch_whose_pages_cannot_be_counted_is_named(synthetic, tmp_path):
    place = write(synthetic, tmp_path, ready_batches=3)
    (tmp_path / "val-index.json").unlink()
    shard = tmp_path / "val-000000.tar"
    shard.write_bytes(shard.read_bytes().replace(b'[{"', b'[["', 1))
    with pytest.raises(DataError, match=r"val-000000\.tar: 00000000: not the JSON of a batch"):
        OCRWebDataset(place, DEVICE)


@pytest.mark.parametrize("options", [{"ready": True}, {"ready": True, "form": "raw"}, {"ready_batches": 3}])
def test_a_flipped_bit_in_a_ready_array_is_told_or_skipped(synthetic, tmp_path, options):
    place = write(synthetic, tmp_path, **options)
    stored = OCRWebDataset(place, DEVICE).source.index.samples[1]
    start, size = next(at for name, at in stored.members.items() if name.startswith("image"))
    file = tmp_path / "val-000000.tar"
    data = bytearray(file.read_bytes())
    # In the middle of its own page, also where it is one of three.
    data[start + size // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"val-000000\.tar: .* at offset \d+: not the arrays that were stored"):
        list(Loader(OCRWebDataset(place, DEVICE), 3))
    dataset = OCRWebDataset(place, DEVICE, on_bad_sample="skip")
    assert sum(len(batch["images"]) for batch in Loader(dataset, 3)) == 5
    assert dataset.ledger.files("skipped") == [stored.filename]


def test_shards_beyond_what_is_mapped_are_mapped_again(tmp_path, monkeypatch):
    monkeypatch.setattr("ocr.shards.files.MAX_MAPPED", 2)
    urls = [str(tmp_path / f"{number}.tar") for number in range(5)]
    for number, url in enumerate(urls):
        Path(url).write_bytes(bytes([number]) * 100)
    files = ShardFiles(urls, [Shard(url, 100, "", 1) for url in urls], Storage(tmp_path))
    for _ in range(2):
        for number in range(5):
            assert np.all(files.read(number) == number)
            assert len(files._mapped) <= 2
    with pytest.raises(ValueError, match="read-only"):
        files.read(0)[0] = 1


def test_what_is_shuffled_together_fits_into_the_budget_of_shards(synthetic, tmp_path, monkeypatch):
    pytest.importorskip("fsspec")
    import fsspec

    train = {"train": folder(synthetic, "train", DEVICE)}
    assert convert(train, str(tmp_path / "out"), ConvertSettings(samples_per_shard=2)) == 0
    memory = fsspec.filesystem("memory")
    for file in (tmp_path / "out").iterdir():
        memory.pipe(f"/budget/{file.name}", file.read_bytes())
    largest = max(file.stat().st_size for file in (tmp_path / "out").glob("*.tar"))
    place = "memory://budget/train-*.tar"
    for fit, most in ((1, 1), (2, 1), (3, 3), (5, 5)):
        kept = {"shard_folder": tmp_path / f"kept-{fit}", "shard_max_bytes": fit * largest}
        dataset = OCRWebDataset(place, RANDOM, **kept)
        assert dataset.shuffle_buffer == most
        seen = [name for batch in Loader(dataset, 3, 2, shuffle=True) for name in batch["image_filename"]]
        assert len(seen) == len(set(seen)) == 8
        if most > 1:
            with pytest.raises(ConfigError, match=f"Lower shuffle_buffer to {most}"):
                OCRWebDataset(place, RANDOM, shuffle_buffer=most + 1, **kept)
