"""cache: killed writers, many writers, and disks that are full or read-only cost work, and never a right sample."""

import ctypes
import fcntl
import gc
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cache_worker import Counted, fixed, items, job, open_pages, outcomes, read_right, repaint, worker, write_pages
from sameness import assert_same

pytestmark = pytest.mark.usefixtures("each_form")
KILLS = 50
CHANGES_OF_FILES = {"os.mkdir", "os.rename", "os.truncate", "os.remove", "os.rmdir", "os.utime"}
LOCKS = {"fcntl.flock", "fcntl.lockf", "fcntl.fcntl"}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "pages")


def fill(folder: str, cache: str, threads: int = 1, die_at: int = -1) -> int:
    """Fill a cache, and die at the given of the calls that change or lock a file; how many of them there were."""
    calls = 0

    def pass_one() -> None:
        nonlocal calls
        calls += 1
        if calls == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def write_in_halves(descriptor: int, data: Any, offset: int) -> int:
        pass_one()
        half = len(data) // 2
        written = write(descriptor, data[:half], offset)
        pass_one()
        return written + write(descriptor, data[half:], offset + half)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        in_cache = event == "open" and str(arguments[0]).startswith(cache)
        if in_cache or event in CHANGES_OF_FILES or event in LOCKS:
            pass_one()

    write, os.pwrite = os.pwrite, write_in_halves
    sys.addaudithook(hook)
    dataset = open_pages(folder, cache)
    dataset.fill_cache(threads=threads)
    dataset.set_epoch(1)
    return calls


def left_behind(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name.startswith(".")]


def prepare_nothing(folder: Path, cache: Path) -> None:
    """An empty cache."""


def prepare_edit(folder: Path, cache: Path) -> None:
    """A full cache, and a page that it holds no longer as it is."""
    read_right(folder, cache)
    repaint(folder / "images" / "01.bmp")


def prepare_damage(folder: Path, cache: Path) -> None:
    """A cache that can only be removed."""
    read_right(folder, cache)
    (next(cache.iterdir()) / "rows").unlink()


@pytest.mark.parametrize(
    ("prepare", "every"),
    [
        (prepare_nothing, 11),
        *(pytest.param(kind, 1, marks=pytest.mark.slow) for kind in (prepare_nothing, prepare_edit, prepare_damage)),
    ],
)
def test_a_writer_killed_at_any_of_its_calls_leaves_a_cache_that_is_right(tmp_path, prepare, every):
    folder, ready, cache = write_pages(tmp_path / "pages", 3), tmp_path / "ready", tmp_path / "cache"
    ready.mkdir()
    prepare(folder, ready)
    expected = items(open_pages(folder))
    shutil.copytree(ready, cache)
    calls = worker().call(fill, folder=folder, cache=cache)["result"]
    assert calls > 20
    for die_at in range(1, calls + 1, every):
        shutil.rmtree(cache)
        shutil.copytree(ready, cache)
        (killed,) = worker().run(job(fill, folder=folder, cache=cache, die_at=die_at))
        assert killed["status"] == -signal.SIGKILL
        hits, misses, invalid = read_right(folder, cache, expected)
        assert hits + misses + invalid == 3
        assert prepare is prepare_edit or not invalid
        assert read_right(folder, cache, expected) == (3, 0, 0)
        assert not left_behind(cache)


@pytest.mark.slow
def test_fifty_writers_killed_at_random_moments_leave_a_cache_that_is_right(tmp_path):
    folder, cache = write_pages(tmp_path / "pages", 40), tmp_path / "cache"
    expected = items(open_pages(folder))
    worker().call(read_right, folder=folder, kept_in=cache)
    shutil.rmtree(cache)
    began = time.monotonic()
    worker().call(fill, folder=folder, cache=cache, threads=2)
    whole_seconds = time.monotonic() - began
    kills, kept = 0, 0
    moments = random.Random(0)
    while kills < KILLS:
        # Every second one goes on with what the one before it left.
        if kills % 2 == 0:
            shutil.rmtree(cache, ignore_errors=True)
        seconds = moments.uniform(0, whole_seconds)
        (killed,) = worker().run(job(fill, seconds, folder=folder, cache=cache, threads=2))
        kills += killed["status"] == -signal.SIGKILL
        if kills % 2 == 0:
            hits, misses, invalid = read_right(folder, cache, expected)
            assert (hits + misses, invalid) == (40, 0)
            assert not left_behind(cache)
            kept += 0 < hits < 40
    assert kept


def meet(place: str, parties: int) -> None:
    Path(place).mkdir(exist_ok=True)
    (Path(place) / str(os.getpid())).touch()
    while len(list(Path(place).iterdir())) < parties:
        time.sleep(0.001)


def fill_together(folder: str, cache: str, log: str, parties: int, threads: int) -> tuple[int, int, int]:
    dataset = open_pages(folder, cache, fixed(Counted(log)))
    # All have opened the empty cache before the first fills it, so that none makes a page again to compare.
    meet(f"{log}.meeting", parties)
    dataset.fill_cache(threads=threads)
    assert_same(items(dataset), items(open_pages(folder)))
    return outcomes(dataset)


@pytest.mark.parametrize(("parties", "attempts"), [(2, 1), pytest.param(4, 6, marks=pytest.mark.slow)])
def test_processes_that_fill_a_cache_together_make_no_sample_twice(tmp_path, parties, attempts):
    folder = write_pages(tmp_path / "pages", 40)
    for attempt in range(attempts):
        log, cache = tmp_path / f"log {attempt}", tmp_path / f"cache {attempt}"
        task = job(fill_together, folder=folder, cache=cache, log=log, parties=parties, threads=attempt % 3 + 1)
        for answer in worker().run(*[task] * parties):
            assert answer.get("result") == [40, 0, 0], answer
        made = Counter(log.read_text().split())
        assert len(made) == 40
        assert not {name: times for name, times in made.items() if times > 1}


def wait_for(path: Path, lines: int) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and (not path.exists() or len(path.read_text().splitlines()) < lines):
        time.sleep(0.001)


def make_two(folder: str, cache: str, log: str) -> None:
    dataset = open_pages(folder, cache, fixed(Counted(log, seconds=0.2)))
    wait_for(Path(f"{log} of waiting"), 1)
    assert_same([dataset[0], dataset[1]], items(open_pages(folder))[:2])


def make_the_second(folder: str, cache: str, log: str, lock: int) -> None:
    """Ask for sample 1, but wait before the given lock until the other is at it."""
    dataset = open_pages(folder, cache, fixed(Counted(log, seconds=0.2)))
    locks = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal locks
        if event != "fcntl.flock" or not arguments[1] & fcntl.LOCK_EX:
            return
        locks += 1
        if locks == lock:
            Path(f"{log} of waiting").write_text("here\n")
            wait_for(Path(log), 2)

    sys.addaudithook(hook)
    assert_same(dataset[1], open_pages(folder)[1])


@pytest.mark.slow
# In a dense cache the third lock is that of allocating space, when the page is made already.
@pytest.mark.parametrize("lock", [1, 2, pytest.param(3, marks=pytest.mark.raw_only)])
def test_who_waits_for_the_first_sample_does_not_make_what_somebody_else_is_at(pages, tmp_path, lock):
    log = tmp_path / "log"
    settings = {"folder": pages, "cache": tmp_path / "cache", "log": log}
    for answer in worker().run(job(make_two, **settings), job(make_the_second, lock=lock, **settings)):
        assert answer["status"] == 0, answer
    assert sorted(log.read_text().split()) == ["00.jpg", "01.bmp"]


@pytest.mark.slow
def test_who_fills_a_cache_does_not_wait_for_one_who_was_killed(tmp_path):
    folder, cache = write_pages(tmp_path / "pages", 40), tmp_path / "cache"
    expected = items(open_pages(folder))
    for attempt in range(10):
        shutil.rmtree(cache, ignore_errors=True)
        tasks = [
            job(fill, 0.004 * attempt, folder=folder, cache=cache, threads=2),
            job(fill, folder=folder, cache=cache),
        ]
        _, other = worker().run(*tasks)
        assert other["status"] == 0, other
        assert read_right(folder, cache, expected) == (40, 0, 0)


def fill_with_limit(folder: str, cache: str, limit_bytes: int) -> list[tuple[int, int, int]]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
    return [read_right(folder, cache) for _ in range(2)]


def test_files_that_must_not_grow_are_no_reason_to_fail(pages, tmp_path, each_form):
    dataset = open_pages(pages, tmp_path / "cache")
    # All but the last page, whose metadata is beyond its slot.
    assert_same([dataset[index] for index in range(7)], items(open_pages(pages))[:7])
    most_bytes = next((tmp_path / "cache").glob("*/data")).stat().st_size
    too_few = {"raw": 10_000, "dense": 4500}[each_form]
    for limit, after in ((too_few, (0, 8, 0)), (most_bytes, (7, 1, 0))):
        cache = tmp_path / f"cache of {limit}"
        answer = worker().call(fill_with_limit, folder=pages, cache=cache, limit_bytes=limit)
        assert answer["result"][1] == list(after)
        assert all("File too large" in warning for warning in answer["warnings"])
        assert len(answer["warnings"]) == 2
        assert read_right(pages, cache) == after
        assert read_right(pages, cache) == (8, 0, 0)


def fill_small_disk(folder: str, cache: str, size: str) -> list[tuple[int, int, int]] | None:
    """Two runs on a real file system that is full, and two with room again; None where none can be mounted."""
    library, owner = ctypes.CDLL(None), os.getuid()
    new_mounts, new_user, private, remount = 0x20000, 0x10000000, 0x44000, 0x20
    if library.unshare(new_mounts | (new_user if owner else 0)):
        return None
    if owner:
        Path("/proc/self/uid_map").write_text(f"0 {owner} 1")
    library.mount(b"none", b"/", None, private, None)
    if library.mount(b"tmpfs", cache.encode(), b"tmpfs", 0, f"size={size}".encode()):
        return None
    limits = {"cache_max_bytes": "1GB", "cache_max_total_bytes": "1GB"}
    full = [read_right(folder, cache, **limits) for _ in range(2)]
    assert library.mount(b"tmpfs", cache.encode(), b"tmpfs", remount, b"size=10m") == 0
    roomy = [read_right(folder, cache) for _ in range(2)]
    gc.collect()  # What is open to be written to keeps the file system so.
    assert library.mount(b"tmpfs", cache.encode(), b"tmpfs", remount | 1, None) == 0
    repaint(Path(folder) / "images" / "01.bmp")
    return [*full, *roomy, read_right(folder, cache)]


def test_a_real_disk_gets_full_and_has_room_again_and_is_read_only_at_last(pages, tmp_path, each_form):
    (tmp_path / "cache").mkdir()
    size = {"raw": "300k", "dense": "80k"}[each_form]
    answer = worker().call(fill_small_disk, folder=pages, cache=tmp_path / "cache", size=size)
    if answer["result"] is None:
        pytest.skip("this user may not mount a file system")
    first, second, third, fourth, fifth = map(tuple, answer["result"])
    fitting = second[0]
    assert 0 < fitting < 8
    assert first == (0, 8, 0)
    assert second == third == (fitting, 8 - fitting, 0)
    assert fourth == (8, 0, 0)
    assert fifth == (7, 0, 1)
    assert ["No space left" in warning for warning in answer["warnings"]] == [True, True, False]


def read_without_rights(folder: str) -> tuple[int, int, int]:
    """Read what only others may change: relative to here, because the folders above are closed to this user."""
    os.chdir(folder)
    if os.geteuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    hits, misses, invalid = read_right("pages", "cache")
    return hits, misses, invalid


@pytest.mark.parametrize("cached", [0, 5, 8])
def test_a_cache_of_somebody_else_is_read_and_the_rest_is_made(pages, tmp_path, cached):
    (tmp_path / "cache").mkdir()
    dataset = open_pages(pages, tmp_path / "cache")
    assert_same([dataset[index] for index in range(cached)], items(open_pages(pages))[:cached])
    (tmp_path / "cache" / ".remains.999999999-1.partial").mkdir()
    (tmp_path / "cache" / ".remains.999999999-1.partial" / "data").touch()
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    answer = worker().call(read_without_rights, folder=tmp_path)
    assert answer["result"] == [cached, 8 - cached, 0]
    assert cached == 8 or len(answer["warnings"]) == 1
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755)
