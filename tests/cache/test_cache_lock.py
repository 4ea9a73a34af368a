"""lock: a stuck process blocks its own cache only, for a bounded time, and is named."""

import fcntl
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from cache_worker import fixed, items, open_pages, outcomes, read_right, write_pages
from sameness import assert_same
from typer.testing import CliRunner

from ocr.cache import claims, lock
from ocr.cache.lock import CacheLock, remove_stale_locks
from ocr.cli import app

FORK = multiprocessing.get_context("fork")
Holder = Callable[[Path, str], ForkProcess]


def hold(root: Path, name: str, held: Event) -> None:
    with CacheLock(root, name):
        held.set()
        signal.pause()


def count(root: Path, times: int) -> None:
    file = root / "count"
    for _ in range(times):
        with CacheLock(root, "name"):
            file.write_text(str(int(file.read_text()) + 1))


@pytest.fixture
def stuck() -> Iterator[Holder]:
    """Starts processes that hold a lock and do nothing more."""
    holders = []

    def start(root: Path, name: str) -> ForkProcess:
        held = FORK.Event()
        holder = FORK.Process(target=hold, args=(root, name, held))
        holder.start()
        holders.append(holder)
        assert held.wait(60)
        assert holder.pid is not None
        os.kill(holder.pid, signal.SIGSTOP)
        return holder

    yield start
    for holder in holders:
        holder.kill()
        holder.join()


def name_of(cache: Path) -> str:
    """The name of the one cache in a folder, without its number."""
    (folder,) = cache.iterdir()
    return folder.name.rsplit("-", 1)[0]


def test_whoever_waits_too_long_is_told_which_process_holds_the_lock(tmp_path, stuck):
    holder = stuck(tmp_path, "name")
    with pytest.raises(TimeoutError) as told, CacheLock(tmp_path, "name", seconds=0.0):
        pass
    for part in (str(holder.pid), socket.gethostname(), sys.orig_argv[0], ".name.lock"):
        assert part in str(told.value)


def test_a_lock_file_without_a_name_in_it_is_held_all_the_same(tmp_path):
    for text in (b"", b"[]", b"{", b'{"pid": 1}', b"\xff"):
        path = tmp_path / ".name.lock"
        path.write_bytes(text)
        with path.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            with pytest.raises(TimeoutError, match=r"\.name\.lock"), CacheLock(tmp_path, "name", seconds=0.0):
                pass


@pytest.mark.usefixtures("each_form")
def test_a_stuck_process_costs_its_own_cache_only_and_pages_are_right(tmp_path, stuck, monkeypatch, caplog):
    pages, cache = write_pages(tmp_path / "pages"), tmp_path / "cache"
    read_right(pages, cache)
    holder = stuck(cache, name_of(cache))
    # Another size is another cache of the same folder: this waits as long as it takes.
    for expected in ((0, 8, 0), (8, 0, 0)):
        assert read_right(pages, cache, transform=fixed(size=72)) == expected
    assert not caplog.records
    monkeypatch.setattr(lock, "LOCK_SECONDS", 0.0)
    dataset = open_pages(pages, cache)
    assert_same(items(dataset), items(open_pages(pages)))
    assert outcomes(dataset) == (0, 8, 0)
    (record,) = caplog.records
    assert f" {holder.pid} " in record.getMessage()
    assert str(cache) in record.getMessage()


def test_the_lock_of_a_killed_process_is_free_and_its_file_goes(tmp_path, stuck):
    holders = [stuck(tmp_path, name) for name in ("one", "two")]
    holders[0].kill()
    holders[0].join()
    assert json.loads((tmp_path / ".one.lock").read_text())["pid"] == holders[0].pid
    remove_stale_locks(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".two.lock"]


def test_the_file_is_removed_with_every_release_and_still_one_process_at_a_time_holds_it(tmp_path):
    (tmp_path / "count").write_text("0")
    counters = [FORK.Process(target=count, args=(tmp_path, 100)) for _ in range(2)]
    for counter in counters:
        counter.start()
    for counter in counters:
        counter.join()
        assert counter.exitcode == 0
    assert (tmp_path / "count").read_text() == "200"
    assert [path.name for path in tmp_path.iterdir()] == ["count"]


def test_a_wait_is_told_after_seconds_and_threads_behind_one_that_gave_up_do_not_wait_again(
    tmp_path, stuck, monkeypatch, caplog
):
    holder = stuck(tmp_path, "name")
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    held = CacheLock(tmp_path, "name")
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: now)
        patch.setattr(time, "sleep", sleep)
        for _ in range(2):
            with pytest.raises(TimeoutError), held:
                pass
            assert 60 <= now < 61
    (record,) = caplog.records
    assert f" {holder.pid} " in record.getMessage()


def test_a_lock_file_is_no_way_to_another_file(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("content")
    (tmp_path / ".name.lock").symlink_to(victim)
    with CacheLock(tmp_path, "name"):
        pass
    assert victim.read_text() == "content"


@pytest.mark.usefixtures("each_form")
def test_rows_that_a_stuck_process_locked_stop_the_writing_and_nothing_else(tmp_path, monkeypatch, caplog):
    pages, cache = write_pages(tmp_path / "pages"), tmp_path / "cache"
    read_right(pages, cache)
    (folder,) = cache.iterdir()
    monkeypatch.setattr(claims, "CLAIM_SECONDS", 0.0)
    with (folder / "rows").open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        dataset = open_pages(pages, cache)
        assert_same(items(dataset), items(open_pages(pages)))
        dataset.set_epoch(1)
        assert str(folder) in caplog.text
        assert CliRunner().invoke(app, ["cache", "ls", "--folder", str(cache)]).exit_code == 0
