"""store: what is written is read by every process; what goes wrong costs values, never a right one and no process."""

import ctypes
import os
import random
import resource
import shutil
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cached_pages import Child, in_child, in_threads

from ocr.cache.store import AT_ONCE, MAX_WAITING, checked, close_store, open_store, unchecked

PSIZE = 4096
LEAF = 2


def key(number: int, stages: int = 0) -> bytes:
    return stages.to_bytes(8, "big") + random.Random(number).randbytes(16)


def value(number: int, size: int = 3000) -> bytes:
    return checked(random.Random(number).randbytes(size))


def fill(root: Path | str, numbers: range, size: int = 3000, stages: int = 0) -> None:
    store = open_store(Path(root), "1GB")
    for number in numbers:
        store.put("pages", key(number, stages), value(number, size))
    close_store(Path(root))


def found(root: Path | str, numbers: range, size: int = 3000) -> int:
    """How many values are there; all of them are as they were written."""
    store = open_store(Path(root), "1GB")
    kept = [(number, store.get("pages", key(number))) for number in numbers]
    close_store(Path(root))
    assert all(text in (None, value(number, size)) for number, text in kept)
    return sum(text is not None for _, text in kept)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cache"
    close_store(tmp_path / "cache")


def test_values_come_back_from_the_same_store_and_from_the_next(root):
    numbers = range(3 * MAX_WAITING)  # More than can wait at a time.
    fill(root, numbers, size=100)
    assert found(root, numbers, size=100) == len(numbers)
    store = open_store(root)
    assert store.get("pages", key(len(numbers))) is None
    assert store is open_store(root)
    store.put("pages", key(0), b"another")
    store.put("files", key(0), b"of another table")
    store.flush()
    assert store.get("pages", key(0)) == b"another"
    assert store.get("files", key(0)) == b"of another table"
    assert [each for each, _ in store.items("pages")] == sorted(map(key, numbers))


def test_values_of_some_stages_are_listed_and_deleted_and_others_stay(root):
    for stages in (1, 2, 3):
        fill(root, range(AT_ONCE), stages=stages)
    store = open_store(root)
    prefix = (2).to_bytes(8, "big")
    assert len(list(store.items("pages", prefix))) == len(list(store.items("used", prefix))) == AT_ONCE
    store.delete_all(prefix)
    assert [len(list(store.items(table))) for table in ("pages", "used")] == [2 * AT_ONCE] * 2
    assert not list(store.items("pages", prefix))


def test_a_store_takes_what_its_values_take_and_gives_room_back_when_it_is_compacted(root):
    fill(root, range(100), size=20_000)
    store = open_store(root)
    full = store.file_bytes()
    assert 100 * 20_000 < store.used_bytes() <= full
    store.delete([key(number) for number in range(90)])
    assert store.used_bytes() < 20 * 20_000 < full <= store.file_bytes()
    assert store.compact()
    assert store.file_bytes() < 20 * 20_000
    assert store.get("pages", key(95)) == value(95, 20_000)
    store.put("pages", key(0), value(0))
    store.flush()
    assert store.get("pages", key(0)) == value(0)
    assert store.remove()
    assert not list(root.iterdir())


def read_until_told(root: str, told: str) -> int:
    store = open_store(Path(root))
    hits = 0
    while not Path(told).exists():
        hits += store.get("pages", key(1)) is not None
    store.put("pages", key(7), value(7))
    store.flush()
    return hits


def test_files_that_another_process_has_open_are_neither_compacted_nor_removed(root, tmp_path):
    fill(root, range(9))
    child = Child(read_until_told, str(root), str(tmp_path / "told"))
    store = open_store(root)
    while store.compact():  # Until the child has opened it.
        time.sleep(0.01)
    assert not store.remove()
    store.delete([key(number) for number in range(9)])
    (tmp_path / "told").touch()
    assert child.wait()["result"] > 0
    assert found(root, range(9)) == 1
    assert [path.name for path in root.iterdir()] == ["store"]


def test_a_flush_waits_for_what_was_put_before_it_and_for_nothing_that_comes_after(root):
    store = open_store(root)
    fresh = iter(range(1000, 10**9))

    def put() -> None:
        store.put("pages", key(number := next(fresh)), value(number, 100))

    with in_threads(put):
        for number in range(20):
            store.put("pages", key(number), value(number))
            store.flush()
            assert store.get("pages", key(number)) == value(number)
    assert not store.stopped


def test_a_store_that_is_closed_finds_and_keeps_nothing_and_nothing_waits(root):
    store = open_store(root)
    close_store(root)
    store.put("pages", key(1), value(1))
    store.flush()
    assert store.get("pages", key(1)) is None
    assert not list(store.items("pages"))


# -- processes


def test_two_processes_write_at_the_same_time_and_nothing_is_lost(root):
    children = [Child(fill, str(root), numbers) for numbers in (range(60), range(30, 90))]
    for child in children:
        assert child.wait()["status"] == 0
    assert found(root, range(90)) == 90


def fill_for_ever(root: str) -> None:
    store = open_store(Path(root), "1GB")
    for number in range(10**6):
        store.put("pages", key(number), value(number))


@pytest.mark.parametrize("kills", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_a_writer_that_is_killed_leaves_whole_values_and_others_write_on(root, kills):
    moments = random.Random(kills)
    kept = 0
    for _ in range(kills):
        child = Child(fill_for_ever, str(root))
        time.sleep(moments.uniform(0.01, 0.2))
        child.kill()
        assert child.wait()["status"] == -signal.SIGKILL
        now = found(root, range(3000))
        assert now >= kept
        kept = now
    assert kept > AT_ONCE
    fill(root, range(3000, 3010))
    assert found(root, range(3000, 3010)) == 10


def read_and_write(root: str, number: int) -> None:
    store = open_store(Path(root))
    assert store.get("pages", key(1)) == value(1)
    store.put("pages", key(100 + number), value(100 + number))
    store.flush()


def test_a_process_that_forks_while_its_threads_read_and_write_has_a_store_and_so_has_its_child(root):
    store = open_store(root)
    fresh = iter(range(1000, 10**9))

    def use() -> None:
        assert store.get("pages", key(1)) == value(1)
        store.put("pages", key(number := next(fresh)), value(number, 10))

    store.put("pages", key(1), value(1))
    store.flush()
    with in_threads(use):
        for number in range(8):
            in_child(read_and_write, str(root), number)
    store.flush()
    assert all(store.get("pages", key(100 + number)) == value(100 + number) for number in range(8))
    last = next(fresh) - 1
    assert all(store.get("pages", key(number)) == value(number, 10) for number in range(1000, last))


def test_a_folder_that_is_removed_under_a_writer_is_made_once_more(root, tmp_path):
    store = open_store(root)
    store.put("pages", key(1), value(1))
    store.flush()
    root.rename(tmp_path / "moved")
    store.put("pages", key(2), value(2))
    close_store(root)
    assert [found(folder, range(3)) for folder in (root, tmp_path / "moved")] == [1, 1]


# -- folders and disks


def use(root: str, numbers: range) -> list[Any]:
    """Reason why nothing more is kept, and how many of the values are."""
    store = open_store(Path(root), "1GB")
    for number in numbers:
        store.put("pages", key(number), value(number))
        store.flush()
    kept = sum(store.get("pages", key(number)) == value(number) for number in numbers)
    close_store(Path(root))
    return [store.stopped, kept]


def as_somebody_else(function: Callable[..., Any], folder: str, *arguments: Any) -> Any:
    """In a folder, because those above it are closed to this user."""
    os.chdir(folder)
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    return function(*arguments)


def test_a_store_of_somebody_else_is_read_and_nothing_is_written(root, tmp_path):
    fill(root, range(5))
    for path in (tmp_path, *root.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    answer = in_child(as_somebody_else, use, str(tmp_path), "cache", range(8))
    for path in (tmp_path, *root.rglob("*")):
        path.chmod(0o755)
    assert answer["result"][0]
    assert answer["result"][1] == 5
    assert found(root, range(8)) == 5


@pytest.mark.parametrize("exists", [True, False], ids=["empty folder", "no folder"])
def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path, exists):
    (tmp_path / "cache").mkdir()
    tmp_path.chmod(0o555)
    (tmp_path / "cache").chmod(0o555)
    answer = in_child(as_somebody_else, use, str(tmp_path), "cache" if exists else "another", range(2))
    tmp_path.chmod(0o755)
    assert answer["result"][1] == 0
    assert len(answer["warnings"]) == 1


def test_a_place_where_no_folder_can_be_is_one_warning(tmp_path, caplog):
    (tmp_path / "file").touch()
    assert use(str(tmp_path / "file" / "cache"), range(2))[1] == 0
    assert len(caplog.records) == 1


def use_with_short_files(root: str, numbers: range) -> list[Any]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
    return use(root, numbers)


def test_a_file_that_must_not_grow_keeps_what_is_in_it(root):
    answer = in_child(use_with_short_files, str(root), range(60))
    stopped, kept = answer["result"]
    assert stopped
    assert 5 < kept < 60
    assert len(answer["warnings"]) == 1
    assert found(root, range(60)) == kept
    fill(root, range(60))
    assert found(root, range(60)) == 60


def use_with_few_addresses(root: str, numbers: range) -> list[Any]:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), resource.RLIM_INFINITY))
    return use(root, numbers)


def test_a_process_with_few_addresses_left_has_a_store(root):
    assert in_child(use_with_few_addresses, str(root), range(9))["result"] == ["", 9]


def use_small_disk(root: str) -> list[Any] | None:
    """A real file system gets full, and has room again; None where this user can mount none."""
    library, owner = ctypes.CDLL(None), os.getuid()
    new_mounts, new_user, private, remount = 0x20000, 0x10000000, 0x44000, 0x20
    if library.unshare(new_mounts | (new_user if owner else 0)):
        return None
    if owner:
        Path("/proc/self/uid_map").write_text(f"0 {owner} 1")
    library.mount(b"none", b"/", None, private, None)
    if library.mount(b"tmpfs", root.encode(), b"tmpfs", 0, b"size=200k"):
        return None
    stopped, kept = use(root, range(60))
    again = found(root, range(60))
    assert library.mount(b"tmpfs", root.encode(), b"tmpfs", remount, b"size=10m") == 0
    return [stopped, kept, again, *use(root, range(60))]


def test_a_disk_that_is_full_keeps_what_is_on_it_and_the_next_run_writes_on(root, monkeypatch):
    root.mkdir()
    monkeypatch.setattr("ocr.cache.budget.MIN_RESERVE_BYTES", 0)
    monkeypatch.setattr("ocr.cache.budget.RESERVE_SHARE", 0.0)
    answer = in_child(use_small_disk, str(root))
    if answer["result"] is None:
        pytest.skip("this user cannot mount a file system")
    stopped, kept, again, later, all_of_them = answer["result"]
    assert stopped
    assert 10 < kept == again < 60
    assert (later, all_of_them) == ("", 60)
    assert len(answer["warnings"]) == 1


# -- damage


def data_of(root: Path) -> Path:
    return root / "store" / "data.mdb"


def cut(data: bytearray) -> None:
    del data[len(data) // 2 :]


def cut_the_last_page(data: bytearray) -> None:
    del data[-1:]


def garbage(data: bytearray) -> None:
    data[:] = random.Random(1).randbytes(len(data))


def lose_the_tree(data: bytearray) -> None:
    """Zeros in the place of every page of the tree."""
    for start in range(2 * PSIZE, len(data), PSIZE):
        if struct.unpack_from("<H", data, start + 10)[0] & 3:
            data[start : start + PSIZE] = bytes(PSIZE)


@pytest.mark.parametrize("damage", [cut, cut_the_last_page, garbage, lose_the_tree])
def test_a_damaged_file_is_set_aside_once_and_a_new_one_takes_its_place(root, damage):
    fill(root, range(50))
    data = bytearray(data_of(root).read_bytes())
    damage(data)
    data_of(root).write_bytes(data)
    answer = in_child(use, str(root), range(50))
    stopped, kept = answer["result"]
    assert not stopped
    assert kept >= 49  # The value whose writing found the damage is lost.
    assert len(answer["warnings"]) == 1
    assert (root / "store.damaged" / "data.mdb").read_bytes() == data
    assert found(root, range(50)) == kept


def test_an_empty_file_is_a_new_store(root):
    fill(root, range(5))
    data_of(root).write_bytes(b"")
    assert found(root, range(5)) == 0
    fill(root, range(5))
    assert found(root, range(5)) == 5


def test_a_store_with_free_pages_at_its_end_is_not_damaged(root, caplog):
    """LMDB does not write them: the file would be shorter than its last page says."""
    draw = random.Random(13)
    store, keys = open_store(root, "1GB"), list[bytes]()
    for _ in range(25):
        fresh = [draw.randbytes(24) for _ in range(draw.randrange(200))]
        for each in fresh:
            store.put("pages", each, draw.randbytes(draw.choice((20, 300, 1500, 9000))))
        store.flush()
        keys += fresh
        draw.shuffle(keys)
        gone = draw.randrange(len(keys) + 1) if draw.random() < 0.6 else 0
        store.delete(keys[:gone])
        del keys[:gone]
        close_store(root)
        store = open_store(root, "1GB")
        assert sorted(keys) == [each for each, _ in store.items("pages")]
    assert not caplog.records


def test_threads_that_find_the_damage_together_set_one_file_aside(root):
    fill(root, range(50))
    answer = in_child(damage_while_open, str(root))
    assert answer["result"] == 50
    assert len(answer["warnings"]) == 1
    assert found(root, range(50)) == 50


def damage_while_open(root: str) -> int:
    store = open_store(Path(root), "1GB")
    data = bytearray(data_of(Path(root)).read_bytes())
    lose_the_tree(data)
    with data_of(Path(root)).open("r+b") as stream:
        stream.write(data)

    def use() -> None:
        for number in range(50):
            if store.get("pages", key(number)) != value(number):
                store.put("pages", key(number), value(number))

    with in_threads(use, 4):
        store.flush()
        time.sleep(0.2)
    store.flush()
    return sum(store.get("pages", key(number)) == value(number) for number in range(50))


def read_damaged(root: str, seed: int) -> list[int]:
    """How many values of two rounds are as they were, and how many are others."""
    draw, file = random.Random(seed), data_of(Path(root))
    data = bytearray(file.read_bytes())
    for _ in range(draw.choice((1, 1, 4))):
        start, length = draw.randrange(len(data)), draw.choice((1, 16, 128, PSIZE))
        data[start : start + length] = draw.choice((draw.randbytes(length), bytes(length)))[: len(data) - start]
    file.write_bytes(data)
    store, right, wrong = open_store(Path(root), "1GB"), 0, 0
    for _ in range(2):
        for number in range(50):
            text = store.get("pages", key(number))
            kept = unchecked(text) if text is not None else None
            right += checked(kept) == value(number) if kept is not None else 0
            wrong += checked(kept) != value(number) if kept is not None else 0
            if kept is None:
                store.put("pages", key(number), value(number))
        store.flush()
    return [right, wrong]


@pytest.mark.parametrize("cases", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_whatever_is_damaged_no_value_is_another_one(root, tmp_path, cases):
    fill(root, range(50))
    sound = data_of(root).read_bytes()
    right = 0
    for seed in range(cases):
        shutil.rmtree(root)
        data_of(root).parent.mkdir(parents=True)
        data_of(root).write_bytes(sound)
        kept, wrong = in_child(read_damaged, str(root), seed)["result"]
        assert wrong == 0
        right += kept
    assert right > 50 * cases
