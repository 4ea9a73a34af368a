"""OCRWebDataset: shards give the samples of their folder, wherever they are, however they are read, and when edited."""

import io
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from PIL import Image
from rejection import rejects
from sameness import assert_same
from splits import (
    DEVICE,
    FIXED,
    RANDOM,
    Files,
    batches,
    converted,
    folder,
    names,
    serve,
    write_shards,
    write_tar,
)

from ocr.dali.graph import ocr_pipeline
from ocr.datasets import DALIDataLoader, OCRWebDataset
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import AnnotationError, ConfigError, DataError, ImageError
from ocr.loader import Loader
from ocr.shards.source import open_shards
from ocr.shards.storage import Storage

SKIP = {"on_bad_sample": "skip"}
FORMS: dict[str, dict[str, Any]] = {"raw": {}, "ready": {"ready": True}}


@pytest.mark.parametrize(
    ("split", "transform", "cache"), [("val", FIXED, "auto"), ("val", DEVICE, "off"), ("train", RANDOM, "auto")]
)
def test_raw_shards_give_the_batches_of_their_folder_bit_for_bit(synthetic, tmp_path, split, transform, cache):
    shards = write_shards(folder(synthetic, split), tmp_path / "shards", split)
    pattern = f"{shards}/{split}-{{000000..{(7 if split == 'train' else 5) // 3:06d}}}.tar"
    expected = batches(folder(synthetic, split, transform, seed=3))
    settings = {"seed": 3, "cache": cache, "cache_folder": tmp_path / "cache"}
    for engine in ("threads", "processes"):
        dataset = OCRWebDataset(pattern, transform, **settings)
        assert_same(batches(dataset, 4, 2, engine=engine), expected)
        dataset.set_epoch(0)
        assert_same(batches(dataset, 4, 2), expected)


def test_shards_and_folder_share_what_is_cached(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "val"), tmp_path / "shards", "val")
    settings = {"cache": "auto", "cache_folder": tmp_path / "cache"}
    list(Loader(folder(synthetic, "val", **settings)))
    dataset = OCRWebDataset(f"{shards}/val-*.tar", FIXED, **settings)
    list(Loader(dataset))
    assert dataset.ledger.totals()["cache_hits"] == len(dataset)


@pytest.mark.parametrize("transform", [DEVICE, RANDOM], ids=["validation", "training"])
def test_ready_shards_give_the_same_without_decoding(synthetic, tmp_path, transform):
    place = converted(folder(synthetic, "val", DEVICE), tmp_path, ready=True, samples_per_shard=3)
    dataset = OCRWebDataset(place, transform, seed=1)
    assert_same(batches(dataset, 4, 2), batches(folder(synthetic, "val", transform, seed=1)))


def test_local_shards_without_an_index_are_scanned(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "val"), tmp_path, "val")
    (shards / "val-index.json").unlink()
    dataset = OCRWebDataset([shards / "val-000000.tar", shards / "val-000001.tar"], FIXED)
    for mine, theirs in zip(batches(dataset, 4, 2), batches(folder(synthetic, "val")), strict=True):
        for name in ("images", "prob_maps", "thresh_maps", "polygons", "transcriptions", "inverse_matrix"):
            assert_same(mine[name], theirs[name], name)


def test_a_part_of_the_shards_is_a_part_of_the_samples(synthetic, tmp_path):
    whole = folder(synthetic, "train")
    shards = write_shards(whole, tmp_path, "train")
    dataset = OCRWebDataset(shards / "train-000001.tar", FIXED)
    assert dataset.source.location == str(shards / "train-000001.tar")
    assert list(dataset.source.names) == whole.source.names[3:6]
    assert_same(dataset[0]["image"], whole[3]["image"])


def two_conversions(data: Path, out: Path, form: dict[str, Any], has_index: bool) -> list[str]:
    """Shards of the same names and keys, of the training pages (8) and of the validation pages (6)."""
    places = []
    for split in ("train", "val"):
        converted(folder(data, split, DEVICE), out / split, "pages", samples_per_shard=3, **form)
        if not has_index:
            (out / split / "pages-index.json").unlink()
        places.append(f"{out}/{split}/pages-*.tar")
    return places


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("has_index", [True, False], ids=["indexed", "scanned"])
def test_shards_of_two_conversions_keep_their_own_pages_and_labels(synthetic, tmp_path, form, has_index):
    dataset = OCRWebDataset(two_conversions(synthetic, tmp_path, form, has_index), DEVICE)
    expected = [*batches(folder(synthetic, "train", DEVICE), 2), *batches(folder(synthetic, "val", DEVICE), 2)]
    assert_same(batches(dataset, 2, 2), expected)
    numbers = [dataset.source.number(index) for index in range(len(dataset))]
    assert len(set(numbers)) == 14
    assert numbers[:8] == list(range(8))  # The first one has the random numbers of its folder.


def test_one_shard_each_of_two_conversions(synthetic, tmp_path):
    train, val = two_conversions(synthetic, tmp_path, {}, has_index=True)
    pair = [place.replace("*", "000001") for place in (val, train)]
    dataset = OCRWebDataset(pair, FIXED)
    expected = [folder(synthetic, split).source.names[3:6] for split in ("val", "train")]
    assert list(dataset.source.names) == [name for names in expected for name in names]
    assert dataset.source.shard_of.tolist() == [0, 0, 0, 1, 1, 1]
    assert [dataset.source.read(index).path.rpartition("/")[0] for index in (0, 5)] == pair


def test_a_shard_that_is_listed_twice_is_refused(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "val"), tmp_path, "val")
    twice = str(shards / "val-000000.tar")
    with rejects(ConfigError, setting="tar_path", value=twice):
        OCRWebDataset([f"{shards}/val-*.tar", twice], FIXED)


def test_raw_and_ready_shards_are_not_read_as_one_dataset(synthetic, tmp_path):
    (raw, _), (_, ready) = (two_conversions(synthetic, tmp_path / name, form, True) for name, form in FORMS.items())
    with rejects(ConfigError, setting="tar_path", value=ready.replace("*", "000000")):
        OCRWebDataset([raw, ready], DEVICE)


@pytest.mark.parametrize("ranks", [1, 3])
def test_shuffling_from_shard_to_shard_loses_and_repeats_nothing(synthetic, tmp_path, ranks):
    shards = write_shards(folder(synthetic, "train"), tmp_path, "train", per_shard=2)
    seen = []
    for rank in range(ranks):
        dataset = OCRWebDataset(f"{shards}/train-*.tar", FIXED, shuffle_buffer=3)
        seen += names(Loader(dataset, 2, 2, shuffle=True, seed=5, rank=rank, world_size=ranks))
    assert sorted(seen) == sorted(dataset.source.names)
    assert seen != list(dataset.source.names)


def test_a_resumed_epoch_of_shards_continues_exactly(synthetic, tmp_path):
    shards = write_shards(folder(synthetic, "train"), tmp_path, "train", per_shard=2)

    def loader(workers: int) -> Loader:
        dataset = OCRWebDataset(f"{shards}/train-*.tar", RANDOM, shuffle_buffer=3)
        return Loader(dataset, 2, workers, shuffle=True, seed=5)

    expected, begun, resumed = list(loader(0)), loader(2), loader(1)
    first = next(iter(begun))
    resumed.load_state_dict(begun.state_dict())
    assert_same([first, *resumed], expected)


@pytest.mark.parametrize("kind", ["image", "json", "truncated", "missing"])
def test_a_damaged_shard_is_named_or_its_samples_skipped_and_counted(synthetic, tmp_path, kind):
    shards = write_shards(folder(synthetic, "val"), tmp_path, "val")
    damaged = shards / "val-000001.tar"
    data = bytearray(damaged.read_bytes())
    stored = OCRWebDataset(f"{shards}/val-*.tar", FIXED).source.index.samples[4]
    start, size = stored.members["json" if kind == "json" else "jpg"]
    error, value, path, left_out = DataError, None, damaged, 3
    if kind in ("image", "json"):
        data[start + (size // 2 if kind == "image" else 0)] ^= 1
        damaged.write_bytes(data)
        error, path, left_out = (ImageError if kind == "image" else AnnotationError), damaged / stored.filename, 1
    elif kind == "truncated":
        damaged.write_bytes(data[:-2000])
        value = len(data) - 2000
    else:
        damaged.unlink()
    pattern = f"{shards}/val-{{000000..000001}}.tar"
    with rejects(error, value=value, path=path) as caught:
        list(Loader(OCRWebDataset(pattern, FIXED), 6, 2))
    assert left_out == 3 or f"at offset {start}" in str(caught.value)
    dataset = OCRWebDataset(pattern, FIXED, **SKIP)
    (batch,) = Loader(dataset, 6, 2)
    assert len(batch["images"]) == 6 - left_out
    assert dataset.ledger.totals()["skipped"] == left_out


@pytest.mark.parametrize(
    ("setting", "given", "value"),
    [
        ("tar_path", {"tar_path": "nowhere-*.tar"}, "nowhere-*.tar"),
        ("tar_path", {"tar_path": 5}, 5),
        ("on_bad_sample", {"on_bad_sample": "ignore"}, "ignore"),
        ("shards.shuffle_buffer", {"shuffle_buffer": 0}, 0),
        ("shards.tries", {"tries": 0}, 0),
        ("shards.max_bytes", {"shard_max_bytes": "much"}, "much"),
        ("seed", {"seed": -1}, -1),
    ],
    ids=lambda value: str(value)[:24],
)
def test_settings_that_cannot_work_are_refused(synthetic, tmp_path, setting, given, value):
    shards = write_shards(folder(synthetic, "val"), tmp_path, "val")
    with rejects(ConfigError, setting=setting, value=value):
        OCRWebDataset(**{"tar_path": f"{shards}/val-*.tar", "transform": FIXED} | given)


def test_a_training_config_reads_shards(synthetic, tmp_path):
    for split in ("train", "val"):
        write_shards(folder(synthetic, split), tmp_path / "shards", split)
    with initialize_config_dir(str(Path(__file__).resolve().parents[2] / "configs"), version_base="1.3"):
        chosen = [f"shards_base_path={tmp_path / 'shards'}", f"cache.folder={tmp_path}", "transforms.size=96"]
        config = compose("train", ["data=webdataset", *chosen, "dataloaders.train_dataloader.batch_size=2"])
    for split, pages in (("train", 8), ("val", 6)):
        loader = OCRDataModule(config).loader(split)
        assert isinstance(loader.dataset, OCRWebDataset)
        assert sum(len(batch["images"]) for batch in loader) == pages


SQUARE = [[5, 5], [45, 5], [45, 25], [5, 25]]
NAMES = ["00000000.jpg", "00000001.jpg", "00000002.jpg"]
NAN, INFINITE = float("nan"), float("inf")


def document(**changes):
    return {"filename": "", "polygons": [SQUARE], "ignore": [False], "texts": ["a"], "size": [60, 40]} | changes


def with_outline(outline):
    return document(polygons=[outline]), "points", outline


HUGE = with_outline([[5, 5], [1e30, 5], [45, 25]])
DEEP = b"[" * 200_000 + b"]" * 200_000
# What the JSON of the page is, and the field and value that are wrong in it.
BAD = {
    "a coordinate of 1e30": HUGE,
    "NaN": with_outline([[5, 5], [NAN, 5], [45, 25]]),
    "infinity": with_outline([[5, 5], [INFINITE, 5], [45, 25]]),
    "two points": with_outline([[5, 5], [45, 5]]),
    "text for a coordinate": with_outline([["5", 5], [45, 5], [45, 25]]),
    "a point of three numbers": with_outline([[5, 5, 5], [45, 5, 5], [45, 25, 5]]),
    "null for a polygon": with_outline(None),
    "an object for a polygon": with_outline({"0": 1}),
    "an object for polygons": (document(polygons={"0": SQUARE}), "polygons", {"0": SQUARE}),
    "a number for polygons": (document(polygons=7), "polygons", 7),
    "too few flags": (document(polygons=[SQUARE, SQUARE], texts=[]), "polygons", [SQUARE, SQUARE]),
    "too many texts": (document(texts=["a", "b"]), "polygons", [SQUARE]),
    "a flag that is text": (document(ignore=["no"]), "ignore", "no"),
    "a text that is a number": (document(texts=[7]), "transcription", 7),
    "a size of one number": (document(size=[60]), None, ([60], [60])),
    "a size of text": (document(size=["a", "b"]), None, ("a", "b")),
    "a list": ([], None, []),
    "a number": (7, None, 7),
    "text": (b'"', None, None),
    "deep nesting": (DEEP, None, None),
    "deep nesting in a polygon": (b'{"polygons": [' + DEEP + b"]}", None, None),
}


def write_page(path, content):
    """Three pages; the second has this JSON."""
    page = io.BytesIO()
    Image.fromarray(np.full((40, 60, 3), 200, np.uint8)).save(page, "JPEG")
    contents = (document(), content, document())
    return write_tar(path, [{"jpg": page.getvalue(), "json": content} for content in contents])


@pytest.mark.parametrize(("content", "setting", "value"), BAD.values(), ids=BAD)
def test_a_bad_annotation_is_named_or_skipped_and_counted(tmp_path, content, setting, value):
    tar = write_page(tmp_path / "a.tar", content)
    with rejects(AnnotationError, setting=setting) as caught:
        OCRWebDataset(tar, DEVICE)[1]
    assert repr(caught.value.value) == repr(value)  # NaN is not equal to itself.
    assert str(caught.value).startswith(f"{tar}: 00000001 ")
    dataset = OCRWebDataset(tar, DEVICE, **SKIP)
    assert [item is None for item in map(dataset.__getitem__, range(3))] == [False, True, False]
    assert dataset.ledger.files("skipped") == [NAMES[1]]


def assert_the_second_is_skipped(dataset, loader):
    (batch,) = list(loader)
    assert batch["image_filename"] == [NAMES[0], NAMES[2]]
    assert dataset.ledger.files("skipped") == [NAMES[1]]


def test_a_bad_annotation_is_skipped_with_a_cache_too(tmp_path):
    tar = write_page(tmp_path / "a.tar", BAD["NaN"][0])
    dataset = OCRWebDataset(tar, DEVICE, cache="auto", cache_folder=tmp_path / "cache", **SKIP)
    for _ in range(2):
        assert_the_second_is_skipped(dataset, Loader(dataset, 3, 2))


@pytest.mark.skipif(sys.platform != "linux", reason="DALI is for Linux")
def test_dali_skips_and_counts_a_bad_annotation(tmp_path):
    dataset = OCRWebDataset(write_page(tmp_path / "a.tar", HUGE[0]), DEVICE, **SKIP)
    assert_the_second_is_skipped(dataset, DALIDataLoader(ocr_pipeline(dataset, 3, 2, device="cpu"), len(dataset), 3))


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
def unlisted(synthetic, tmp_path) -> Path:
    """Two shards of three pages without an index."""
    out = write_shards(folder(synthetic, "val"), tmp_path / "shards", "val")
    (out / "val-index.json").unlink()
    return out


def pages(dataset: Any) -> list[Any]:
    """Batches without the names, which an index would have."""
    return [batch | {"image_filename": 0} for batch in batches(dataset, 3, 2)]


def test_a_page_of_a_shard_without_index_replaced_by_one_of_the_same_size_is_rebuilt(unlisted, tmp_path):
    kept = {"cache": "auto", "cache_folder": tmp_path / "cache"}
    pages(OCRWebDataset(f"{unlisted}/val-*.tar", FIXED, **kept))
    for in_place in (True, False):
        replace_a_page(unlisted / "val-000000.tar", in_place)
        dataset = OCRWebDataset(f"{unlisted}/val-*.tar", FIXED, **kept)
        assert_same(pages(dataset), pages(OCRWebDataset(f"{unlisted}/val-*.tar", FIXED)))
        totals = dataset.ledger.totals()
        assert (totals["cache_hits"], totals["cache_misses"]) == (5, 1)


@pytest.mark.parametrize("cache", ["off", "auto"])
def test_a_local_shard_edited_while_it_is_open_is_read_again_in_the_next_epoch(unlisted, tmp_path, cache):
    dataset = OCRWebDataset(f"{unlisted}/val-*.tar", DEVICE, cache=cache, cache_folder=tmp_path / "cache")
    before = pages(dataset)
    for in_place in (True, False):
        replace_a_page(unlisted / "val-000000.tar", in_place)
        after = pages(dataset)
        assert_same(after, pages(OCRWebDataset(f"{unlisted}/val-*.tar", DEVICE)))
        assert not before[0]["images"].equal(after[0]["images"])
        before = after


def test_shards_converted_again_while_they_are_open_are_read_by_their_new_index(synthetic, tmp_path):
    data = Path(shutil.copytree(synthetic, tmp_path / "data"))
    dataset = OCRWebDataset(converted(folder(data, "val", DEVICE), tmp_path / "shards", ready=True), DEVICE)
    pages(dataset)
    page = data / "images" / "val" / dataset.source.names[0]
    with Image.open(page) as image:
        Image.fromarray(255 - np.asarray(image)).save(page)
    converted(folder(data, "val", DEVICE), tmp_path / "shards", ready=True)
    assert_same(pages(dataset)[0]["images"], pages(folder(data, "val", DEVICE))[0]["images"])


def test_shards_of_other_pages_are_not_taken_for_those_that_were_opened(synthetic, unlisted):
    dataset = OCRWebDataset([unlisted / "val-000000.tar", unlisted / "val-000001.tar"], FIXED)
    write_shards(folder(synthetic, "train"), unlisted, "val", per_shard=4)
    with rejects(DataError, setting=None, path=f"{unlisted}/val-000000.tar and 1 more"):
        pages(dataset)


class Mute(Files):
    """Tells neither ETag nor time."""

    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Last-Modified":
            super().send_header(keyword, value)


@pytest.mark.parametrize("server", [Files, Mute], ids=["tells a time", "tells nothing"])
def test_a_remote_shard_without_index_that_changed_is_fetched_again_when_it_is_opened(
    unlisted, tmp_path, monkeypatch, server
):
    pytest.importorskip("aiohttp")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    local = f"{unlisted}/val-*.tar"
    for tar in unlisted.glob("*.tar"):
        os.utime(tar, (10**9, 10**9))
    with serve(unlisted, server) as url:

        def read() -> list[Any]:
            """Two epochs, of which the second asks the server for nothing."""
            dataset = OCRWebDataset(f"{url}/val-{{000000..000001}}.tar", DEVICE, shard_folder=tmp_path / "kept")
            first, asked = pages(dataset), list(Files.asked)
            assert_same(first, pages(dataset))
            assert Files.asked == asked
            return first

        before = read()
        Files.asked.clear()
        assert_same(before, read())
        assert sum(name.endswith(".tar") for name in Files.asked) == (0 if server is Files else 2)
        replace_a_page(unlisted / "val-000001.tar")
        after = read()
    assert_same(
        [batch["images"] for batch in after], [batch["images"] for batch in pages(OCRWebDataset(local, DEVICE))]
    )
    assert not before[1]["images"].equal(after[1]["images"])
