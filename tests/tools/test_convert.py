"""Shards: what is in them, in which order, the same bytes whoever writes them, readable by what reads tar."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from convert_pages import NAMES, convert, files, open_pages, page_file, transforms, write_pages
from PIL import Image
from rejection import rejects
from sameness import assert_same

from ocr.datasets import OCRWebDataset
from ocr.errors import ConfigError, DataError
from ocr.pipeline.dense import DensePage
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.page_index import content_digest
from ocr.shards.index import ShardIndex
from ocr.tools.convert.plan import cut_into_shards, make_plan
from ocr.tools.convert.settings import ConvertSettings

FORMS = [{}, {"ready": True}, {"shuffle_seed": 1}]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read only."""
    return write_pages(tmp_path_factory.mktemp("pages"))


def members(out: Path) -> dict[str, bytes]:
    """Name and bytes of all members of all shards, in their order, as any tar reads them."""
    found = {}
    for path in sorted(out.glob("val-*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                stream = tar.extractfile(member)
                assert stream is not None
                assert (member.mtime, member.uid, member.gid, member.uname) == (0, 0, 0, "")
                found[member.name] = stream.read()
    return found


def read_index(out: Path) -> ShardIndex:
    with (out / "val-index.json").open("rb") as stream:
        return ShardIndex.of(ShardIndex.read(stream, "here"))


def test_a_raw_sample_is_the_file_itself_and_what_the_annotation_says(data, tmp_path):
    convert(data, tmp_path, samples_per_shard=3)
    source, found = open_pages(data).source, members(tmp_path)
    assert [name.partition(".")[2] for name in found] == [
        *("jpg", "json", "jpg", "json", "jpeg", "json", "png", "json", "jpg", "json", "png", "json", "jpg", "json")
    ]
    for index, name in enumerate(NAMES):
        extension = name.rpartition(".")[2].lower()
        assert found[f"{index:08d}.{extension}"] == page_file(data, index).read_bytes()
        text = found[f"{index:08d}.json"]
        noted = json.loads(text)
        polygons = source.entries[index].polygons
        assert noted["filename"] == name
        assert_same([np.array(polygon, dtype=np.float32) for polygon in noted["polygons"]], list(polygons))
        assert noted["ignore"] == polygons.ignore.tolist()
        assert noted["texts"] == list(polygons.texts)
        assert noted["orientation"] == (6 if index % 3 == 1 else 1)
        with Image.open(page_file(data, index)) as image:
            assert noted["raw_size"] == list(image.size)
        assert (noted["annotated"], noted["size"]) == (True, None)
        assert text.decode("ascii") == json.dumps(noted, sort_keys=True, separators=(",", ":"))


def test_the_index_tells_where_everything_lies(data, tmp_path):
    convert(data, tmp_path, samples_per_shard=3)
    index, source = read_index(tmp_path), open_pages(data).source
    assert (index.split, index.kind, index.annotated, index.stages) == ("val", "raw", True, "")
    assert [shard.samples for shard in index.shards] == [3, 3, 1]
    found = members(tmp_path)
    for place, stored in enumerate(index.samples):
        assert (stored.key, stored.filename) == (f"{place:08d}", NAMES[place])
        shard = (tmp_path / index.shards[stored.shard].name).read_bytes()
        assert len(shard) == index.shards[stored.shard].bytes
        for extension, (start, size) in stored.members.items():
            assert shard[start : start + size] == found[f"{stored.key}.{extension}"]
        assert stored.content == content_digest(page_file(data, place).read_bytes()).hex()
        assert stored.annotation == source.state(place).annotation.hex()


def test_plain_webdataset_reads_pixels_and_polygons(data, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    convert(data, tmp_path, samples_per_shard=3)
    pattern = f"{tmp_path}/val-{{000000..000002}}.tar"
    samples = list(webdataset.WebDataset(pattern, shardshuffle=False).decode("rgb8"))
    assert [sample["__key__"] for sample in samples] == [f"{index:08d}" for index in range(7)]
    for index, sample in enumerate(samples):
        with Image.open(page_file(data, index)) as image:
            assert_same(sample[NAMES[index].rpartition(".")[2].lower()], np.asarray(image.convert("RGB")))
        polygons = [np.array(polygon, dtype=np.float32) for polygon in sample["json"]["polygons"]]
        assert_same(polygons, list(open_pages(data).source.entries[index].polygons))


def test_ready_samples_are_those_of_the_dataset_bit_for_bit(data, tmp_path):
    webdataset = pytest.importorskip("webdataset")
    convert(data, tmp_path, ready=True, samples_per_shard=2)
    dataset, index = open_pages(data), read_index(tmp_path)
    assert (index.kind, index.stages) == (
        "ready",
        stages_digest((dataset.decode, *dataset.transform.fixed, DensePage)),
    )
    pattern = f"{tmp_path}/val-{{000000..000003}}.tar"
    for place, read in enumerate(webdataset.WebDataset(pattern, shardshuffle=False).decode()):
        sample, noted = dataset.sample(place), read["json"]
        assert_same(DensePage(read["image.npy"]).pixels(), sample.image)
        assert_same([np.array(polygon, np.float32) for polygon in noted["polygons"]], list(sample.polygons))
        assert_same(np.array(noted["inverse_matrix"]).reshape(3, 3), sample.inverse_matrix)
        for name in ("shape", "raw_size"):
            assert tuple(noted[name]) == getattr(sample, name)
        for name in ("filename", "orientation", "polygon_frame", "recovered", "dropped_polygons"):
            assert noted[name] == getattr(sample, name)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_training_gets_the_samples_of_the_folder(data, tmp_path, form):
    convert(data, tmp_path, samples_per_shard=3, **form)
    dataset, shards = open_pages(data), OCRWebDataset(str(tmp_path / "val-*.tar"), transforms())
    assert len(shards) == len(dataset)
    for index in range(7):
        expected, item = dataset[index], shards[index]
        for name in expected.keys() - {"image_path"}:
            assert_same(item[name], expected[name], name)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_same_pages_give_the_same_bytes_whoever_writes_them(data, tmp_path, form):
    first = convert(data, tmp_path / "one", samples_per_shard=2, workers=1, **form)
    moved = write_pages(tmp_path / "elsewhere")
    for path in moved.rglob("*.*"):
        path.touch()
    convert(moved, tmp_path / "three", samples_per_shard=2, workers=3, **form)
    expected = files(tmp_path / "one")
    assert expected == files(tmp_path / "three")
    assert len(expected) == len(first.index.shards) + 1


def test_a_shuffle_by_seed_changes_the_shards_and_not_the_order_of_the_source(data, tmp_path):
    orders = []
    for seed in (1, 1, 2):
        out = tmp_path / str(len(orders))
        convert(data, out, shuffle_seed=seed, samples_per_shard=3)
        orders.append([name.partition(".")[0] for name in members(out) if name.endswith(".json")])
        assert [stored.filename for stored in read_index(out).samples] == list(NAMES)
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == [f"{index:08d}" for index in range(7)] != orders[0]


def test_shards_are_cut_by_number_by_size_or_by_what_comes_first():
    def counts(sizes=(30, 30, 30, 90, 10, 10, 10), **limits):
        settings = ConvertSettings(**limits)
        shards = cut_into_shards(range(len(sizes)), sizes, settings)
        assert [index for shard in shards for index in shard] == list(range(len(sizes)))
        return [len(shard) for shard in shards]

    assert counts(samples_per_shard=3) == [3, 3, 1]
    assert counts(bytes_per_shard=60) == [2, 1, 1, 3]
    assert counts(bytes_per_shard="60B", samples_per_shard=2) == [2, 1, 1, 2, 1]
    assert counts(sizes=[1] * 2500) == [1000, 1000, 500]
    assert counts(sizes=[100_000_000] * 5) == [2, 2, 1]


def test_a_page_that_cannot_be_read_is_named_or_left_out_and_listed(tmp_path):
    data, out = write_pages(tmp_path / "pages"), tmp_path / "out"
    page_file(data, 3).write_bytes(b"no image")
    with rejects(DataError, value=b"no image", path=page_file(data, 3)):
        convert(data, out, samples_per_shard=2)
    for form in ({"ready": True}, {}):
        done = convert(data, out, on_bad_sample="skip", samples_per_shard=2, **form)
        assert list(done.skipped) == [NAMES[3]]
        assert "not an image" in done.skipped[NAMES[3]]
        assert [stored.filename for stored in read_index(out).samples] == [*NAMES[:3], *NAMES[4:]]
        again = convert(data, out, on_bad_sample="skip", samples_per_shard=2, **form)
        assert (again.written, list(again.skipped)) == (0, [NAMES[3]])
        shards = OCRWebDataset(str(out / "val-*.tar"), transforms())
        assert_same(shards[3]["image"], open_pages(data)[4]["image"])
    with rejects(DataError, value=b"no image", path=page_file(data, 3)):
        convert(data, out, samples_per_shard=2)


def test_what_cannot_work_is_refused_before_anything_is_written(data, tmp_path):
    for setting, value, more in (
        ("samples_per_shard", 0, {}),
        ("bytes_per_shard", "many", {}),
        ("bytes_per_shard", 0, {}),
        ("shuffle_seed", -1, {}),
        ("executor", "rya", {}),
        ("workers", 0, {}),
    ):
        with rejects(ConfigError, value=value) as caught:
            convert(data, tmp_path / "out", **{setting: value}, **more)
        assert str(caught.value.setting).startswith(setting)
    with rejects(ConfigError, setting="--split", value="../val"):
        make_plan(open_pages(data), "../val", tmp_path / "out", ConvertSettings())
    odd = write_pages(tmp_path / "odd", ("a.jpg",))
    (odd / "images/val/a.jpg").rename(odd / "images/val/a.picture")
    (odd / "jsons/val.json").write_text((odd / "jsons/val.json").read_text().replace("a.jpg", "a.picture"))
    dataset = open_pages(odd, image_extensions=[".picture"])
    with rejects(ConfigError, value="picture", path="a.picture"):
        make_plan(dataset, "val", tmp_path / "out", ConvertSettings())
    assert not (tmp_path / "out").exists()
