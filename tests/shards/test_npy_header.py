"""Arrays whose header is damaged: refused by name, whatever Python's parser says to them."""

import io
import struct

import numpy as np
import pytest
from rejection import rejects

from ocr.errors import DataError
from ocr.formats.npy_header import read_npy_header
from ocr.shards.members import as_array

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
