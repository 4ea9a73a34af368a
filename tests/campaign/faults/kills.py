"""Kills at random instants and at any call: of those who fill a cache, clear it, convert, fetch, and train."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

from cache_worker import items, open_pages, write_pages
from convert_pages import NAMES, convert, files
from convert_pages import write_pages as write_split
from test_cache_faults import CHANGES_OF_FILES, LOCKS, fill
from test_convert_kills import assert_no_lie, convert_and_die, convert_ready

from ocr.loader import Loader
from ocr.tools.cache.clear import clear
from tests.campaign.cases import Case, WrongSampleError, fault
from tests.campaign.compared import Child, check_order, compare, killed_after
from tests.campaign.faults.cache_files import FORMS, Filled, read_twice
from tests.campaign.faults.cache_files import prepare as prepare_caches

FILL_SECONDS = 0.25
"""About as long as the pages of a cache take on a machine with little else to do."""


def prepare_pages(folder: Path) -> Filled:
    pages = write_pages(folder / "pages", 12)
    return Filled(pages, {}, items(open_pages(pages)))


@fault("kill-fill", "who fills a cache is killed", share=60, prepare=prepare_pages)
def kill_fill(case: Case) -> None:
    import cache_worker

    cache_worker.form = case.rng.choice(FORMS)
    cache, pages = case.folder / "cache", case.prepared.pages
    cache.mkdir()
    for _ in range(case.rng.choice((1, 2))):
        settings = {"folder": str(pages), "cache": str(cache), "threads": case.rng.choice((1, 2))}
        if case.rng.random() < 0.5:
            Child(case, fill, **settings, die_at=case.rng.randrange(1, 160)).wait()
        else:
            killed_after(case, case.rng.uniform(0, FILL_SECONDS), fill, **settings)
    read_twice(case, pages, cache, case.prepared.expected, cache_form=cache_worker.form)
    cache_worker.form = "auto"


def clear_and_die(cache: Path, die_at: int) -> None:
    """Remove all caches, and die at the given of the calls that change or lock a file."""
    calls = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal calls
        if event in CHANGES_OF_FILES or event in LOCKS:
            calls += 1
            if calls == die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    clear(cache, (), None, None, dry_run=False, yes=True)


@fault("kill-clear", "`ocr cache clear` is killed, while another reads", share=30, prepare=prepare_caches)
def kill_clear(case: Case) -> None:
    form = case.rng.choice(FORMS)
    cache = shutil.copytree(case.prepared.caches[form], case.folder / "cache")
    reader = open_pages(case.prepared.pages, cache, cache_form=form)
    compare(case, items(reader), case.prepared.expected)
    Child(case, clear_and_die, cache, case.rng.randrange(1, 12)).wait()
    reader.set_epoch(1)
    compare(case, items(reader), case.prepared.expected)
    del reader
    read_twice(case, case.prepared.pages, cache, case.prepared.expected, cache_form=form)


@lru_cache(maxsize=1)
def conversion_names() -> tuple[str, ...]:
    return tuple(f"{number:02d}.jpg" for number in range(10))


def prepare_conversion(folder: Path) -> dict[str, Any]:
    few, many = write_split(folder / "few", NAMES[:3]), write_split(folder / "many", conversion_names())
    convert(few, folder / "expected few", workers=1, samples_per_shard=1)
    convert_ready(many, folder / "expected many")
    return {
        "few": (few, files(folder / "expected few")),
        "many": (many, files(folder / "expected many")),
    }


@fault("kill-convert", "a conversion is killed and begun again", share=40, prepare=prepare_conversion)
def kill_convert(case: Case) -> None:
    out = case.folder / "out"
    if case.rng.random() < 0.6:
        pages, expected = case.prepared["few"]
        Child(
            case, convert_and_die, pages, out, {"samples_per_shard": 1}, case.rng.randrange(1, 40), case.folder / "log"
        ).wait()
        if out.exists():
            assert_no_lie(out)
        convert(pages, out, workers=1, samples_per_shard=1)
    else:
        pages, expected = case.prepared["many"]
        killed_after(case, case.rng.uniform(0, FILL_SECONDS), convert_ready, pages, out)
        if out.exists():
            assert_no_lie(out)
        convert_ready(pages, out)
    if files(out) != expected:
        raise WrongSampleError("the bytes are others than those of a conversion without a break")
    case.tally.samples += len(expected)


def read_batches(pages: Path, cache: Path, log: Path, workers: int, batches: int, epoch: int) -> None:
    """An epoch from a batch on; the names of each batch are logged with the state of the loader."""
    loader = make_loader(pages, cache, workers)
    loader.load_state_dict({"epoch": epoch, "batches": batches} | _rest_of(loader))
    with log.open("a", buffering=1) as stream:
        for batch in loader:
            stream.write(f"{','.join(batch['image_filename'])}\n")


def _rest_of(loader: Loader) -> dict[str, int]:
    return {name: value for name, value in loader.state_dict().items() if name not in ("epoch", "batches")}


def make_loader(pages: Path, cache: Path, workers: int) -> Loader:
    return Loader(open_pages(pages, cache), batch_size=2, num_workers=workers, shuffle=True, seed=5)


def order_of(pages: Path, epoch: int) -> list[str]:
    loader = Loader(open_pages(pages), batch_size=2, num_workers=0, shuffle=True, seed=5)
    loader.set_epoch(epoch)
    return [",".join(batch["image_filename"]) for batch in loader]


@fault("kill-epoch", "who reads an epoch is killed, and resumes it", share=40, prepare=prepare_pages)
def kill_epoch(case: Case) -> None:
    cache, log, pages = case.folder / "cache", case.folder / "log", case.prepared.pages
    epoch, expected = case.rng.randrange(3), None
    expected = order_of(pages, epoch)
    for attempt in range(4):
        done = log.read_text().splitlines() if log.exists() else []
        if log.exists() and not log.read_text().endswith("\n") and done:
            done = done[:-1]
            log.write_text("".join(f"{line}\n" for line in done))
        if len(done) == len(expected):
            break
        arguments = pages, cache, log, case.rng.choice((0, 2)), len(done), epoch
        if attempt < 2:
            killed_after(case, case.rng.uniform(0, FILL_SECONDS), read_batches, *arguments)
        else:
            Child(case, read_batches, *arguments).wait()
    check_order(case, log.read_text().splitlines(), expected)
    read_twice(case, pages, cache, case.prepared.expected)
