"""Dense ready shards: the batches of the folder in a fraction of the bytes; damage is named with its shard."""

import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sameness import assert_same
from test_bad_ready_samples import DOCUMENT, SIDE, TRANSFORM
from test_webdataset import DEVICE, FIXED, RANDOM, SIZE, folder, without_paths
from test_webstream import serve

from ocr.datasets import DBTransforms, OCRWebDataset
from ocr.datasets.webstream import OCRWebStream
from ocr.errors import ConfigError, DataError, ImageError
from ocr.loader import Loader
from ocr.pipeline.dense import DensePage
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets
from ocr.shards.index import end_tar, write_member
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings


def write(data: Path, out: Path, split: str = "val", **settings: Any) -> str:
    """Dense ready shards of a split, three pages each."""
    wanted = ConvertSettings(ready=True, form="dense", samples_per_shard=3, **settings)
    assert convert({split: folder(data, split, DEVICE)}, str(out), wanted) == 0
    return str(out / f"{split}-*.tar")


@pytest.mark.parametrize("transform", [FIXED, DEVICE, RANDOM], ids=["floats", "bytes", "training"])
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_dense_shards_give_the_batches_of_the_folder(synthetic, tmp_path, transform, engine):
    split = "train" if transform is RANDOM else "val"
    dataset = OCRWebDataset(write(synthetic, tmp_path, split), transform, seed=3)
    mine, theirs = Loader(dataset, 4, 2, engine), Loader(folder(synthetic, split, transform, seed=3), 4, 0)
    for _ in range(2):
        assert_same(without_paths(list(mine)), without_paths(list(theirs)))
    assert dataset.ledger.totals()["maps_drawn"] == len(dataset)
    assert dataset.ledger.totals()["maps_stored"] == 0


@pytest.mark.parametrize("transform", [FIXED, RANDOM], ids=["validation", "training"])
def test_items_of_dense_shards_are_those_of_the_folder(synthetic, tmp_path, transform):
    dataset, made = OCRWebDataset(write(synthetic, tmp_path), transform), folder(synthetic, "val", transform)
    for index in range(len(made)):
        mine, theirs = dataset[index], made[index]
        del mine["image_path"], theirs["image_path"]
        assert_same(mine, theirs)
        assert dataset.page(index).map_source == ""
        assert dataset.sample(index).map_source == "drawn"


@pytest.mark.parametrize("transform", [FIXED, DEVICE, RANDOM], ids=["floats", "bytes", "training"])
def test_a_stream_of_dense_shards_gives_the_batches_of_the_folder(synthetic, tmp_path, monkeypatch, transform):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    write(synthetic, tmp_path / "out", "train")
    (tmp_path / "out" / "train-index.json").unlink()
    with serve(tmp_path / "out") as url:
        stream = OCRWebDataset(f"{url}/train-{{000000..000002}}.tar", transform, shard_folder=tmp_path / "kept")
        assert isinstance(stream, OCRWebStream)
        found = list(Loader(stream, 3, 2))
    for mine, theirs in zip(found, Loader(folder(synthetic, "train", transform), 3, 0), strict=True):
        for name in ("images", "prob_maps", "thresh_maps", "prob_masks", "thresh_masks", "polygons", "inverse_matrix"):
            assert_same(mine[name], theirs[name], name)


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
            assert_same(DensePage(page).unpack(), sample.image)
            assert json.loads(members[f"{key}.json"])["filename"] == sample.filename
            stored += len(page)
    assert stored < 6 * SIZE * SIZE * 3 / 2


def test_webdataset_decodes_the_dense_bytes(synthetic, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    write(synthetic, tmp_path)
    made = folder(synthetic, "val", DEVICE)
    pattern = f"{tmp_path}/val-{{000000..000001}}.tar"
    for place, read in enumerate(webdataset.WebDataset(pattern, shardshuffle=False).decode()):
        assert_same(DensePage(read["image.npy"]).unpack(), made.sample(place).image)


def test_maps_of_dense_shards_follow_the_settings_of_their_reader(synthetic, tmp_path):
    place, targets = write(synthetic, tmp_path), Targets(shrink_ratio=0.6)
    expected = list(Loader(folder(synthetic, "val", DEVICE, targets=targets), 3, 0))
    assert_same(without_paths(list(Loader(OCRWebDataset(place, DEVICE, targets=targets), 3))), without_paths(expected))
    with pytest.raises(ConfigError, match=r"made by other stages.*Letterbox\(size=64.*Convert again"):
        OCRWebDataset(place, DBTransforms([Letterbox(64), Normalize()]))


def test_an_open_dataset_does_not_read_on_in_another_form(synthetic, tmp_path):
    dataset = OCRWebDataset(write(synthetic, tmp_path), DEVICE)
    made, raw = folder(synthetic, "val", DEVICE), ConvertSettings(ready=True, form="raw", samples_per_shard=3)
    assert convert({"val": made}, str(tmp_path), raw) == 0
    with pytest.raises(DataError, match="replaced by those of other pages or stages"):
        dataset.set_epoch(1)


def test_dense_batches_are_no_views(synthetic, tmp_path):
    dataset = OCRWebDataset(write(synthetic, tmp_path), DEVICE)
    assert dataset.peek([0, 1, 2]) is None
    assert not dataset.can_view([0, 1, 2])


def dense_bytes(**header: int) -> np.ndarray:
    """A sound dense page, or one whose header says something else."""
    names = ("height", "width", "top", "left", "rows", "columns", "planes")
    data = DensePage.pack(np.random.default_rng(1).integers(0, 256, (SIDE, SIDE, 3), np.uint8)).data.copy()
    said = dict(zip(names, struct.unpack_from("<IIIIIIB", data), strict=True)) | header
    struct.pack_into("<IIIIIIB", data, 0, *said.values())
    return data


def write_tar(path: Path, image: np.ndarray, **document: Any) -> str:
    """A sound sample and one with this array, without a digest."""
    stream = io.BytesIO()
    for number, array in enumerate((dense_bytes(), image)):
        saved = io.BytesIO()
        np.save(saved, array)
        write_member(stream, f"{number:08d}.image.npy", saved.getvalue())
        write_member(stream, f"{number:08d}.json", json.dumps(DOCUMENT | (document if number else {})).encode())
    end_tar(stream)
    path.write_bytes(stream.getvalue())
    return str(path)


BAD = {
    "no bytes": (dense_bytes()[:0], "it has 0 bytes"),
    "half a header": (dense_bytes()[:20], "it has 20 bytes"),
    "half of its bytes": (dense_bytes()[: SIDE * SIDE], "damaged"),
    "other numbers": (dense_bytes().astype(np.int16), "not a page"),
    "no pixels": (dense_bytes(width=0, columns=0), "not a page"),
    "two planes": (dense_bytes(planes=2), "its header is wrong"),
    "a window off the page": (dense_bytes(top=1), "its header is wrong"),
    "another size": (dense_bytes(height=SIDE + 1, rows=SIDE + 1), r"\d+ bytes of \d+"),
    "a window of terabytes": (
        dense_bytes(height=1 << 31, width=1 << 31, rows=1 << 31, columns=1 << 31),
        "more pixels than its bytes can hold",
    ),
}


@pytest.mark.parametrize(("image", "reason"), BAD.values(), ids=BAD)
def test_a_bad_dense_page_is_named_or_skipped_and_counted(tmp_path, image, reason):
    tar = write_tar(tmp_path / "a.tar", image)
    for _ in range(2):
        with pytest.raises(DataError, match=rf"a\.tar: 00000001 .* at offset \d+: .*{reason}"):
            OCRWebDataset(tar, TRANSFORM)[1]
    dataset = OCRWebDataset(tar, TRANSFORM, on_bad_sample="skip")
    (batch,) = Loader(dataset, 2)
    assert len(batch["images"]) == 1
    assert len(dataset.ledger.files("skipped")) == 1


def test_a_few_bytes_that_declare_a_huge_page_are_refused_before_memory_is_taken(tmp_path):
    tar = write_tar(tmp_path / "a.tar", dense_bytes(height=1 << 31, width=1 << 31))
    with pytest.raises(ImageError, match=r"a\.tar/.*megapixels, more than decode\.max_pixels=178956970"):
        OCRWebDataset(tar, TRANSFORM)[1]


def test_the_wrong_digest_is_told_whatever_the_page_looks_like(tmp_path):
    tar = write_tar(tmp_path / "a.tar", dense_bytes(), arrays="0" * 16)
    with pytest.raises(DataError, match=r"a\.tar: 00000001 .*not the arrays that were stored"):
        OCRWebDataset(tar, TRANSFORM)[1]
