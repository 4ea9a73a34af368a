"""Stored maps: what a file declares is compared before anything is unpacked."""

import io
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from rejection import rejects

from ocr.errors import MapError
from ocr.formats.maps import MAX_PIXELS, pack_maps, read_fingerprint, read_maps

MAPS = (np.eye(30, 40, dtype=np.float32), np.full((30, 40), 0.3, np.float32), np.eye(30, 40) > 0, np.eye(30, 40) == 0)
LARGE = 8000


def packed(maps=MAPS, compress=True):
    stream = io.BytesIO()
    pack_maps(stream, maps, "mine", compress)
    return stream.getvalue()


def peak_bytes(action):
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def bomb():
    """Maps of 8000 x 8000: 450 MB, packed into less than one."""
    maps = (np.zeros((LARGE, LARGE), np.uint8), np.zeros((LARGE, LARGE), np.float32), *MAPS[2:])
    data = packed(maps)
    assert len(data) < 1_000_000
    return data


@pytest.mark.parametrize("compress", [False, True])
def test_maps_come_back_as_they_were_and_may_be_written_to(compress):
    fingerprint, maps = read_maps(io.BytesIO(packed(compress=compress)), "mine", (40, 30))
    assert fingerprint == "mine"
    for found, stored in zip(maps, MAPS, strict=True):
        assert np.array_equal(found, stored)
        assert found.dtype == stored.dtype
        assert found.flags.writeable


def test_maps_of_another_fingerprint_are_not_unpacked(bomb):
    assert read_maps(io.BytesIO(bomb), "other") == ("mine", None)
    assert peak_bytes(lambda: read_maps(io.BytesIO(bomb), "other")) < 2_000_000


def test_maps_of_another_size_are_not_unpacked_even_if_their_fingerprint_fits(bomb):
    def read():
        with rejects(MapError, value="prob_map of uint8 (1, 8000, 8000)"):
            read_maps(io.BytesIO(bomb), "mine", (40, 30))

    assert peak_bytes(read) < 2_000_000


def with_member(name, content):
    stream = io.BytesIO(packed())
    with zipfile.ZipFile(stream) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    changed = io.BytesIO()
    with zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in (members | {name: content}).items():
            archive.writestr(member, data)
    return io.BytesIO(changed.getvalue())


def npy(shape, descr, data=b""):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


DAMAGED = {
    "more bytes than declared": ("prob_map.npy", npy((1, 30, 40), "|u1", bytes(5_000_000))),
    "fewer bytes than declared": ("prob_map.npy", npy((1, 30, 40), "|u1", bytes(30))),
    "no axis in front": ("prob_map.npy", npy((30, 40), "|u1", bytes(1200))),
    "another type": ("thresh_map.npy", npy((1, 30, 40), "<f8", bytes(9600))),
    "objects": ("thresh_map.npy", npy((1, 30, 40), "|O", bytes(9600))),
    "negative sides": ("prob_map.npy", npy((1, -30, -40), "|u1", bytes(1200))),
    "a page of many megapixels": ("prob_map.npy", npy((1, MAX_PIXELS, 2), "|u1", bytes(1200))),
    "a long fingerprint": ("fingerprint.npy", npy((), "<U100000000", b"")),
    "a list of fingerprints": ("fingerprint.npy", npy((5,), "<U4", bytes(80))),
    "no array": ("prob_mask.npy", b"nothing"),
}


@pytest.mark.parametrize(("name", "content"), DAMAGED.values(), ids=DAMAGED)
def test_a_map_that_is_not_what_its_header_declares_is_refused_and_costs_no_memory(name, content):
    def read():
        with rejects(MapError, setting=None, path=None):
            read_maps(with_member(name, content))

    assert peak_bytes(read) < 12_000_000


def test_a_fingerprint_is_not_read_without_limit():
    with rejects(MapError, value="fingerprint of <U100000000 ()"):
        read_fingerprint(with_member(*DAMAGED["a long fingerprint"]))


@pytest.mark.parametrize("member", ["fingerprint.npy", "thresh_map.npy"])
def test_a_map_whose_header_python_cannot_parse_is_refused_by_name(tmp_path, member):
    (tmp_path / "a.npz").write_bytes(packed())
    header = b"{'descr': '<f4', 'shape': (3,"
    damaged = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with zipfile.ZipFile(tmp_path / "a.npz") as old, zipfile.ZipFile(tmp_path / "b.npz", "w") as new:
        for name in old.namelist():
            new.writestr(name, damaged if name == member else old.read(name))
    with rejects(MapError, path=tmp_path / "b.npz"):
        read_maps(tmp_path / "b.npz")


def test_a_map_file_that_is_compressed_by_another_method_is_refused_by_name(tmp_path):
    (tmp_path / "a.npz").write_bytes(packed())
    with zipfile.ZipFile(tmp_path / "a.npz") as old, zipfile.ZipFile(tmp_path / "b.npz", "w", zipfile.ZIP_LZMA) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    data = bytearray((tmp_path / "b.npz").read_bytes())
    data[60:90] = bytes(30)  # Its library has errors of its own for that.
    (tmp_path / "b.npz").write_bytes(data)
    with rejects(MapError, path=tmp_path / "b.npz"):
        read_fingerprint(tmp_path / "b.npz")
