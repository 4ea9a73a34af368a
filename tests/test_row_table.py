"""Rows of bytes in memory and in a mapped file: the same rows, and damage is told."""

import pickle
import subprocess
import sys

import pytest
import xxhash
from rejection import rejects

from ocr import row_table
from ocr.errors import DataError
from ocr.row_table import DamagedTableError, RowTableWriter, open_table

ROWS = [b"", b"a", b"bcd" * 100, b"\0" * 5]


def written(rows=ROWS) -> RowTableWriter:
    writer = RowTableWriter({"shard": "i", "number": "q"})
    for number, row in enumerate(rows):
        writer.append(row, number % 2, number << 40)
    return writer


@pytest.mark.parametrize("rows", [ROWS, []])
def test_rows_and_columns_are_the_same_in_memory_and_in_a_file(tmp_path, rows):
    saved = written(rows).save(tmp_path / "folder" / "a.rows", {"name": "ä\udc80"})
    for table in (written(rows).table({"name": "ä\udc80"}), saved, open_table(tmp_path / "folder" / "a.rows")):
        assert [table.row(index) for index in range(len(table))] == rows
        assert table.columns["shard"].tolist() == [number % 2 for number in range(len(rows))]
        assert table.columns["number"].tolist() == [number << 40 for number in range(len(rows))]
        assert table.about["name"] == "ä\udc80"


def test_rows_beyond_what_memory_may_hold_wait_in_a_temporary_file(monkeypatch):
    monkeypatch.setattr(row_table, "IN_MEMORY_BYTES", 100)
    table = written().table({})
    assert [table.row(index) for index in range(len(table))] == ROWS


@pytest.mark.parametrize("length", [0, 10, 24, 60, -1])
def test_a_file_that_is_cut_short_or_longer_is_not_opened(tmp_path, length):
    path = tmp_path / "a.rows"
    written().save(path, {})
    data = path.read_bytes()
    path.write_bytes(data[:length] if length >= 0 else data + b"x")
    with rejects(DamagedTableError, path=path):
        open_table(path)


@pytest.mark.parametrize("offset", [0, 9, 17, 30])
def test_a_damaged_header_or_description_is_not_opened(tmp_path, offset):
    path = tmp_path / "a.rows"
    written().save(path, {})
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    with rejects(DamagedTableError, path=path):
        open_table(path)


def test_a_damaged_row_is_told_and_the_others_are_read(tmp_path):
    path = tmp_path / "a.rows"
    written().save(path, {})
    data = bytearray(path.read_bytes())
    data[data.index(b"bcd")] ^= 1
    path.write_bytes(data)
    table = open_table(path)
    with rejects(DataError, path=path, value=2):
        table.row(2)
    assert table.row(3) == ROWS[3]


def test_no_damaged_byte_of_a_file_gives_other_rows(tmp_path):
    path = tmp_path / "a.rows"
    written().save(path, {})
    sound = path.read_bytes()
    for offset in range(0, len(sound), 7):
        data = bytearray(sound)
        data[offset] ^= 0x80
        path.write_bytes(data)
        try:
            table = open_table(path)
            rows = []
            for index in range(len(table)):
                try:
                    rows.append(table.row(index))
                except DataError:
                    rows.append(ROWS[index])
            assert rows == ROWS
        except DamagedTableError:
            pass


def test_another_process_maps_the_same_file_instead_of_a_copy(tmp_path):
    table = written([bytes(1 << 20)]).save(tmp_path / "a.rows", {})
    sent = pickle.dumps(table)
    assert len(sent) < 1000
    program = (
        "import pickle, sys; table = pickle.load(sys.stdin.buffer); "
        "print(len(table.row(0)), 'a.rows' in open('/proc/self/maps').read())"
    )
    answer = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True, check=True)
    assert answer.stdout.split() == [b"1048576", b"True"]


def test_a_file_that_was_replaced_by_other_rows_is_not_taken_for_the_first(tmp_path):
    path = tmp_path / "a.rows"
    sent = pickle.dumps(written().save(path, {}))
    assert len(pickle.loads(sent)) == len(ROWS)
    written([b"x", b"a", b"bcd" * 100, b"\0" * 5]).save(path, {})
    with rejects(DataError, path=path):
        pickle.loads(sent)
    path.unlink()
    with rejects(DataError, path=path, value=None):
        pickle.loads(sent)


@pytest.mark.parametrize(
    "change",
    [
        lambda described: described.replace(b'"<i8"', b'"|O8"'),
        lambda described: b"[" * len(described),
        lambda described: b"{" + described[1:-1],
    ],
    ids=["a column of objects", "nested too deep", "cut"],
)
def test_a_description_that_cannot_be_used_is_refused(tmp_path, change):
    path = tmp_path / "a.rows"
    # Python's parser gives up at a depth of about a thousand.
    written().save(path, {"note": "x" * 100_000})
    data = path.read_bytes()
    length = int.from_bytes(data[8:16], "little")
    described = change(data[24 : 24 + length])
    head = data[:8] + len(described).to_bytes(8, "little") + xxhash.xxh3_64_intdigest(described).to_bytes(8, "little")
    path.write_bytes(head + described + data[24 + length :])
    with rejects(DamagedTableError, path=path):
        open_table(path)
