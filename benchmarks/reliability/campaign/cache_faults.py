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
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.reliability.campaign.cases import Case, Child, FindingError, difference, fault
from benchmarks.reliability.campaign.changes import DAMAGES, damage
from benchmarks.reliability.campaign.pages import (
    FORMS,
    edit,
    items,
    open_pages,
    outcomes,
    pages_only,
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


def copy_cache(case: Case, form: str) -> Path:
    return Path(shutil.copytree(case.prepared.made[form], case.folder / "cache"))


def damaged(name: str, case: Case) -> None:
    """One file of a cache, or two of them."""
    form = case.rng.choice(FORMS)
    cache = copy_cache(case, form)
    for _ in range(case.rng.choice((1, 1, 2))):
        damage(case.rng.choice(sorted(file for file in cache.rglob("*") if file.is_file())), case.rng, name)
    read_twice(case, case.prepared.pages, cache, case.prepared.expected, form)


for _name, (_about, _) in DAMAGES.items():
    fault(f"cache-{_name}", f"a file of a cache: {_about}", 110, with_caches)(partial(damaged, _name))


@fault("cache-cut-open", "a file of a cache: cut while two have it open", 40, with_caches)
def cut_while_open(case: Case) -> None:
    form = case.rng.choice(FORMS)
    cache = copy_cache(case, form)
    both = [open_pages(case.prepared.pages, cache, form) for _ in range(2)]
    for dataset in both:
        case.compare(items(dataset), case.prepared.expected)
    file = case.rng.choice(sorted(path for path in cache.rglob("*") if path.name in ("data", "rows")))
    os.truncate(file, int(case.rng.random() * file.stat().st_size))
    for epoch in (1, 2):
        for dataset in both:
            dataset.set_epoch(epoch)
            case.compare(items(dataset), case.prepared.expected)
            case.counts["counted"] += sum(outcomes(dataset)[1:])


@fault("page-list", "the list of pages that is kept between runs: any damage", 40, with_caches)
def page_list(case: Case) -> None:
    before, cache = (kept_table.MIN_ROWS, kept_table.JUST_NOW_NS), case.folder / "cache"
    # So that few pages, written just now, have a list of their own.
    kept_table.MIN_ROWS, kept_table.JUST_NOW_NS = 1, -(10**12)
    try:
        case.compare(items(open_pages(case.prepared.pages, cache)), case.prepared.expected)
        file = case.rng.choice(sorted((cache / "pages").glob("*.rows")))
        damage(file, case.rng)
        try:
            read_twice(case, case.prepared.pages, cache, case.prepared.expected)
        except GlyphFeedError as error:
            case.refused(error, str(file))
            file.unlink()  # As the error says.
            read_twice(case, case.prepared.pages, cache, case.prepared.expected)
    finally:
        kept_table.MIN_ROWS, kept_table.JUST_NOW_NS = before


# -- kills


def fill(pages: Path, cache: Path, form: str, threads: int) -> None:
    dataset = open_pages(pages, cache, form)
    dataset.fill_cache(threads=threads)
    dataset.set_epoch(1)


@fault("kill-fill", "who fills a cache is killed", 60, pages_only)
def kill_fill(case: Case) -> None:
    form, cache, pages = case.rng.choice(FORMS), case.folder / "cache", case.prepared.pages
    cache.mkdir()
    for _ in range(case.rng.choice((1, 2))):
        arguments = pages, cache, form, case.rng.choice((1, 2))
        if case.rng.random() < 0.5:
            Child(case, fill, *arguments, die_at=case.rng.randrange(1, 160)).wait()
        else:
            Child(case, fill, *arguments).kill_after(case.rng.uniform(0, FILL_SECONDS))
    read_twice(case, pages, cache, case.prepared.expected, form)


def clear_all(cache: Path, start: float = 0.0) -> None:
    time.sleep(max(0.0, start - time.monotonic()))
    clear(cache, (), None, None, dry_run=False, yes=True)


@fault("kill-clear", "`ocr cache clear` is killed, while another reads", 30, with_caches)
def kill_clear(case: Case) -> None:
    form = case.rng.choice(FORMS)
    cache = copy_cache(case, form)
    reader = open_pages(case.prepared.pages, cache, form)
    case.compare(items(reader), case.prepared.expected)
    Child(case, clear_all, cache, die_at=case.rng.randrange(1, 12)).wait()
    reader.set_epoch(1)
    case.compare(items(reader), case.prepared.expected)
    del reader
    read_twice(case, case.prepared.pages, cache, case.prepared.expected, form)


def shuffled(pages: Path, cache: Path | None, workers: int) -> Loader:
    return Loader(open_pages(pages, cache), batch_size=2, num_workers=workers, shuffle=True, seed=5)


def names_of(batches: Any) -> Iterator[str]:
    return (",".join(batch["image_filename"]) for batch in batches)


def read_batches(pages: Path, cache: Path, log: Path, workers: int, batches: int, epoch: int) -> None:
    """An epoch from a batch on; the names of each batch are logged."""
    loader = shuffled(pages, cache, workers)
    loader.load_state_dict(loader.state_dict() | {"epoch": epoch, "batches": batches})
    with log.open("a", buffering=1) as stream:
        for names in names_of(loader):
            stream.write(f"{names}\n")


@fault("kill-epoch", "who reads an epoch is killed, and resumes it", 40, pages_only)
def kill_epoch(case: Case) -> None:
    cache, log, pages, epoch = case.folder / "cache", case.folder / "log", case.prepared.pages, case.rng.randrange(3)
    undisturbed = shuffled(pages, None, 0)
    undisturbed.set_epoch(epoch)
    expected, done = list(names_of(undisturbed)), list[str]()
    for attempt in range(4):
        child = Child(case, read_batches, pages, cache, log, case.rng.choice((0, 2)), len(done), epoch)
        if attempt < 2:
            child.kill_after(case.rng.uniform(0, FILL_SECONDS))
        else:
            child.wait()
        done = [line for line in log.read_text().splitlines(True) if line.endswith("\n")] if log.exists() else []
        log.write_text("".join(done))
        if len(done) == len(expected):
            break
    case.check_order(log.read_text().splitlines(), expected)
    read_twice(case, pages, cache, case.prepared.expected)


# -- disks


def limit_files(limit_bytes: int) -> None:
    """No file of this process may become longer."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))


def read_right(pages: Path, cache: Path, expected: list[Any], **settings: Any) -> None:
    """In a process without a case."""
    dataset = open_pages(pages, cache, **settings)
    Case(Random(), cache, None).compare(items(dataset), expected)
    if sum(outcomes(dataset)) != len(expected):
        raise FindingError("silent skip", f"{outcomes(dataset)} were counted")


def read_with_limit(pages: Path, cache: Path, expected: list[Any], limit_bytes: int) -> None:
    limit_files(limit_bytes)
    for _ in range(2):
        read_right(pages, cache, expected)


@fault("disk-full-cache", "the disk of a cache is full", 30, with_caches)
def full_cache(case: Case) -> None:
    prepared, cache = case.prepared, case.folder / "cache"
    # The limit counts for shared memory too, which has pages of 4 kB.
    limit = int(10 ** case.rng.uniform(3.7, 5.7))
    Child(case, read_with_limit, prepared.pages, cache, prepared.expected, limit).wait()
    case.counts["samples"] += 2 * len(prepared.expected)
    read_twice(case, prepared.pages, cache, prepared.expected)


def read_on_small_disk(pages: Path, cache: Path, expected: list[Any], size: str) -> None:
    """Two runs on a real file system that is full, one with room again, and one that may not write."""
    library, new_mounts, private, remount = ctypes.CDLL(None), 0x20000, 0x44000, 0x20
    if library.unshare(new_mounts):
        return  # This user may not mount a file system.
    library.mount(b"none", b"/", None, private, None)
    path = str(cache).encode()
    if library.mount(b"tmpfs", path, b"tmpfs", 0, f"size={size}".encode()):
        return
    limits = {"cache_max_bytes": "1GB", "cache_max_total_bytes": "1GB"}
    for _ in range(2):
        read_right(pages, cache, expected, **limits)
    assert library.mount(b"tmpfs", path, b"tmpfs", remount, b"size=10m") == 0
    for _ in range(2):
        read_right(pages, cache, expected)
    gc.collect()  # What is open to be written to keeps the file system so.
    assert library.mount(b"tmpfs", path, b"tmpfs", remount | 1, None) == 0
    repaint(pages / "images" / "val" / "01.bmp")
    read_right(pages, cache, items(open_pages(pages)))


@fault("disk-small", "a real file system gets full, has room again, and is read-only at last", 12, with_caches)
def small_disk(case: Case) -> None:
    pages, cache = Path(shutil.copytree(case.prepared.pages, case.folder / "pages")), case.folder / "cache"
    cache.mkdir()
    size = f"{case.rng.randrange(40, 400)}k"
    Child(case, read_on_small_disk, pages, cache, case.prepared.expected, size).wait()
    case.counts["samples"] += 5 * len(case.prepared.expected)


@fault("disk-gone-cache", "the disk of a cache vanishes during an epoch", 40, with_caches)
def gone_cache(case: Case) -> None:
    form = case.rng.choice(FORMS)
    cache = copy_cache(case, form)
    dataset = open_pages(case.prepared.pages, cache, form)
    at, action, found = case.rng.randrange(len(dataset)), case.rng.randrange(3), []
    for index in range(len(dataset)):
        if index == at and action == 1:
            cache.rename(case.folder / "elsewhere")
        elif index == at:
            shutil.rmtree(cache if action == 0 else next(path for path in cache.iterdir() if path.is_dir()))
        found += items([dataset[index]])
    case.compare(found, case.prepared.expected)
    dataset.set_epoch(1)
    case.compare(items(dataset), case.prepared.expected)
    del dataset
    read_twice(case, case.prepared.pages, cache, case.prepared.expected, form)


# -- clocks and edits


@contextmanager
def clock_off(seconds: float) -> Iterator[None]:
    """The clock of this process is off by so much; the clock of files is not."""
    real, real_ns = time.time, time.time_ns
    time.time, time.time_ns = lambda: real() + seconds, lambda: real_ns() + int(seconds * 1e9)
    try:
        yield
    finally:
        time.time, time.time_ns = real, real_ns


def jump(rng: Random) -> float:
    return rng.choice((-1, 1)) * rng.choice((1.0, 3.0, 3600.0, DAY, 400 * DAY, 20_000 * DAY))


@fault("clock-jump", "the clock jumps, and files are from the future or from 1970", 50, with_caches)
def jumps(case: Case) -> None:
    rng, form, cache = case.rng, case.rng.choice(FORMS), case.folder / "cache"
    pages = Path(shutil.copytree(case.prepared.pages, case.folder / "pages"))
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
    read_twice(case, pages, case.folder / "another", expected, form)


@fault("edit-between", "edits between epochs", 50, with_caches)
def between(case: Case) -> None:
    rng, form = case.rng, case.rng.choice(FORMS)
    pages = Path(shutil.copytree(case.prepared.pages, case.folder / "pages"))
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
    rng, form = case.rng, case.rng.choice(FORMS)
    pages = Path(shutil.copytree(case.prepared.pages, case.folder / "pages"))
    dataset = open_pages(pages, case.folder / "cache", form)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        versions, at, found = [items(open_pages(pages))], rng.randrange(len(dataset)), []
        for index in range(len(dataset)):
            if index == at:
                edit(pages, rng)
                versions.append(items(open_pages(pages)))
            found += items([dataset[index]])
        for number, sample in enumerate(found):
            if all(difference(sample, version[number]) for version in versions):
                raise FindingError("wrong sample", f"sample {number} is neither the old nor the new one")
        case.counts["samples"] += len(found)
    dataset.set_epoch(3)
    case.compare(items(dataset), items(open_pages(pages)))


# -- two machines: sets of processes with process ids of their own, where this user may make one


def on_another_machine(function: Callable[..., None], *arguments: Any) -> None:
    """Run a function with other process ids than those here, and a /proc that shows no process of here."""
    library, new_mounts, new_processes, private = ctypes.CDLL(None), 0x20000, 0x20000000, 0x44000
    if library.unshare(new_mounts | new_processes):
        function(*arguments)  # Not allowed: another process of this machine.
        return
    if (pid := os.fork()) == 0:
        status = 3
        try:
            library.mount(b"none", b"/", None, private, None)
            library.mount(b"proc", b"/proc", b"proc", 0, None)
            function(*arguments)
            status = 0
        finally:
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError("a process of another machine failed")


def fill_and_read(pages: Path, cache: Path, expected: list[Any], form: str, start: float, threads: int) -> None:
    """For two epochs."""
    time.sleep(max(0.0, start - time.monotonic()))
    dataset = open_pages(pages, cache, form)
    if threads:
        dataset.fill_cache(threads=threads)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        Case(Random(), cache, None).compare(items(dataset), expected)
        if sum(outcomes(dataset)) != len(expected):
            raise FindingError("silent skip", f"{outcomes(dataset)} were counted")


@fault(
    "two-machines",
    "two machines fill, read and clear one cache, and some of their processes are killed",
    40,
    pages_only,
)
def two_machines(case: Case) -> None:
    rng, form, cache, start = case.rng, case.rng.choice(FORMS), case.folder / "cache", time.monotonic() + 0.05
    cache.mkdir()
    prepared, readers, others = case.prepared, [], []
    for number in range(rng.choice((3, 4))):
        arguments = prepared.pages, cache, prepared.expected, form, start + rng.uniform(0, 0.05), rng.choice((0, 1, 2))
        run = (on_another_machine, fill_and_read) if number % 2 else (fill_and_read,)
        readers.append(Child(case, *run, *arguments))
    if rng.random() < 0.5:
        run = (on_another_machine, clear_all) if rng.random() < 0.5 else (clear_all,)  # type: ignore[assignment]
        others.append(Child(case, *run, cache, start + rng.uniform(0, 0.4)))
    if rng.random() < 0.5:
        # One of this machine: those of another end with their first process.
        readers.pop(0).kill_after(rng.uniform(0, 0.4))
    for child in (*readers, *others):
        child.wait()
    case.counts["samples"] += 2 * len(prepared.expected) * len(readers)
    read_twice(case, prepared.pages, cache, prepared.expected, form)
