"""Damage to every file of a cache: while nobody has it open, while somebody has, and to the list of pages beside it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cache_worker import items, open_pages, outcomes, write_pages

from ocr.errors import GlyphFeedError
from ocr.pipeline import kept_table
from tests.campaign.cases import Case, SilentSkipError, fault
from tests.campaign.compared import compare
from tests.campaign.damage import DAMAGES, choose

PAGES = 6
FORMS = ("raw", "dense")


@dataclass(frozen=True)
class Filled:
    """Pages, a filled cache of each form, and the samples without a cache."""

    pages: Path
    caches: dict[str, Path]
    expected: list[Any]


def prepare(folder: Path) -> Filled:
    pages = write_pages(folder / "pages", PAGES)
    caches = {form: folder / form for form in FORMS}
    for form, cache in caches.items():
        open_pages(pages, cache, cache_form=form).fill_cache(threads=1)
    return Filled(pages, caches, items(open_pages(pages)))


def read_twice(case: Case, pages: Path, cache: Path, expected: list[Any], **settings: Any) -> None:
    """The first run mends what it finds, the second one finds everything."""
    for run in range(2):
        dataset = open_pages(pages, cache, **settings)
        compare(case, items(dataset), expected)
        hits, misses, invalid = outcomes(dataset)
        if hits + misses + invalid != len(expected):
            raise SilentSkipError(f"{(hits, misses, invalid)} of {len(expected)} samples were counted")
        if run and hits != len(expected):
            raise SilentSkipError(f"only {hits} of {len(expected)} samples were kept by the run before")
        case.tally.counted += misses + invalid
        del dataset


def damaged(name: str, case: Case) -> None:
    """One file of a cache, or two of them."""
    form = case.rng.choice(FORMS)
    cache = shutil.copytree(case.prepared.caches[form], case.folder / "cache")
    files = [file for file in cache.rglob("*") if file.is_file()]
    for _ in range(case.rng.choice((1, 1, 2))):
        file = choose([file for file in files if file.is_file()], case.rng)
        DAMAGES[name][1](file, case.rng)
    read_twice(case, case.prepared.pages, cache, case.prepared.expected, cache_form=form)


for _name, (_about, _) in DAMAGES.items():
    fault(f"cache-{_name}", f"a file of a cache: {_about}", share=110, prepare=prepare)(partial(damaged, _name))


@fault("cache-cut-open", "a file of a cache: cut while two have it open", share=40, prepare=prepare)
def cut_while_open(case: Case) -> None:
    form = case.rng.choice(FORMS)
    cache = shutil.copytree(case.prepared.caches[form], case.folder / "cache")
    both = [open_pages(case.prepared.pages, cache, cache_form=form) for _ in range(2)]
    for dataset in both:
        compare(case, items(dataset), case.prepared.expected)
    file = choose([path for path in cache.rglob("*") if path.name in ("data", "rows")], case.rng)
    os.truncate(file, int(case.rng.random() * file.stat().st_size))
    for epoch in (1, 2):
        for dataset in both:
            dataset.set_epoch(epoch)
            compare(case, items(dataset), case.prepared.expected)
            case.tally.counted += sum(outcomes(dataset)[1:])


@fault("page-list", "the list of pages that is kept between runs: any damage", share=40, prepare=prepare)
def page_list(case: Case) -> None:
    before = kept_table.MIN_ROWS, kept_table.JUST_NOW_NS
    # So that few pages, written just now, have a list of their own.
    kept_table.MIN_ROWS, kept_table.JUST_NOW_NS = 1, -(10**12)
    try:
        cache = case.folder / "cache"
        compare(case, items(open_pages(case.prepared.pages, cache)), case.prepared.expected)
        files = list((cache / "pages").glob("*.rows"))
        if not files:
            raise SilentSkipError("no list of pages was kept")
        file = choose(files, case.rng)
        DAMAGES[case.rng.choice([*DAMAGES])][1](file, case.rng)
        try:
            read_twice(case, case.prepared.pages, cache, case.prepared.expected)
        except GlyphFeedError as error:
            case.refusal(error, str(file))
            file.unlink()  # As the error says.
            read_twice(case, case.prepared.pages, cache, case.prepared.expected)
    finally:
        kept_table.MIN_ROWS, kept_table.JUST_NOW_NS = before
