"""Two machines' worth of processes on one cache: they fill, read, clear and die at the same time.

A machine is a set of processes with process ids of its own, where this user may make one.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cache_worker import items, open_pages, outcomes

from ocr.tools.cache.clear import clear
from tests.campaign.cases import Case, SilentSkipError, fault
from tests.campaign.compared import Child, compare
from tests.campaign.faults.cache_files import FORMS, read_twice
from tests.campaign.faults.kills import prepare_pages

NEW_MOUNTS, NEW_PROCESSES, PRIVATE = 0x20000, 0x20000000, 0x44000


def on_another_machine(function: Callable[..., None], *arguments: Any) -> None:
    """Run a function with other process ids than those here, and a /proc that shows no process of here."""
    library = ctypes.CDLL(None)
    if library.unshare(NEW_MOUNTS | NEW_PROCESSES):
        function(*arguments)  # Not allowed: another process of this machine.
        return
    pid = os.fork()
    if pid == 0:
        status = 3
        try:
            library.mount(b"none", b"/", None, PRIVATE, None)
            library.mount(b"proc", b"/proc", b"proc", 0, None)
            function(*arguments)
            status = 0
        finally:
            os._exit(status)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise RuntimeError("a process of another machine failed")


def read(pages: Path, cache: Path, expected: list[Any], form: str, start: float, threads: int) -> None:
    """Fill and read for two epochs."""
    time.sleep(max(0.0, start - time.monotonic()))
    case = Case(None, cache, None)  # type: ignore[arg-type]
    dataset = open_pages(pages, cache, cache_form=form)
    if threads:
        dataset.fill_cache(threads=threads)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        compare(case, items(dataset), expected)
        if sum(outcomes(dataset)) != len(expected):
            raise SilentSkipError(f"{outcomes(dataset)} were counted")


def clear_all(cache: Path, start: float) -> None:
    time.sleep(max(0.0, start - time.monotonic()))
    clear(cache, (), None, None, dry_run=False, yes=True)


@fault(
    "two-machines",
    "two machines fill, read and clear one cache, and some of their processes are killed",
    share=40,
    prepare=prepare_pages,
)
def two_machines(case: Case) -> None:
    rng, form, cache, start = case.rng, case.rng.choice(FORMS), case.folder / "cache", time.monotonic() + 0.05
    cache.mkdir()
    prepared, readers, others = case.prepared, [], []
    for number in range(rng.choice((3, 4))):
        arguments = prepared.pages, cache, prepared.expected, form, start + rng.uniform(0, 0.05), rng.choice((0, 1, 2))
        run = (on_another_machine, read) if number % 2 else (read,)
        readers.append(Child(case, *run, *arguments))
    if rng.random() < 0.5:
        run = (on_another_machine, clear_all) if rng.random() < 0.5 else (clear_all,)
        others.append(Child(case, *run, cache, start + rng.uniform(0, 0.4)))
    if rng.random() < 0.5:
        # One of this machine: those of another end with their first process.
        time.sleep(rng.uniform(0, 0.4))
        readers.pop(0).kill()
    for child in (*readers, *others):
        child.wait()
        case.tally.samples += 2 * len(prepared.expected) * (child in readers)
    read_twice(case, prepared.pages, cache, prepared.expected, cache_form=form)
    shutil.rmtree(cache)
