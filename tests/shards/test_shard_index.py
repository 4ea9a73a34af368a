"""Tar shards: what is taken from them, and that damage is reported and not passed over."""

import io
import json
import struct
import tarfile

import numpy as np
import pytest
from rejection import rejects

from ocr.errors import DataError
from ocr.formats.npy_header import read_npy_header
from ocr.shards.index import RAW, Shard, ShardIndex, end_tar, scan_tar, write_member
from ocr.shards.members import as_array
from ocr.shards.sample_rows import SampleRows, StoredSample


def tar_of(*members: tuple[str, bytes]) -> bytearray:
    stream = io.BytesIO()
    for name, data in members:
        write_member(stream, name, data)
    end_tar(stream)
    return bytearray(stream.getvalue())


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


def test_an_index_comes_back_as_it_was_and_nonsense_is_refused():
    sample = StoredSample("00000000", "ä.jpg", 0, {"jpg": (512, 3)}, "aa", "bb")
    shards = (Shard("val-000000.tar", 10, "dd", 1),)
    index = ShardIndex("val", RAW, True, "cc", "", shards, SampleRows.of([sample]))
    text = "".join(index.json_parts())
    assert ShardIndex.read(io.BytesIO(text.encode()), "index") == index
    other = text.replace('\\u00e4.jpg",0', '\\u00e4.jpg",1')
    assert other != text
    for text in ("", "[]", "{}", '{"format": 9}', '{"format": 9, "samples": [3]}', other, other.replace(",1,", ",-1,")):
        with rejects(DataError, path="index"):
            ShardIndex.read(io.BytesIO(text.encode()), "index")


def written_index() -> dict:
    samples = [StoredSample(f"{at:08d}", f"{at}.jpg", 0, {"jpg": (512, 3)}, "aa", "bb", (5, 6)) for at in range(2)]
    index = ShardIndex("val", RAW, True, "cc", "", (Shard("val-000000.tar", 10, "dd", 2),), SampleRows.of(samples))
    return json.loads("".join(index.json_parts()))


CHANGES = {
    "name": lambda index: index["samples"][0].__setitem__(1, "another.jpg"),
    "key": lambda index: index["samples"][1].__setitem__(0, "00000007"),
    "one less": lambda index: index["samples"].pop(),
    "annotated": lambda index: index.update(annotated=False),
    "shard": lambda index: index["shards"][0].update(bytes=11),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_index_that_was_changed_in_any_part_is_refused(change):
    index = written_index()
    change(index)
    with rejects(DataError, value=index["digest"], path="val-index.json"):
        ShardIndex.read(io.BytesIO(json.dumps(index).encode()), "val-index.json")
    del index["digest"]  # An index from before there was one.
    assert ShardIndex.read(io.BytesIO(json.dumps(index).encode()), "val-index.json").split == "val"


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
    "a source that is a list": lambda index: index.update(source=[]),
    "nesting without end": lambda index: index.update(source="DEEP"),
}


@pytest.mark.parametrize("change", BAD_PARTS.values(), ids=BAD_PARTS)
def test_an_index_with_a_part_that_cannot_be_is_refused_by_name(change):
    index = written_index()
    del index["digest"]
    change(index)
    text = json.dumps(index).replace('"DEEP"', "[" * 100_000)
    with rejects(DataError, value=None, path="val-index.json"):
        ShardIndex.read(io.BytesIO(text.encode()), "val-index.json")


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
    with rejects(DataError, value=None, path="a.tar"):
        as_array(np.frombuffer(data, np.uint8), "a.tar: 7", "a.tar")


def test_a_sample_in_a_shard_that_is_not_listed_is_refused():
    index = written_index()
    del index["digest"]
    index["samples"][1][2] = 1
    with rejects(DataError, value=1, path="val-index.json"):
        ShardIndex.read(io.BytesIO(json.dumps(index).encode()), "val-index.json")
