"""memory: a cache on tmpfs leaves a reserve and gives way; what a disk has to catch up with is bounded."""

import os
from pathlib import Path

import pytest
from cache_worker import items, open_pages, outcomes, read_right, write_pages
from sameness import assert_same

from ocr import system
from ocr.cache import handle
from ocr.cache.folder import list_stores
from ocr.cache.store import MIN_DIRTY_BYTES, Store
from ocr.system import free_memory, is_in_memory, total_memory

PAGES = 8
GIB = 1 << 30
STAT = "anon 5\nactive_file {file}\ninactive_file 0\ntotal_active_file {file}\ntotal_inactive_file 0\n"


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


@pytest.fixture
def pages(tmp_path: Path, each_form: str) -> Path:
    return write_pages(tmp_path / "pages", PAGES)


def test_free_memory_is_that_of_the_machine_without_a_cgroup(machine):
    assert (free_memory(), total_memory()) == (10 * GIB, 10 * GIB)


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_any_cgroup_above_counts_and_pages_of_files_are_free(machine, version):
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


@pytest.mark.parametrize(("kind", "kept"), [("tmpfs", 0.0), ("ext4", 1.0)])
def test_a_cache_in_memory_takes_nothing_of_the_reserve(machine, pages, tmp_path, caplog, kind, kept):
    machine.mount(tmp_path, kind)
    machine.memory(free=GIB)  # A tenth of all.
    dataset = open_pages(pages, tmp_path / "cache", cache_max_bytes="5MB")
    assert_same(items(dataset), items(open_pages(pages)))
    assert dataset.cache is not None
    assert dataset.cache.covered == kept
    # As much is free as has to stay free.
    assert caplog.text.count("1.1 GB") == (2 if kind == "tmpfs" else 0)


@pytest.mark.parametrize(("kind", "stays"), [("tmpfs", False), ("ext4", True)])
def test_a_cache_in_memory_goes_when_programs_need_the_reserve(
    machine, pages, tmp_path, monkeypatch, caplog, kind, stays
):
    cache, expected = tmp_path / "cache", items(open_pages(pages))
    machine.mount(tmp_path, kind)
    monkeypatch.setattr(handle, "MEMORY_LOOK_SECONDS", 0.0)
    assert read_right(pages, cache, expected) == (0, PAGES, 0)
    dataset = open_pages(pages, cache)
    assert_same(items(dataset), expected)
    assert outcomes(dataset) == (PAGES, 0, 0)
    machine.memory(free=GIB // 2 - 1024)
    assert_same(items(dataset), expected)
    assert outcomes(dataset) == ((PAGES, 0, 0) if stays else (0, PAGES, 0))
    assert bool(list_stores(cache)) is stays
    assert len(caplog.records) == (not stays)


def test_what_a_disk_has_to_catch_up_with_is_bounded_by_the_memory(machine, pages, tmp_path, monkeypatch):
    read_right(pages, tmp_path / "cache")
    (folder,) = list_stores(tmp_path / "cache")
    store = Store(folder)
    row = store.row(0)
    assert row is not None
    record = store.read(0, row)
    assert record is not None
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    writes = 2 * MIN_DIRTY_BYTES // sum(part.nbytes for part in record.parts()) + 8
    for free, expected in ((0, 2), (10 * GIB, 0)):
        machine.memory(free)
        store, synced[:] = Store(folder), []
        for _ in range(writes):
            store.write(0, record, row.content, row.annotation, row.signature)
        assert len(synced) == expected
