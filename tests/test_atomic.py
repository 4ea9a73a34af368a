"""A written file is there whole or not at all."""

import os

import pytest

from ocr.atomic import remove_partial_files, replacing


def test_a_finished_block_replaces_the_file_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "maps.npz"
    target.write_bytes(b"old")
    with replacing(target) as stream:
        stream.write(b"new")
        assert target.read_bytes() == b"old"
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["maps.npz"]


def test_missing_folders_are_made(tmp_path):
    with replacing(tmp_path / "a" / "b" / "c.json") as stream:
        stream.write(b"{}")
    assert (tmp_path / "a" / "b" / "c.json").read_bytes() == b"{}"


@pytest.mark.parametrize("interruption", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("before", [None, b"old"], ids=["new file", "existing file"])
def test_an_interrupted_block_leaves_no_trace(tmp_path, interruption, before):
    target = tmp_path / "maps.npz"
    if before is not None:
        target.write_bytes(before)

    def write_half():
        with replacing(target) as stream:
            stream.write(b"half")
            stream.flush()
            assert len(os.listdir(tmp_path)) == (2 if before else 1)
            raise interruption

    with pytest.raises(interruption):
        write_half()
    assert os.listdir(tmp_path) == (["maps.npz"] if before else [])
    assert before is None or target.read_bytes() == before


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    target = tmp_path / "maps.npz"
    from concurrent.futures import ThreadPoolExecutor

    def write(letter):
        with replacing(target) as stream:
            for _ in range(50):
                stream.write(letter * 1000)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, [b"a", b"b", b"c", b"d"] * 4))
    assert len(set(target.read_bytes())) == 1
    assert target.stat().st_size == 50_000
    assert os.listdir(tmp_path) == ["maps.npz"]


def test_a_name_as_long_as_the_file_system_takes_can_be_written(tmp_path):
    target = tmp_path / ("收" * 83 + ".json")
    assert len(target.name.encode()) == 254
    with replacing(target) as stream:
        stream.write(b"{}")
        (half,) = set(os.listdir(tmp_path)) - {target.name}
    assert target.read_bytes() == b"{}"
    # As a process leaves it that was killed: the highest process id there can be is never in use.
    (tmp_path / half.replace(str(os.getpid()), str(2**22 + 1))).touch()
    assert remove_partial_files(tmp_path) == 1
    assert os.listdir(tmp_path) == [target.name]
