"""budget: a store keeps to its limit; what was not used for longest goes first, and what is at work stays."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rejection import rejects

from ocr import system
from ocr.cache.budget import Budget
from ocr.cache.store import OWN_DAYS, Store, close_store, open_store
from ocr.errors import ConfigError
from ocr.system import free_memory, is_in_memory, total_memory

GIB = 1 << 30
SIZE, LIMIT = 12_000, 480_000  # Three pages of the file each.
OURS, THEIRS = 1, 2
STAT = "anon 5\nactive_file {file}\ninactive_file 0\ntotal_active_file {file}\ntotal_inactive_file 0\n"


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "cache").mkdir()
    yield tmp_path / "cache"
    close_store(tmp_path / "cache")


def put(store: Store, numbers: range, stages: int = OURS, days_ago: int = 0) -> None:
    """Values of these stages, used last so many days ago."""
    day = (int(time.time() // 86400) - days_ago).to_bytes(4, "big")
    for number in numbers:
        key = stages.to_bytes(8, "big") + number.to_bytes(16, "big")
        store.put("pages", key, random.Random(number).randbytes(SIZE))
        store.put("used", key, day)
    store.flush()


def kept(store: Store, stages: int = OURS) -> list[int]:
    keys = (key for key, _ in store.items("pages", stages.to_bytes(8, "big")))
    return [int.from_bytes(key[8:], "big") for key in keys]


def test_the_limit_is_a_number_of_bytes_or_half_of_what_the_disk_has_free(root):
    assert Budget(root, "20GB", 0).limit == 20 * 10**9
    free = Budget(root, "auto", 0).limit
    assert free > 0
    assert Budget(root, "auto", 10**9).limit == pytest.approx(free + 10**9 / 2, rel=0.1)
    for value in ("lots", "-1", True, None):
        with rejects(ConfigError, setting="cache.max_bytes", value=value):
            Budget(root, value, 0)


def test_what_was_not_used_for_longest_goes_first(root, caplog):
    store = open_store(root, LIMIT)
    for number, days in enumerate((1, 9, 3)):
        put(store, range(10 * number, 10 * number + 10), THEIRS, days)
    assert kept(store, THEIRS) == [*range(30)]
    put(store, range(12))
    assert kept(store) == [*range(12)]
    assert set(kept(store, THEIRS)) >= {*range(10), *range(20, 30)}
    assert len(kept(store, THEIRS)) < 30
    assert store.used_bytes() <= LIMIT
    assert not caplog.records


def test_a_value_that_is_read_is_used_today(root):
    store = open_store(root, LIMIT)
    put(store, range(20), THEIRS, days_ago=30)
    for number in range(5, 10):
        store.get("pages", THEIRS.to_bytes(8, "big") + number.to_bytes(16, "big"))
    store.flush()
    put(store, range(30))
    assert set(kept(store, THEIRS)) >= {*range(5, 10)}
    assert len(kept(store, THEIRS)) < 20


@pytest.mark.parametrize(("days_ago", "stays"), [(1, True), (OWN_DAYS + 1, False)])
def test_a_set_that_is_larger_than_the_limit_does_not_replace_itself_page_by_page(root, caplog, days_ago, stays):
    store = open_store(root, LIMIT)
    put(store, range(20), days_ago=days_ago)
    put(store, range(100, 160))
    assert (kept(store)[:20] == [*range(20)]) is stays
    assert len(kept(store)) > 20
    assert store.used_bytes() <= LIMIT * 1.1
    assert len(caplog.records) == 1
    assert str(LIMIT) in caplog.text
    # The next run has what is there, and keeps nothing more.
    before = kept(store)
    close_store(root)
    store = open_store(root, LIMIT)
    put(store, range(200, 220))
    assert kept(store) == before or not stays


def test_the_content_of_files_is_read_again_after_pages_are_removed(root):
    store = open_store(root, LIMIT)
    store.put("files", bytes(16), b"content")
    put(store, range(20), THEIRS, days_ago=30)
    put(store, range(30))
    assert not list(store.items("files"))


# -- memory


class Machine:
    """The files in which the system tells about memory and mounts."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: object) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(f"{text}\n")

    def memory(self, free: int, total: int = 10 * GIB) -> None:
        self.write("proc/meminfo", f"MemTotal: {total >> 10} kB\nMemFree: 1 kB\nMemAvailable: {free >> 10} kB")

    def mount(self, folder: Path, kind: str) -> None:
        device = folder.stat().st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        self.write("proc/self/mountinfo", f"25 24 9:99 / /x rw - ext4 x rw\n26 24 {number} / /y rw - {kind} y rw")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """10 GiB, all free, no cgroup."""
    monkeypatch.setattr(system, "ROOT", tmp_path / "system")
    machine = Machine(tmp_path / "system")
    machine.memory(free=10 * GIB)
    return machine


@pytest.mark.parametrize(("kind", "expected"), [("tmpfs", 0), ("ext4", 20)])
def test_a_store_in_memory_takes_nothing_of_the_reserve(machine, root, caplog, kind, expected):
    machine.mount(root, kind)
    machine.memory(free=GIB)  # A tenth of all.
    store = open_store(root, LIMIT)
    put(store, range(20))
    assert len(kept(store)) == expected
    assert len(caplog.records) == (kind == "tmpfs")


def test_a_store_in_memory_keeps_what_it_has_when_memory_gets_scarce(machine, root, caplog):
    machine.mount(root, "tmpfs")
    store = open_store(root, LIMIT)
    put(store, range(10))
    machine.memory(free=GIB)
    put(store, range(10, 20))
    assert kept(store) == [*range(10)]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_any_cgroup_above_counts_and_pages_of_files_are_free(machine, version):
    assert (free_memory(), total_memory()) == (10 * GIB, 10 * GIB)
    mount, limit, usage = (
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
        ("sys/fs/cgroup", "memory.max", "memory.current"),
    )[version - 1]
    machine.write("proc/self/cgroup", ("5:cpu:/\n4:memory:/jobs/mine", "0::/jobs/mine")[version - 1])
    groups = (("", 2**63 - 4096, 9 * GIB), ("jobs", 4 * GIB, 3 * GIB), ("jobs/mine", "max", 2 * GIB))
    for group, bound, used in groups:
        machine.write(f"{mount}/{group}/{limit}", bound)
        machine.write(f"{mount}/{group}/{usage}", used)
        machine.write(f"{mount}/{group}/memory.stat", STAT.format(file=GIB))
    assert free_memory() == 2 * GIB
    assert total_memory() == 4 * GIB
    machine.memory(free=GIB)
    assert free_memory() == GIB


def test_the_limit_of_a_container_that_sees_the_path_of_its_host_counts(machine):
    machine.write("proc/self/cgroup", "0::/../host/path")
    for name, value in (("memory.max", 3 * GIB), ("memory.current", GIB), ("memory.stat", STAT.format(file=0))):
        machine.write(f"sys/fs/cgroup/{name}", value)
    assert free_memory() == 2 * GIB


@pytest.mark.parametrize(("kind", "expected"), [("tmpfs", True), ("ramfs", True), ("ext4", False), ("overlay", False)])
def test_a_file_system_in_memory_is_known_by_its_mount(machine, tmp_path, kind, expected):
    assert not is_in_memory(tmp_path)
    machine.mount(tmp_path, kind)
    assert is_in_memory(tmp_path) is expected
