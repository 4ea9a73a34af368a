"""Ready shards: the batches of the folder, every byte checked, and damage named with its shard."""

import io
import json
import struct
import tarfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rejection import rejects
from sameness import assert_same
from splits import DEVICE, FIXED, RANDOM, SIZE, batches, converted, folder, names, write_tar

from ocr.datasets import DBTransforms, OCRWebDataset
from ocr.errors import AnnotationError, ConfigError, DataError, ImageSizeError
from ocr.loader import Loader
from ocr.pipeline import dense
from ocr.pipeline.dense import DensePage
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets
from ocr.shards.source import ready_digest


def write(data: Path, out: Path, split: str = "val") -> str:
    """Ready shards of the validation pages (6), or of the training pages (8), three a shard."""
    return converted(folder(data, split, DEVICE), out, split, ready=True, samples_per_shard=3)


def test_ready_shards_that_lost_their_index_give_every_page_under_its_name(synthetic, tmp_path):
    place = write(synthetic, tmp_path)
    (tmp_path / "val-index.json").unlink()
    assert_same(batches(OCRWebDataset(place, DEVICE), 2), batches(folder(synthetic, "val", DEVICE), 2))


def test_ready_shards_that_lost_their_index_report_that_their_stages_are_unknown(synthetic, tmp_path, caplog):
    place = write(synthetic, tmp_path)
    OCRWebDataset(place, DEVICE)
    assert not caplog.records
    (tmp_path / "val-index.json").unlink()
    OCRWebDataset(place, DEVICE)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("extension", ["image.npy", "json"])
def test_a_flipped_bit_in_a_ready_sample_is_named_or_skipped(synthetic, tmp_path, extension):
    place = write(synthetic, tmp_path)
    stored = OCRWebDataset(place, DEVICE).source.index.samples[1]
    start, size = stored.members[extension]
    file = tmp_path / "val-000000.tar"
    data = bytearray(file.read_bytes())
    for offset in (start + size // 2, start + size - 3):
        data[offset] ^= 16  # In JSON, of a lower one a digit can become another that float32 does not hold.
        file.write_bytes(data)
        with rejects(DataError, path=file / stored.filename) as caught:
            list(Loader(OCRWebDataset(place, DEVICE), 3))
        assert f"{file}: {stored.key} ({stored.filename}) at offset" in str(caught.value)
        dataset = OCRWebDataset(place, DEVICE, on_bad_sample="skip")
        assert sum(len(batch["images"]) for batch in Loader(dataset, 3)) == 5
        assert dataset.ledger.files("skipped") == [stored.filename]
        data[offset] ^= 16


def test_what_is_shuffled_together_fits_into_the_budget_of_shards(synthetic, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    converted(folder(synthetic, "train", DEVICE), tmp_path / "out", "train", samples_per_shard=2)
    memory = fsspec.filesystem("memory")
    for file in (tmp_path / "out").iterdir():
        memory.pipe(f"/budget/{file.name}", file.read_bytes())
    largest = max(file.stat().st_size for file in (tmp_path / "out").glob("*.tar"))
    place = "memory://budget/train-*.tar"
    for fit, most in ((1, 1), (2, 1), (3, 3), (5, 5)):
        kept = {"shard_folder": tmp_path / f"kept-{fit}", "shard_max_bytes": fit * largest}
        dataset = OCRWebDataset(place, RANDOM, **kept)
        assert dataset.shuffle_buffer == most
        seen = names(Loader(dataset, 3, 2, shuffle=True))
        assert len(seen) == len(set(seen)) == 8
        if most > 1:
            with rejects(ConfigError, setting="shards.shuffle_buffer", value=most + 1):
                OCRWebDataset(place, RANDOM, shuffle_buffer=most + 1, **kept)


@pytest.mark.parametrize(
    ("transform", "engine"),
    [(FIXED, "threads"), (DEVICE, "processes"), (RANDOM, "threads"), (RANDOM, "processes")],
    ids=["floats", "bytes", "training", "training in processes"],
)
def test_ready_shards_give_the_batches_of_the_folder(synthetic, tmp_path, transform, engine):
    split = "train" if transform is RANDOM else "val"
    dataset = OCRWebDataset(write(synthetic, tmp_path, split), transform, seed=3)
    mine, theirs = Loader(dataset, 4, 2, engine), Loader(folder(synthetic, split, transform, seed=3), 4, 0)
    for _ in range(2):
        for found, expected in zip(mine, theirs, strict=True):
            del found["image_path"], expected["image_path"]
            assert_same(found, expected)
    assert dataset.ledger.totals()["maps_drawn"] == len(dataset)
    assert dataset.ledger.totals()["maps_stored"] == 0


@pytest.mark.parametrize("transform", [FIXED, RANDOM], ids=["validation", "training"])
def test_items_of_ready_shards_are_those_of_the_folder(synthetic, tmp_path, transform):
    dataset = OCRWebDataset(write(synthetic, tmp_path), transform)
    made = folder(synthetic, "val", transform)
    for index in range(len(made)):
        mine, theirs = dataset[index], made[index]
        del mine["image_path"], theirs["image_path"]
        assert_same(mine, theirs)
        assert dataset.at_cut(index).map_source == ""
        assert dataset.sample(index).map_source == "drawn"


def test_other_readers_find_the_dense_bytes_with_numpy_alone(synthetic, tmp_path):
    write(synthetic, tmp_path)
    made, stored = folder(synthetic, "val", DEVICE), 0
    for number in range(2):
        with tarfile.open(tmp_path / f"val-{number:06d}.tar") as tar:
            members = {member.name: tar.extractfile(member).read() for member in tar}
        keys = sorted({name.partition(".")[0] for name in members})
        assert sorted(members) == sorted(f"{key}.{end}" for key in keys for end in ("image.npy", "json"))
        for key in keys:
            page = np.load(io.BytesIO(members[f"{key}.image.npy"]), allow_pickle=False)
            assert page.dtype == np.uint8
            assert page.ndim == 1
            sample = made.sample(int(key))
            assert_same(DensePage(page).pixels(), sample.image)
            assert json.loads(members[f"{key}.json"])["filename"] == sample.filename
            stored += len(page)
    assert stored < 6 * SIZE * SIZE * 3 / 2


def test_webdataset_decodes_the_dense_bytes(synthetic, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    write(synthetic, tmp_path)
    made = folder(synthetic, "val", DEVICE)
    pattern = f"{tmp_path}/val-{{000000..000001}}.tar"
    for place, read in enumerate(webdataset.WebDataset(pattern, shardshuffle=False).decode()):
        assert_same(DensePage(read["image.npy"]).pixels(), made.sample(place).image)


def test_maps_of_ready_shards_follow_the_settings_of_their_reader(synthetic, tmp_path):
    place, targets = write(synthetic, tmp_path), Targets(shrink_ratio=0.6)
    expected = batches(folder(synthetic, "val", DEVICE, targets=targets))
    assert_same(batches(OCRWebDataset(place, DEVICE, targets=targets)), expected)
    with rejects(ConfigError, setting="tar_path", path=f"{tmp_path}/val-000000.tar and 1 more"):
        OCRWebDataset(place, DBTransforms([Letterbox(64), Normalize()]))


SIDE = 64
TRANSFORM = DBTransforms([Letterbox(SIDE), Normalize()])
DOCUMENT = {
    **{"filename": "a.jpg", "annotated": True, "ignore": [False], "texts": [None]},
    **{"polygons": [[[5, 5], [45, 5], [45, 25], [5, 25]]]},
    **{"shape": [SIDE, SIDE], "raw_size": [SIDE, SIDE], "orientation": 1, "polygon_frame": "upright", "recovered": ""},
    **{"dropped_polygons": 0, "crossed_polygons": 0, "simplified_polygons": 0},
    "inverse_matrix": [1, 0, 0, 0, 1, 0, 0, 0, 1],
}
PAGE = DensePage.pack(np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), np.uint8)).data


def stored(page: np.ndarray = PAGE, **changes: Any) -> dict[str, Any]:
    """A sample with the digest of what it holds, if that can be read."""
    document = DOCUMENT | changes
    with suppress(KeyError, TypeError, ValueError, OverflowError):
        document = {"digest": ready_digest(dense.from_json(document), page)} | document
    return {"image.npy": page, "json": document}


def write_second(path: Path, second: dict[str, Any]) -> str:
    """A sound sample, and this one."""
    return write_tar(path, [stored(), second])


def test_a_sound_sample_is_read(tmp_path):
    (batch,) = Loader(OCRWebDataset(write_second(tmp_path / "a.tar", stored()), TRANSFORM), 2)
    assert batch["images"].shape == (2, 3, SIDE, SIDE)


def assert_skipped(tar: str) -> None:
    dataset = OCRWebDataset(tar, TRANSFORM, on_bad_sample="skip")
    (batch,) = Loader(dataset, 2)
    assert len(batch["images"]) == 1
    assert len(dataset.ledger.files("skipped")) == 1


def assert_named_or_skipped(tar: str, error: type[DataError]) -> None:
    with rejects(error, path=f"{tar}/a.jpg") as caught:
        OCRWebDataset(tar, TRANSFORM)[1]
    assert type(caught.value) is error
    assert_skipped(tar)


BAD_DOCUMENTS = {
    "a coordinate of 1e30": {"polygons": [[[5, 5], [1e30, 5], [45, 25]]]},
    "20,000 vertices": {"polygons": [[[at % 50, at % 49] for at in range(20_000)]]},
    "a matrix of NaN": {"inverse_matrix": [float("nan")] * 9},
    "a matrix of 10^400": {"inverse_matrix": [10**400] * 9},
    "a matrix of four": {"inverse_matrix": [1, 0, 0, 1]},
    "a shape of text": {"shape": "ab"},
    "a shape of one": {"shape": [64]},
    "a size out of range": {"raw_size": [64, 1 << 40]},
    "orientation 9": {"orientation": 9},
    "a count that is a list": {"dropped_polygons": [1]},
    "a frame that is null": {"polygon_frame": None},
}


@pytest.mark.parametrize("document", BAD_DOCUMENTS.values(), ids=BAD_DOCUMENTS)
def test_a_bad_document_is_named_or_skipped_and_counted(tmp_path, document):
    assert_named_or_skipped(write_second(tmp_path / "a.tar", stored(**document)), AnnotationError)


OTHERS = {
    "another page": stored() | {"image.npy": PAGE[::-1]},
    "other words": stored() | {"json": stored()["json"] | {"polygons": [[[5, 5], [45, 5], [45, 26], [5, 25]]]}},
    "another digest": stored(digest="0" * 32),
}


@pytest.mark.parametrize("second", OTHERS.values(), ids=OTHERS)
def test_what_was_not_stored_is_named_or_skipped_and_counted(tmp_path, second):
    assert_named_or_skipped(write_second(tmp_path / "a.tar", second), DataError)


BAD_ARRAYS = {
    "pixels": np.zeros((SIDE, SIDE, 3), np.uint8),
    "numbers": np.zeros(SIDE, np.int16),
    "nothing": np.zeros((), "V0"),
    "no array": b"\x93NUMPY\x01\x00",
}


@pytest.mark.parametrize("array", BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_what_is_not_a_dense_page_is_named_or_skipped_and_counted(tmp_path, array):
    assert_named_or_skipped(write_second(tmp_path / "a.tar", stored() | {"image.npy": array}), AnnotationError)


def dense_bytes(**header: int) -> np.ndarray:
    """A dense page whose header says something else."""
    fields, data = ("height", "width", "top", "left", "rows", "columns", "planes"), PAGE.copy()
    said = dict(zip(fields, struct.unpack_from("<IIIIIIB", data), strict=True)) | header
    struct.pack_into("<IIIIIIB", data, 0, *said.values())
    return data


HUGE = dict.fromkeys(("rows", "columns"), 1 << 31)
BAD_PAGES = {
    "no bytes": PAGE[:0],
    "half a header": PAGE[:20],
    "half of its bytes": PAGE[: SIDE * SIDE],
    "no pixels": dense_bytes(width=0, columns=0),
    "two planes": dense_bytes(planes=2),
    "a window off the page": dense_bytes(top=1),
    "a window of terabytes": dense_bytes(**HUGE),
}


@pytest.mark.parametrize("page", BAD_PAGES.values(), ids=BAD_PAGES)
def test_a_dense_page_that_was_made_to_do_harm_is_refused_or_skipped_and_counted(tmp_path, page):
    tar = write_second(tmp_path / "a.tar", stored(page))
    with rejects(DataError, setting=None):
        OCRWebDataset(tar, TRANSFORM)[1]
    assert_skipped(tar)


def test_a_few_bytes_that_declare_a_huge_page_are_refused_before_memory_is_taken(tmp_path):
    tar = write_second(tmp_path / "a.tar", stored(dense_bytes(height=1 << 31, width=1 << 31)))
    with rejects(ImageSizeError, setting="decode.max_pixels", value=(1 << 31, 1 << 31), path=f"{tar}/a.jpg"):
        OCRWebDataset(tar, TRANSFORM)[1]
    small = OCRWebDataset(write_second(tmp_path / "b.tar", stored()), TRANSFORM, image_loading_config={"max_pixels": 9})
    with rejects(ImageSizeError, setting="decode.max_pixels", value=(SIDE, SIDE)):
        small[0]
