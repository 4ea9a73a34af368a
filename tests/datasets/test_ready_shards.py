"""Ready shards, dense and raw: the batches of the folder, arrays that are checked, and damage named with its shard."""

import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rejection import rejects
from sameness import assert_same
from splits import DEVICE, FIXED, RANDOM, SIZE, batches, converted, folder, names, serve, write_tar

from ocr.datasets import DBTransforms, OCRWebDataset
from ocr.datasets.shard_dataset import _tell_unknown_stages
from ocr.datasets.webstream import OCRWebStream
from ocr.errors import AnnotationError, ConfigError, DataError, ImageSizeError
from ocr.loader import Loader
from ocr.pipeline.dense import DensePage
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets
from ocr.shards.files import ShardFiles
from ocr.shards.index import Shard
from ocr.shards.storage import Storage

DENSE = {"ready": True, "form": "dense", "samples_per_shard": 3}
FORMS = [{"ready": True}, {"ready": True, "form": "raw"}, {"ready_batches": 3}]


def write(data: Path, out: Path, split: str = "val", **settings: Any) -> str:
    """Ready shards of the validation pages (6), or of the training pages (8)."""
    return converted(folder(data, split, DEVICE), out, split, **settings)


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (2, 2), (3, 0), (3, 2), (4, 2), (6, 0)])
def test_ready_batches_give_the_batches_of_the_folder(synthetic, tmp_path, batch_size, workers):
    dataset = OCRWebDataset(write(synthetic, tmp_path, ready_batches=3), DEVICE)
    expected = batches(folder(synthetic, "val", DEVICE), batch_size)
    for _ in range(2):
        assert_same(batches(dataset, batch_size, workers), expected)
    assert dataset.ledger.totals()["maps_stored"] == 6


def test_a_ready_batch_is_a_view_that_can_be_written_to(synthetic, tmp_path):
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


def test_an_index_can_list_single_samples_after_batches(synthetic, tmp_path):
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
    assert_same(batches(dataset, 4, 2), batches(folder(synthetic, "val", transform)))


@pytest.mark.parametrize("options", FORMS)
def test_ready_shards_that_lost_their_index_give_every_page_under_its_name(synthetic, tmp_path, options):
    place = write(synthetic, tmp_path, **options)
    (tmp_path / "val-index.json").unlink()
    assert_same(batches(OCRWebDataset(place, DEVICE), 2), batches(folder(synthetic, "val", DEVICE), 2))


def test_ready_shards_that_lost_their_index_report_once_that_their_stages_are_unknown(synthetic, tmp_path, caplog):
    place = write(synthetic, tmp_path, ready=True)
    _tell_unknown_stages.cache_clear()
    OCRWebDataset(place, DEVICE)
    assert not caplog.records
    (tmp_path / "val-index.json").unlink()
    OCRWebDataset(place, DEVICE), OCRWebDataset(place, DEVICE)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_batch_whose_pages_cannot_be_counted_is_named(synthetic, tmp_path):
    place = write(synthetic, tmp_path, ready_batches=3)
    (tmp_path / "val-index.json").unlink()
    shard = tmp_path / "val-000000.tar"
    shard.write_bytes(shard.read_bytes().replace(b'[{"', b'[["', 1))
    with rejects(AnnotationError, value="00000000", path=shard):
        OCRWebDataset(place, DEVICE)


@pytest.mark.parametrize("options", FORMS)
def test_a_flipped_bit_in_a_ready_array_is_named_or_skipped(synthetic, tmp_path, options):
    place = write(synthetic, tmp_path, **options)
    stored = OCRWebDataset(place, DEVICE).source.index.samples[1]
    start, size = next(at for name, at in stored.members.items() if name.startswith("image"))
    file = tmp_path / "val-000000.tar"
    data = bytearray(file.read_bytes())
    # In the middle of its own page, even where it is one of three.
    data[start + size // 2] ^= 1
    file.write_bytes(data)
    with rejects(DataError, value=None, path=file / stored.filename) as caught:
        list(Loader(OCRWebDataset(place, DEVICE), 3))
    assert f"at offset {start}" in str(caught.value)
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
def test_dense_shards_give_the_batches_of_the_folder(synthetic, tmp_path, transform, engine):
    split = "train" if transform is RANDOM else "val"
    dataset = OCRWebDataset(write(synthetic, tmp_path, split, **DENSE), transform, seed=3)
    mine, theirs = Loader(dataset, 4, 2, engine), Loader(folder(synthetic, split, transform, seed=3), 4, 0)
    for _ in range(2):
        for found, expected in zip(mine, theirs, strict=True):
            del found["image_path"], expected["image_path"]
            assert_same(found, expected)
    assert dataset.ledger.totals()["maps_drawn"] == len(dataset)
    assert dataset.ledger.totals()["maps_stored"] == 0


@pytest.mark.parametrize("transform", [FIXED, RANDOM], ids=["validation", "training"])
def test_items_of_dense_shards_are_those_of_the_folder(synthetic, tmp_path, transform):
    dataset = OCRWebDataset(write(synthetic, tmp_path, **DENSE), transform)
    made = folder(synthetic, "val", transform)
    for index in range(len(made)):
        mine, theirs = dataset[index], made[index]
        del mine["image_path"], theirs["image_path"]
        assert_same(mine, theirs)
        assert dataset.page(index).map_source == ""
        assert dataset.sample(index).map_source == "drawn"


@pytest.mark.parametrize("transform", [FIXED, DEVICE, RANDOM], ids=["floats", "bytes", "training"])
def test_a_stream_of_dense_shards_gives_the_batches_of_the_folder(synthetic, tmp_path, monkeypatch, transform):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    write(synthetic, tmp_path / "out", "train", **DENSE)
    (tmp_path / "out" / "train-index.json").unlink()
    with serve(tmp_path / "out") as url:
        stream = OCRWebDataset(f"{url}/train-{{000000..000002}}.tar", transform, shard_folder=tmp_path / "kept")
        assert isinstance(stream, OCRWebStream)
        found = list(Loader(stream, 3, 2))
    for mine, theirs in zip(found, Loader(folder(synthetic, "train", transform), 3, 0), strict=True):
        for name in ("images", "prob_maps", "thresh_maps", "prob_masks", "thresh_masks", "polygons", "inverse_matrix"):
            assert_same(mine[name], theirs[name], name)


def test_other_readers_find_the_dense_bytes_with_numpy_alone(synthetic, tmp_path):
    write(synthetic, tmp_path, **DENSE)
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
            assert_same(DensePage(page).unpack(), sample.image)
            assert json.loads(members[f"{key}.json"])["filename"] == sample.filename
            stored += len(page)
    assert stored < 6 * SIZE * SIZE * 3 / 2


def test_webdataset_decodes_the_dense_bytes(synthetic, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    write(synthetic, tmp_path, **DENSE)
    made = folder(synthetic, "val", DEVICE)
    pattern = f"{tmp_path}/val-{{000000..000001}}.tar"
    for place, read in enumerate(webdataset.WebDataset(pattern, shardshuffle=False).decode()):
        assert_same(DensePage(read["image.npy"]).unpack(), made.sample(place).image)


def test_maps_of_dense_shards_follow_the_settings_of_their_reader(synthetic, tmp_path):
    place, targets = write(synthetic, tmp_path, **DENSE), Targets(shrink_ratio=0.6)
    expected = batches(folder(synthetic, "val", DEVICE, targets=targets))
    assert_same(batches(OCRWebDataset(place, DEVICE, targets=targets)), expected)
    with rejects(ConfigError, setting="tar_path", path=f"{tmp_path}/val-000000.tar and 1 more"):
        OCRWebDataset(place, DBTransforms([Letterbox(64), Normalize()]))


def test_an_open_dataset_does_not_read_on_in_another_form(synthetic, tmp_path):
    dataset = OCRWebDataset(write(synthetic, tmp_path, **DENSE), DEVICE)
    write(synthetic, tmp_path, **DENSE | {"form": "raw"})
    with rejects(DataError, path=f"{tmp_path}/val-000000.tar and 1 more"):
        dataset.set_epoch(1)


def test_dense_batches_are_no_views(synthetic, tmp_path):
    dataset = OCRWebDataset(write(synthetic, tmp_path, **DENSE), DEVICE)
    assert dataset.peek([0, 1, 2]) is None
    assert not dataset.can_view([0, 1, 2])


SIDE = 64
TRANSFORM = DBTransforms([Letterbox(SIDE), Normalize()])
DOCUMENT = {
    **{"filename": "a.jpg", "annotated": True, "ignore": [False], "texts": [None]},
    **{"polygons": [[[5, 5], [45, 5], [45, 25], [5, 25]]]},
    **{"shape": [SIDE, SIDE], "raw_size": [SIDE, SIDE], "orientation": 1, "polygon_frame": "upright", "recovered": ""},
    **{"dropped_polygons": 0, "crossed_polygons": 0, "simplified_polygons": 0},
    "inverse_matrix": [1, 0, 0, 0, 1, 0, 0, 0, 1],
}
ARRAYS = {
    "image": np.zeros((SIDE, SIDE, 3), np.uint8),
    **dict.fromkeys(("prob_map", "thresh_map"), np.zeros((SIDE, SIDE), np.float32)),
    **dict.fromkeys(("prob_mask", "thresh_mask"), np.zeros((SIDE, SIDE), np.bool_)),
}


def write_second(path: Path, document: dict[str, Any], arrays: dict[str, Any], sound: dict[str, Any] = ARRAYS) -> str:
    """Two samples, the second with these changes."""
    samples = [
        {f"{name}.npy": array for name, array in (sound | changed).items()} | {"json": DOCUMENT | noted}
        for changed, noted in (({}, {}), (arrays, document))
    ]
    return write_tar(path, samples)


def test_a_sound_sample_is_read(tmp_path):
    (batch,) = Loader(OCRWebDataset(write_second(tmp_path / "a.tar", {}, {}), TRANSFORM), 2)
    assert batch["images"].shape == (2, 3, SIDE, SIDE)


def assert_named_or_skipped(tar: str, error: type[DataError] = DataError, **fields: Any) -> None:
    for _ in range(2):
        with rejects(error, path=f"{tar}/00000001.npy", **fields) as caught:
            OCRWebDataset(tar, TRANSFORM)[1]
        assert type(caught.value) is error
    dataset = OCRWebDataset(tar, TRANSFORM, on_bad_sample="skip")
    (batch,) = Loader(dataset, 2)
    assert len(batch["images"]) == 1
    assert len(dataset.ledger.files("skipped")) == 1


BAD_ARRAYS = {
    "a page of five channels": {"image": np.zeros((SIDE, SIDE, 5), np.uint8)},
    "a page without channels": {"image": np.zeros((SIDE, SIDE), np.uint8)},
    "a page of doubles": {"image": np.zeros((3, SIDE, SIDE), np.float64)},
    "an empty page": {"image": np.zeros((0, SIDE, 3), np.uint8)},
    "a map of another size": {"prob_map": np.zeros((SIDE, 99), np.float32)},
    "a map of another type": {"thresh_mask": np.zeros((SIDE, SIDE), np.uint8)},
    "a map that is a number": {"prob_mask": np.zeros((), np.bool_)},
}


@pytest.mark.parametrize("arrays", BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_arrays_that_form_no_page_are_named_or_skipped_and_counted(tmp_path, arrays):
    forms = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in (ARRAYS | arrays).items())
    assert_named_or_skipped(write_second(tmp_path / "a.tar", {}, arrays), value=forms)


def test_a_map_of_nothing_is_named_or_skipped_and_counted(tmp_path):
    nothing = {"prob_mask": np.zeros((SIDE, SIDE), "V0")}
    assert_named_or_skipped(write_second(tmp_path / "a.tar", {}, nothing), setting=None)


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
    assert_named_or_skipped(write_second(tmp_path / "a.tar", document, {}), AnnotationError, setting=None)


def test_other_words_than_were_stored_are_named_or_skipped_and_counted(tmp_path):
    tar = write_second(tmp_path / "a.tar", {"fields": "0123456789abcdef"}, {})
    assert_named_or_skipped(tar, value="json")


def dense_bytes(**header: int) -> np.ndarray:
    """A sound dense page, or one whose header says something else."""
    fields = ("height", "width", "top", "left", "rows", "columns", "planes")
    data = DensePage.pack(np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), np.uint8)).data.copy()
    said = dict(zip(fields, struct.unpack_from("<IIIIIIB", data), strict=True)) | header
    struct.pack_into("<IIIIIIB", data, 0, *said.values())
    return data


def write_dense(path: Path, image: np.ndarray, **document: Any) -> str:
    """A sound sample and one with this array, without a digest."""
    return write_second(path, document, {"image": image}, {"image": dense_bytes()})


HUGE = dict.fromkeys(("height", "width", "rows", "columns"), 1 << 31)
BAD_PAGES = {
    "no bytes": (dense_bytes()[:0], 0),
    "half a header": (dense_bytes()[:20], 20),
    "half of its bytes": (dense_bytes()[: SIDE * SIDE], SIDE * SIDE),
    "other numbers": (dense_bytes().astype(np.int16), None),
    "no pixels": (dense_bytes(width=0, columns=0), None),
    "two planes": (dense_bytes(planes=2), len(dense_bytes())),
    "a window off the page": (dense_bytes(top=1), len(dense_bytes())),
    "another size": (dense_bytes(height=SIDE + 1, rows=SIDE + 1), len(dense_bytes())),
    "a window of terabytes": (dense_bytes(**HUGE), len(dense_bytes())),
}


@pytest.mark.parametrize(("image", "value"), BAD_PAGES.values(), ids=BAD_PAGES)
def test_a_bad_dense_page_is_named_or_skipped_and_counted(tmp_path, image, value):
    assert_named_or_skipped(write_dense(tmp_path / "a.tar", image), value=value)


def test_a_few_bytes_that_declare_a_huge_page_are_refused_before_memory_is_taken(tmp_path):
    tar = write_dense(tmp_path / "a.tar", dense_bytes(height=1 << 31, width=1 << 31))
    with rejects(ImageSizeError, setting="decode.max_pixels", value=(1 << 31, 1 << 31), path=f"{tar}/00000001.npy"):
        OCRWebDataset(tar, TRANSFORM)[1]


def test_the_wrong_digest_is_named_whatever_the_page_looks_like(tmp_path):
    tar = write_dense(tmp_path / "a.tar", dense_bytes(), arrays="0" * 16)
    with rejects(DataError, value=None, path=f"{tar}/00000001.npy"):
        OCRWebDataset(tar, TRANSFORM)[1]
