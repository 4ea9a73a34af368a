"""Tar shards: what is taken from them, and that damage is reported and not passed over."""

import io
import json
import struct
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from rejection import rejects

from ocr.errors import DataError
from ocr.formats.npy_header import read_npy_header
from ocr.shards.index import RAW, SampleRows, SampleRowsWriter, Shard, ShardIndex, StoredSample, scan_tar
from ocr.shards.writer import TarWriter


def tar_of(*members: tuple[str, bytes]) -> bytearray:
    stream = io.BytesIO()
    tar = TarWriter(stream)
    for name, data in members:
        key, _, extension = name.rpartition(".")
        tar.add(key, {extension: data})
    tar.end()
    return bytearray(stream.getvalue())


def rows(*samples: StoredSample) -> SampleRows:
    writer = SampleRowsWriter()
    for sample in samples:
        writer.append(sample)
    return SampleRows.of(writer.table({}))


def read(text: str) -> ShardIndex:
    return ShardIndex.of(ShardIndex.read(io.BytesIO(text.encode()), "val-index.json"))


PAGES = tar_of(*((f"0000000{n}.{kind}", kind.encode() * 9) for n in range(3) for kind in ("jpg", "json")))


def test_samples_are_found_with_the_place_of_their_members():
    found = dict(scan_tar(io.BytesIO(PAGES), "a.tar"))
    assert list(found) == ["00000000", "00000001", "00000002"]
    start, size = found["00000001"]["json"]
    assert PAGES[start : start + size] == b"json" * 9
    with tarfile.open(fileobj=io.BytesIO(PAGES)) as tar:
        assert len(tar.getnames()) == 6


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1024, 5 * 512])
def test_members_of_any_length_are_read_by_other_readers_of_tar(size):
    data = tar_of(("a.jpg", b"a" * size), ("b.json", b"b" * size), ("c.jpg", b"c"))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [(member.name, tar.extractfile(member).read()) for member in tar] == [
            ("a.jpg", b"a" * size),
            ("b.json", b"b" * size),
            ("c.jpg", b"c"),
        ]


@pytest.mark.parametrize(("bit_at", "offset"), [(20, 0), (1024 + 20, 1024), (4096 + 130, 4096)])
def test_a_damaged_header_is_told_with_its_offset_and_no_sample_lost_in_silence(bit_at, offset):
    damaged = bytearray(PAGES)
    damaged[bit_at] ^= 4
    with rejects(DataError, value=offset, path="a.tar"):
        list(scan_tar(io.BytesIO(damaged), "a.tar"))


@pytest.mark.parametrize(("length", "offset"), [(300, 0), (1024 + 100, 1024), (2048 + 700, 2048)])
def test_a_tar_that_is_cut_short_is_told(length, offset):
    with rejects(DataError, value=offset, path="a.tar"):
        list(scan_tar(io.BytesIO(PAGES[:length]), "a.tar"))


@pytest.mark.parametrize("name", ["/etc/passwd.jpg", "../up.jpg", "a\\b.jpg", "code.pkl", "run.py", "x.pyd"])
def test_what_is_no_plain_data_or_leaves_its_place_is_passed_over(name):
    found = list(scan_tar(io.BytesIO(tar_of(("a.jpg", b"1"), (name, b"2"))), "a.tar"))
    assert found == [("a", {"jpg": (512, 1)})]


def test_links_and_devices_are_passed_over():
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    stream.seek(0)
    assert list(scan_tar(stream, "a.tar")) == []


SHARDS = (Shard("val-000000.tar", 10, "dd", 2),)


def written_index() -> dict[str, Any]:
    samples = [StoredSample(f"{at:08d}", f"ä{at}.jpg", 0, {"jpg": (512, 3)}, "aa", "bb", (5, 6)) for at in range(2)]
    return json.loads("".join(ShardIndex("val", RAW, True, "", SHARDS, rows(*samples)).json_parts()))


def test_an_index_comes_back_as_it_was():
    samples = [
        StoredSample(f"{at:08d}", f"ä{at}.jpg", 0, {"jpg": (512, 3)}, "aa", "bb", size)
        for at, size in ((0, None), (1, (5, 6)))
    ]
    index = ShardIndex("val", RAW, True, "", SHARDS, rows(*samples))
    found = read("".join(index.json_parts()))
    assert (found.head, found.shards, list(found.samples)) == (index.head, index.shards, samples)


def test_the_text_of_an_index_is_the_one_of_a_whole_json_document():
    for samples in ([], [StoredSample("7", "ä.jpg", 0, {"jpg": (512, 3), "json": (7, 9)}, "aa", "bb")]):
        text = "".join(ShardIndex("val", RAW, True, "", SHARDS, rows(*samples)).json_parts())
        document = json.loads(text)
        assert text == json.dumps(document, separators=(",", ":")) + "\n"
        assert list(document) == ["format", "split", "kind", "annotated", "stages", "shards", "samples", "digest"]
        assert document["samples"] == [json.loads(json.dumps(stored.to_row())) for stored in samples]


CHANGES = {
    "name": lambda index: index["samples"][0].__setitem__(1, "another.jpg"),
    "key": lambda index: index["samples"][1].__setitem__(0, "00000007"),
    "one less": lambda index: index["samples"].pop(),
    "annotated": lambda index: index.update(annotated=False),
    "shard": lambda index: index["shards"][0].update(bytes=11),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_index_that_was_changed_in_any_part_is_refused(change: Callable[[Any], None]):
    index = written_index()
    change(index)
    with rejects(DataError, value=index["digest"], path="val-index.json"):
        read(json.dumps(index))


BAD_PARTS = {
    "a digest that is none": lambda index: index["samples"][0].__setitem__(4, "x" * 32),
    "a digest that is a list": lambda index: index["samples"][0].__setitem__(5, []),
    "a key that is a number": lambda index: index["samples"][0].__setitem__(0, 7),
    "an offset before the start": lambda index: index["samples"][0][3].update(jpg=[-512, 3]),
    "an offset beyond all files": lambda index: index["samples"][0][3].update(jpg=[10**30, 3]),
    "an infinite size": lambda index: index["samples"][0].__setitem__(6, [float("inf"), 1]),
    "a shard without a name": lambda index: index["shards"][0].update(name=None),
    "a shard of less than nothing": lambda index: index["shards"][0].update(bytes=-1),
    "a kind that is not known": lambda index: index.update(kind="cooked"),
    "annotated is a text": lambda index: index.update(annotated="yes"),
    "stages that are a list": lambda index: index.update(stages=[]),
    "nesting without end": lambda index: index.update(stages="DEEP"),
    "no digest": lambda index: index.pop("digest"),
}


@pytest.mark.parametrize("change", BAD_PARTS.values(), ids=BAD_PARTS)
def test_an_index_with_a_part_that_cannot_be_is_refused_by_name(change: Callable[[Any], None]):
    index = written_index()
    change(index)
    with rejects(DataError, value=None, path="val-index.json"):
        read(json.dumps(index).replace('"DEEP"', "[" * 100_000))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 9}', '{"format": 9, "samples": [3]}'])
def test_what_is_not_an_index_is_refused_by_name(text):
    with rejects(DataError, path="val-index.json"):
        read(text)


def test_an_index_of_another_format_is_refused_by_name():
    with rejects(DataError, value=1, path="val-index.json"):
        read(json.dumps(written_index() | {"format": 1}))


def test_a_sample_in_a_shard_that_is_not_listed_is_refused():
    samples = [StoredSample("00000000", "a.jpg", shard, {"jpg": (512, 3)}, "aa", "bb") for shard in (0, 1)]
    with rejects(DataError, value=1, path="val-index.json"):
        read("".join(ShardIndex("val", RAW, True, "", SHARDS, rows(*samples)).json_parts()))


def test_a_file_that_is_no_tar_is_damaged_from_its_first_byte_on():
    with rejects(DataError, value=0, path="a.tar"):
        list(scan_tar(io.BytesIO(b"no tar" * 200), "a.tar"))


HEADERS = {
    "a bracket that stays open": b"{'descr': '<f4', 'shape': (3,",
    "a text that stays open": b"{'descr': '''",
    "minus signs without end": b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"-" * 5000 + b"1,)}",
    "brackets without end": b"(" * 5000,
    "a side of less than nothing": b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
    "objects": b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_damaged_header_of_an_array_is_refused_by_name(header):
    data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(64)
    with pytest.raises(ValueError, match=r"."):
        read_npy_header(io.BytesIO(data))
