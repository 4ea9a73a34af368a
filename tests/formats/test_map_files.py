"""Stored maps: what a file declares is compared before anything is unpacked."""

import struct
import tracemalloc
import zipfile
from io import BytesIO

import numpy as np
import pytest
from rejection import rejects

from ocr.errors import MapError
from ocr.formats.maps import MAX_PIXELS, read_fingerprint, read_maps, write_maps

DTYPES = {"words": np.uint8, "borders": np.float32}
MAPS = {"words": np.eye(30, 40, dtype=np.uint8), "borders": np.full((30, 40), 0.3, np.float32)}
LARGE = 8000


@pytest.fixture
def file(tmp_path):
    write_maps(tmp_path / "a.npz", MAPS, "mine", compress=True)
    return tmp_path / "a.npz"


def peak_bytes(action):
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """Maps of 8000 x 8000: 320 MB, packed into less than one."""
    path = tmp_path_factory.mktemp("maps") / "bomb.npz"
    write_maps(path, {name: np.zeros((LARGE, LARGE), dtype) for name, dtype in DTYPES.items()}, "mine", compress=True)
    assert path.stat().st_size < 1_000_000
    return path


@pytest.mark.parametrize("compress", [False, True])
def test_maps_come_back_as_they_were_and_can_be_written_to(tmp_path, compress):
    write_maps(tmp_path / "a.npz", MAPS, "mine", compress)
    fingerprint, maps = read_maps(tmp_path / "a.npz", DTYPES, "mine", (40, 30))
    assert fingerprint == "mine"
    assert list(maps) == list(MAPS)
    for name, stored in MAPS.items():
        assert np.array_equal(maps[name], stored)
        assert maps[name].dtype == stored.dtype
        assert maps[name].flags.writeable


def test_maps_of_another_fingerprint_are_not_unpacked(bomb):
    assert read_maps(bomb, DTYPES, "other") == ("mine", None)
    assert peak_bytes(lambda: read_maps(bomb, DTYPES, "other")) < 2_000_000


def test_maps_of_another_size_are_not_unpacked_even_if_their_fingerprint_fits(bomb):
    def read():
        with rejects(MapError, value="words of uint8 (1, 8000, 8000)"):
            read_maps(bomb, DTYPES, "mine", (40, 30))

    assert peak_bytes(read) < 2_000_000


def with_member(file, name, content, method=zipfile.ZIP_DEFLATED):
    """The file with one member replaced or added."""
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(file, "w", method) as archive:
        for member, data in (members | {name: content}).items():
            archive.writestr(member, data)
    return file


def npy(shape, descr, data=b""):
    stream = BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


DAMAGED = {
    "more bytes than declared": ("words.npy", npy((1, 30, 40), "|u1", bytes(5_000_000))),
    "fewer bytes than declared": ("words.npy", npy((1, 30, 40), "|u1", bytes(30))),
    "no axis in front": ("words.npy", npy((30, 40), "|u1", bytes(1200))),
    "another type": ("borders.npy", npy((1, 30, 40), "<f8", bytes(9600))),
    "objects": ("borders.npy", npy((1, 30, 40), "|O", bytes(9600))),
    "negative sides": ("words.npy", npy((1, -30, -40), "|u1", bytes(1200))),
    "a page of many megapixels": ("words.npy", npy((1, MAX_PIXELS, 2), "|u1", bytes(1200))),
    "a long fingerprint": ("fingerprint.npy", npy((), "<U100000000", b"")),
    "a list of fingerprints": ("fingerprint.npy", npy((5,), "<U4", bytes(80))),
    "no array": ("borders.npy", b"nothing"),
}


@pytest.mark.parametrize(("name", "content"), DAMAGED.values(), ids=DAMAGED)
def test_a_map_that_is_not_what_its_header_declares_is_refused_and_costs_no_memory(file, name, content):
    with_member(file, name, content)

    def read():
        with rejects(MapError, path=file):
            read_maps(file, DTYPES)

    assert peak_bytes(read) < 12_000_000


def test_a_fingerprint_is_not_read_without_limit(file):
    with rejects(MapError, value="fingerprint of <U100000000 ()"):
        read_fingerprint(with_member(file, *DAMAGED["a long fingerprint"]))


@pytest.mark.parametrize("member", ["fingerprint.npy", "borders.npy"])
def test_a_map_whose_header_python_cannot_parse_is_refused_by_name(file, member):
    header = b"{'descr': '<f4', 'shape': (3,"
    with_member(file, member, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with rejects(MapError, path=file):
        read_maps(file, DTYPES)


def test_a_map_file_that_is_compressed_by_another_method_is_refused_by_name(file):
    with_member(file, "more", b"", zipfile.ZIP_LZMA)
    data = bytearray(file.read_bytes())
    data[60:90] = bytes(30)  # Its library has errors of its own for that.
    file.write_bytes(data)
    with rejects(MapError, path=file):
        read_fingerprint(file)
