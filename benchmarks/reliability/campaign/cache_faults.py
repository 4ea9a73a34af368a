"""Caches: damage, kills, full and vanishing disks, clocks that jump, edits, and two machines on one cache."""

from __future__ import annotations

import ctypes
import gc
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
    FORMS,
    edit,
    items,
    open_pages,
    outcomes,
    pages_only,
    read_cache,
    read_twice,
    repaint,
    with_caches,
)
from ocr.errors import GlyphFeedError
from ocr.loader import Loader
from ocr.pipeline import kept_table
from ocr.tools.cache.clear import clear

FILL_SECONDS = 0.25
"""About as long as the pages of a cache take on a machine with little else to do."""
DAY = 86_400.0
NEW_MOUNTS, NEW_PROCESSES, PRIVATE, REMOUNT, READ_ONLY = 0x20000, 0x20000000, 0x44000, 0x20, 1
"""Of unshare(2) and mount(2)."""


def any_cache(case: Case) -> tuple[Path, str]:
    """A copy of a filled cache, and its form."""
    form = case.rng.choice(FORMS)
    return Path(shutil.copytree(case.prepared.made[form], case.folder / "cache")), form


def copy_pages(case: Case) -> Path:
    return Path(shutil.copytree(case.prepared.pages, case.folder / "pages"))


@damages("cache", "a file of a cache", 110, with_caches)
def damaged(case: Case, name: str) -> None:
    """One file of a cache, or two of them."""
    cache, form = any_cache(case)
    for _ in range(case.rng.choice((1, 1, 2))):
        damage(case.rng.choice(sorted(file for file in cache.rglob("*") if file.is_file())), case.rng, name)
    read_twice(case, case.prepared.pages, cache, form)


@fault("cache-cut-open", "a file of a cache: cut while two have it open", 40, with_caches)
def cut_while_open(case: Case) -> None:
    cache, form = any_cache(case)
    both = [open_pages(case.prepared.pages, cache, form) for _ in range(2)]
    for epoch in range(3):
        for dataset in both:
            dataset.set_epoch(epoch)
            case.compare(items(dataset), case.prepared.expected)
            case.counts["counted"] += sum(outcomes(dataset)[1:])
        if epoch == 0:
            file = case.rng.choice(sorted(path for path in cache.rglob("*") if path.name in ("data", "rows")))
            os.truncate(file, int(case.rng.random() * file.stat().st_size))


@fault("page-list", "the list of pages that is kept between runs: any damage", 40, with_caches)
def page_list(case: Case) -> None:
    cache, pages = case.folder / "cache", case.prepared.pages
    # So that few pages, written just now, have a list of their own.
    with patch.multiple(kept_table, MIN_ROWS=1, JUST_NOW_NS=-(10**12)):
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
    form, cache, pages, rng = case.rng.choice(FORMS), case.folder / "cache", case.prepared.pages, case.rng

    def fill(threads: int) -> None:
        dataset = open_pages(pages, cache, form)
        dataset.fill_cache(threads=threads)
        dataset.set_epoch(1)

    cache.mkdir()
    for _ in range(rng.choice((1, 2))):
        threads = rng.choice((1, 2))
        if rng.random() < 0.5:
            Child(case, fill, threads, die_at=rng.randrange(1, 160)).wait()
        else:
            Child(case, fill, threads).kill_after(rng.uniform(0, FILL_SECONDS))
    read_twice(case, pages, cache, form)


def clear_all(cache: Path) -> None:
    clear(cache, (), None, None, dry_run=False, yes=True)


@fault("kill-clear", "`ocr cache clear` is killed, while another reads", 30, with_caches)
def kill_clear(case: Case) -> None:
    cache, form = any_cache(case)
    reader = open_pages(case.prepared.pages, cache, form)
    case.compare(items(reader), case.prepared.expected)
    Child(case, clear_all, cache, die_at=case.rng.randrange(1, 12)).wait()
    reader.set_epoch(1)
    case.compare(items(reader), case.prepared.expected)
    del reader
    read_twice(case, case.prepared.pages, cache, form)


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


@fault("disk-full-cache", "the disk of a cache is full", 30, with_caches)
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


@fault("disk-small", "a real file system gets full, has room again, and is read-only at last", 12, with_caches)
def small_disk(case: Case) -> None:
    pages, cache, size = copy_pages(case), case.folder / "cache", case.rng.randrange(40, 400)
    cache.mkdir()

    def mount(flags: int, options: bytes | None) -> bool:
        """False where this user may not mount a file system."""
        return ctypes.CDLL(None).mount(b"tmpfs", str(cache).encode(), b"tmpfs", flags, options) == 0

    def read_on_small_disk() -> None:
        library = ctypes.CDLL(None)
        if library.unshare(NEW_MOUNTS) or library.mount(b"none", b"/", None, PRIVATE, None):
            return
        if not mount(0, b"size=%dk" % size):
            return
        for _ in range(2):
            read_cache(case, open_pages(pages, cache, cache_max_bytes="1GB", cache_max_total_bytes="1GB"))
        assert mount(REMOUNT, b"size=10m")
        for _ in range(2):
            read_cache(case, open_pages(pages, cache))
        gc.collect()  # What is open to be written to keeps the file system so.
        assert mount(REMOUNT | READ_ONLY, None)
        repaint(pages / "images" / "val" / "01.bmp")
        read_cache(case, open_pages(pages, cache), items(open_pages(pages)))

    Child(case, read_on_small_disk).wait()


@fault("disk-gone-cache", "the disk of a cache vanishes during an epoch", 40, with_caches)
def gone_cache(case: Case) -> None:
    cache, form = any_cache(case)
    dataset = open_pages(case.prepared.pages, cache, form)
    action = case.rng.randrange(3)

    def vanish() -> None:
        if action == 0:
            cache.rename(case.folder / "elsewhere")
        else:
            shutil.rmtree(cache if action == 1 else next(path for path in cache.iterdir() if path.is_dir()))

    case.compare(interrupted(case, dataset, vanish), case.prepared.expected)
    dataset.set_epoch(1)
    case.compare(items(dataset), case.prepared.expected)
    del dataset
    read_twice(case, case.prepared.pages, cache, form)


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


@fault("clock-jump", "the clock jumps, and files are from the future or from 1970", 50, with_caches)
def jumps(case: Case) -> None:
    rng, form, cache, pages = case.rng, case.rng.choice(FORMS), case.folder / "cache", copy_pages(case)
    dataset = open_pages(pages, cache, form)
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
    del dataset
    with clock_off(jump(rng)):
        expected = items(open_pages(pages))
        for _ in range(2):
            case.compare(items(open_pages(pages, cache, form)), expected)
    read_twice(case, pages, case.folder / "another", form, expected)


@fault("edit-between", "edits between epochs", 50, with_caches)
def between(case: Case) -> None:
    rng, form, pages = case.rng, case.rng.choice(FORMS), copy_pages(case)
    loader = Loader(open_pages(pages, case.folder / "cache", form), 4, num_workers=rng.choice((0, 2)))
    for _ in range(3):
        for _ in range(rng.randrange(3)):
            edit(pages, rng)
        found, expected = list(loader), list(Loader(open_pages(pages), 4, num_workers=0))
        case.compare(found, expected)
        case.counts["samples"] += sum(len(batch["image_filename"]) for batch in found) - len(found)
        case.check_order(list(names_of(found)), list(names_of(expected)))


@fault("edit-during", "edits during an epoch", 50, with_caches)
def during(case: Case) -> None:
    """A sample is the old or the new one; the next epoch has all edits."""
    pages = copy_pages(case)
    dataset = open_pages(pages, case.folder / "cache", case.rng.choice(FORMS))
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


# -- two machines: sets of processes with process ids of their own, where this user may make one


def on_another_machine(case: Case, function: Callable[[], None]) -> None:
    """Run a function with other process ids than those here, and a /proc that shows no process of here."""
    library = ctypes.CDLL(None)
    if library.unshare(NEW_MOUNTS | NEW_PROCESSES):
        function()  # Not allowed: another process of this machine.
        return

    def run() -> None:
        library.mount(b"none", b"/", None, PRIVATE, None)
        library.mount(b"proc", b"/proc", b"proc", 0, None)
        function()

    Child(case, run).wait()


@fault(
    "two-machines",
    "two machines fill, read and clear one cache, and some of their processes are killed",
    40,
    pages_only,
)
def two_machines(case: Case) -> None:
    rng, form, cache, start = case.rng, case.rng.choice(FORMS), case.folder / "cache", time.monotonic() + 0.05
    cache.mkdir()

    def begin(at: float, elsewhere: bool, function: Callable[[], None]) -> Child:
        def run() -> None:
            time.sleep(max(0.0, start + at - time.monotonic()))
            function()

        return Child(case, on_another_machine, case, run) if elsewhere else Child(case, run)

    def fill_and_read(threads: int) -> None:
        dataset = open_pages(case.prepared.pages, cache, form)
        if threads:
            dataset.fill_cache(threads=threads)
        for epoch in range(2):
            dataset.set_epoch(epoch)
            read_cache(case, dataset)

    children = []
    for number in range(rng.choice((3, 4))):
        threads = rng.choice((0, 1, 2))
        children.append(begin(rng.uniform(0, 0.05), number % 2 == 1, lambda threads=threads: fill_and_read(threads)))
    if rng.random() < 0.5:
        children.append(begin(rng.uniform(0, 0.4), rng.random() < 0.5, lambda: clear_all(cache)))
    if rng.random() < 0.5:
        # One of this machine: those of another end with their first process.
        children.pop(0).kill_after(rng.uniform(0, 0.4))
    for child in children:
        child.wait()
    read_twice(case, case.prepared.pages, cache, form)
