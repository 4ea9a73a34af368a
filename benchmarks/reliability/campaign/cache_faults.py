"""The cache: damage, kills, full and vanishing disks, clocks that jump, edits, and several processes."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from benchmarks.reliability.campaign.cases import Case, Child, FindingError, damages, difference, fault, whole_lines
from benchmarks.reliability.campaign.changes import damage
from benchmarks.reliability.campaign.pages import (
    edit,
    items,
    open_pages,
    pages_only,
    read_cache,
    read_twice,
    repaint,
    with_cache,
)
from ocr.cache.store import close_store
from ocr.errors import GlyphFeedError
from ocr.loader import Loader
from ocr.pipeline import page_index
from ocr.tools.cache import clear

FILL_SECONDS = 0.25
"""About as long as the pages of a cache take on a machine with little else to do."""
DAY = 86_400.0
NEW_MOUNTS, PRIVATE, REMOUNT = 0x20000, 0x44000, 0x20
"""Of unshare(2) and mount(2)."""


def copy_cache(case: Case) -> Path:
    return Path(shutil.copytree(case.prepared.made["cache"], case.folder / "cache"))


def copy_pages(case: Case) -> Path:
    return Path(shutil.copytree(case.prepared.pages, case.folder / "pages"))


@damages("cache", "the file of a cache", 110, with_cache)
def damaged(case: Case, name: str) -> None:
    """The file, or the one with its locks, or both; what is damaged can stay missing."""
    cache = copy_cache(case)
    for _ in range(case.rng.choice((1, 1, 2))):
        file = cache / "store" / case.rng.choice(("data.mdb", "data.mdb", "data.mdb", "lock.mdb"))
        if file.is_file():
            damage(file, case.rng, name)
    for _ in range(2):
        read_cache(case, open_pages(case.prepared.pages, cache))


@fault("page-list", "the list of pages that is kept between runs: any damage", 40, with_cache)
def page_list(case: Case) -> None:
    cache, pages = case.folder / "cache", case.prepared.pages
    # So that few pages, written just now, have a list of their own.
    with patch.multiple(page_index, MIN_ROWS=1, JUST_NOW_NS=-(10**12)):
        case.compare(items(open_pages(pages, cache)), case.prepared.expected)
        file = case.rng.choice(sorted((cache / "pages").glob("*.rows")))
        damage(file, case.rng)
        try:
            read_twice(case, pages, cache)
        except GlyphFeedError as error:
            case.refused(error, str(file))
            file.unlink()  # As the error says.
            read_twice(case, pages, cache)


# -- kills


@fault("kill-fill", "who fills a cache is killed", 60, pages_only)
def kill_fill(case: Case) -> None:
    cache, pages, rng = case.folder / "cache", case.prepared.pages, case.rng

    def fill(threads: int) -> None:
        open_pages(pages, cache).fill_cache(threads=threads)

    for _ in range(rng.choice((1, 2, 3))):
        Child(case, fill, rng.choice((1, 2))).kill_after(rng.uniform(0, FILL_SECONDS))
    read_twice(case, pages, cache)


def clear_all(cache: Path) -> None:
    clear(yes=True, folder=cache)


@fault("kill-clear", "`glyphfeed cache clear` is killed, while another reads", 30, with_cache)
def kill_clear(case: Case) -> None:
    cache, pages = copy_cache(case), case.prepared.pages
    reader = open_pages(pages, cache) if case.rng.random() < 0.5 else None
    if reader is not None:
        case.compare(items(reader), case.prepared.expected)
    Child(case, clear_all, cache).kill_after(case.rng.uniform(0, 0.03))
    if reader is not None:
        reader.set_epoch(1)
        case.compare(items(reader), case.prepared.expected)
    close_store(cache)
    read_twice(case, pages, cache)


def names_of(batches: Any) -> Iterator[str]:
    return (",".join(batch["image_filename"]) for batch in batches)


@fault("kill-epoch", "who reads an epoch is killed, and resumes it", 40, pages_only)
def kill_epoch(case: Case) -> None:
    cache, log, pages, epoch = case.folder / "cache", case.folder / "log", case.prepared.pages, case.rng.randrange(3)

    def batches(cache: Path | None, workers: int, done: int) -> Iterator[str]:
        loader = Loader(open_pages(pages, cache), batch_size=2, num_workers=workers, shuffle=True, seed=5)
        loader.load_state_dict(loader.state_dict() | {"epoch": epoch, "batches": done})
        return names_of(loader)

    def read(workers: int, done: int) -> None:
        with log.open("a", buffering=1) as stream:
            for names in batches(cache, workers, done):
                stream.write(f"{names}\n")

    expected, done = list(batches(None, 0, 0)), list[str]()
    for attempt in range(4):
        child = Child(case, read, case.rng.choice((0, 2)), len(done))
        if attempt < 2:
            child.kill_after(case.rng.uniform(0, FILL_SECONDS))
        else:
            child.wait()
        done = whole_lines(log)
        log.write_text("".join(f"{line}\n" for line in done))
        if len(done) == len(expected):
            break
    case.check_order(done, expected)
    read_twice(case, pages, cache)


# -- disks


def limit_files(limit_bytes: int) -> None:
    """No file of this process may become longer."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))


@fault("disk-full-cache", "the disk of a cache is full", 30, pages_only)
def full_cache(case: Case) -> None:
    pages, cache = case.prepared.pages, case.folder / "cache"
    # The limit counts for shared memory too, which has pages of 4 kB.
    limit = int(10 ** case.rng.uniform(3.7, 5.7))

    def read_with_limit() -> None:
        limit_files(limit)
        for _ in range(2):
            read_cache(case, open_pages(pages, cache))

    Child(case, read_with_limit).wait()
    read_twice(case, pages, cache)


@fault("disk-small", "a real file system gets full, and has room again", 12, pages_only)
def small_disk(case: Case) -> None:
    pages, cache, size = case.prepared.pages, case.folder / "cache", case.rng.randrange(20, 200)
    cache.mkdir()

    def mount(flags: int, options: bytes) -> bool:
        """False where this user cannot mount a file system."""
        return ctypes.CDLL(None).mount(b"tmpfs", str(cache).encode(), b"tmpfs", flags, options) == 0

    def read_on_small_disk() -> None:
        library = ctypes.CDLL(None)
        if library.unshare(NEW_MOUNTS) or library.mount(b"none", b"/", None, PRIVATE, None):
            return
        if not mount(0, b"size=%dk" % size):
            return
        for _ in range(2):
            read_cache(case, open_pages(pages, cache, cache_max_bytes="1GB"))
        assert mount(REMOUNT, b"size=10m")
        for _ in range(2):
            read_cache(case, open_pages(pages, cache, cache_max_bytes="1GB"))

    Child(case, read_on_small_disk).wait()


@fault("disk-gone-cache", "the folder of a cache vanishes during an epoch", 40, with_cache)
def gone_cache(case: Case) -> None:
    cache = copy_cache(case)
    dataset = open_pages(case.prepared.pages, cache)
    action = case.rng.randrange(3)

    def vanish() -> None:
        if action == 0:
            cache.rename(case.folder / "elsewhere")
        else:
            shutil.rmtree(cache if action == 1 else cache / "store")

    case.compare(interrupted(case, dataset, vanish), case.prepared.expected)
    dataset.set_epoch(1)
    case.compare(items(dataset), case.prepared.expected)
    close_store(cache)
    read_twice(case, case.prepared.pages, cache)


def interrupted(case: Case, dataset: Any, action: Callable[[], Any]) -> list[Any]:
    """The samples of an epoch, during which something happens."""
    at = case.rng.randrange(len(dataset))
    before = items([dataset[index] for index in range(at)])
    action()
    return before + items([dataset[index] for index in range(at, len(dataset))])


# -- clocks and edits


@contextmanager
def clock_off(seconds: float) -> Iterator[None]:
    """The clock of this process is off by so much; the clock of files is not."""
    real, real_ns = time.time, time.time_ns
    with patch.multiple(time, time=lambda: real() + seconds, time_ns=lambda: real_ns() + int(seconds * 1e9)):
        yield


def jump(rng: Random) -> float:
    return rng.choice((-1, 1)) * rng.choice((1.0, 3.0, 3600.0, DAY, 400 * DAY, 20_000 * DAY))


@fault("clock-jump", "the clock jumps, and files are from the future or from 1970", 50, pages_only)
def jumps(case: Case) -> None:
    rng, cache, pages = case.rng, case.folder / "cache", copy_pages(case)
    dataset = open_pages(pages, cache)
    for epoch in range(4):
        with clock_off(jump(rng)):
            dataset.set_epoch(epoch)
            case.compare(items(dataset), items(open_pages(pages)))
        chosen = pages / "images" / "val" / rng.choice(("01.bmp", "04.bmp"))
        if rng.random() < 0.7:
            repaint(chosen)
        if rng.random() < 0.7:
            moment = max(0.0, time.time() + jump(rng)) if rng.random() < 0.8 else 0.0
            os.utime(chosen, (moment, moment))
    close_store(cache)
    with clock_off(jump(rng)):
        read_twice(case, pages, cache, items(open_pages(pages)))


@fault("edit-between", "edits between epochs", 50, pages_only)
def between(case: Case) -> None:
    rng, pages = case.rng, copy_pages(case)
    loader = Loader(open_pages(pages, case.folder / "cache"), 4, num_workers=rng.choice((0, 2)))
    for _ in range(3):
        for _ in range(rng.randrange(3)):
            edit(pages, rng)
        found, expected = list(loader), list(Loader(open_pages(pages), 4, num_workers=0))
        case.compare(found, expected)
        case.counts["samples"] += sum(len(batch["image_filename"]) for batch in found) - len(found)
        case.check_order(list(names_of(found)), list(names_of(expected)))


@fault("edit-during", "edits during an epoch", 50, pages_only)
def during(case: Case) -> None:
    """A sample is the old or the new one; the next epoch has all edits."""
    pages = copy_pages(case)
    dataset = open_pages(pages, case.folder / "cache")
    for epoch in range(3):
        dataset.set_epoch(epoch)
        old = items(open_pages(pages))
        found = interrupted(case, dataset, lambda: edit(pages, case.rng))
        for number, (one, *both) in enumerate(zip(found, old, items(open_pages(pages)), strict=True)):
            if all(difference(one, version) for version in both):
                raise FindingError("wrong sample", f"sample {number} is neither the old nor the new one")
        case.counts["samples"] += len(found)
    dataset.set_epoch(3)
    case.compare(items(dataset), items(open_pages(pages)))


@fault("together", "processes fill, read and clear one cache, and some of them are killed", 40, pages_only)
def together(case: Case) -> None:
    rng, cache, pages = case.rng, case.folder / "cache", case.prepared.pages

    def fill_and_read(threads: int) -> None:
        dataset = open_pages(pages, cache)
        if threads:
            dataset.fill_cache(threads=threads)
        for epoch in range(2):
            dataset.set_epoch(epoch)
            read_cache(case, dataset)

    children = [Child(case, fill_and_read, rng.choice((0, 1, 2))) for _ in range(rng.choice((3, 4)))]
    if rng.random() < 0.5:
        children.append(Child(case, clear_all, cache))
    if rng.random() < 0.5:
        children.pop(0).kill_after(rng.uniform(0, 0.4))
    for child in children:
        child.wait()
    read_twice(case, pages, cache)
