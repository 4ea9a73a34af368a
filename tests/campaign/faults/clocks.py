"""Clocks that jump, and files from the future or from 1970: edits are seen all the same."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from cache_worker import items, open_pages, repaint

from tests.campaign.cases import Case, fault
from tests.campaign.compared import compare
from tests.campaign.faults.cache_files import FORMS, prepare, read_twice

DAY = 86_400.0


@contextmanager
def clock_off(seconds: float) -> Iterator[None]:
    """The clock of this process is off by so much; those of the files go on."""
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
    try:
        yield
    finally:
        time.time, time.time_ns = real, real_ns


def jump(rng: Random) -> float:
    return rng.choice((-1, 1)) * rng.choice((1.0, 3.0, 3600.0, DAY, 400 * DAY, 20_000 * DAY))


@fault("clock-jump", "the clock jumps, and files are from the future or from 1970", share=50, prepare=prepare)
def jumps(case: Case) -> None:
    rng, form = case.rng, case.rng.choice(FORMS)
    pages = shutil.copytree(case.prepared.pages, case.folder / "pages")
    cache = case.folder / "cache"
    dataset = open_pages(pages, cache, cache_form=form)
    for epoch in range(4):
        with clock_off(jump(rng)):
            dataset.set_epoch(epoch)
            compare(case, items(dataset), items(open_pages(pages)))
        chosen = pages / "images" / rng.choice(("01.bmp", "04.bmp"))
        if rng.random() < 0.7:
            repaint(chosen)
        if rng.random() < 0.7:
            moment = max(0.0, time.time() + jump(rng)) if rng.random() < 0.8 else 0.0
            os.utime(chosen, (moment, moment))
    del dataset
    with clock_off(jump(rng)):
        expected = items(open_pages(pages))
        for _ in range(2):
            compare(case, items(open_pages(pages, cache, cache_form=form)), expected)
    read_twice(case, pages, case.folder / "another", expected, cache_form=form)
