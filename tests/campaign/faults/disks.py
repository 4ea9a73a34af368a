"""Disks that are full, read-only, or vanish while they are in use."""

from __future__ import annotations

import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import convert_pages
from cache_worker import items, open_pages, outcomes
from test_cache_faults import fill_small_disk

from ocr.datasets import OCRWebDataset
from ocr.errors import GlyphFeedError, OutputError
from tests.campaign.cases import Case, CrashError, WrongSampleError, fault
from tests.campaign.compared import Child, compare, compare_unless_skipped, without_path
from tests.campaign.faults.cache_files import FORMS, read_twice
from tests.campaign.faults.cache_files import prepare as prepare_caches
from tests.campaign.faults.shard_files import prepare as prepare_shards
from tests.campaign.faults.shard_files import prepare_conversion
from tests.campaign.pages import KINDS

SMALLEST = 3.7
"""Power of ten: the limit of a process counts for shared memory too, which has pages of 4 kB."""


def read_with_limit(pages: Path, cache: Path, expected: list[Any], limit_bytes: int) -> None:
    """No file of this process may become longer."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
    case = Case(None, cache, None)  # type: ignore[arg-type]
    for _ in range(2):
        dataset = open_pages(pages, cache)
        compare(case, items(dataset), expected)
        if sum(outcomes(dataset)) != len(expected):
            raise CrashError(f"{outcomes(dataset)} were counted")


@fault("disk-full-cache", "the disk of a cache is full", share=30, prepare=prepare_caches)
def full_cache(case: Case) -> None:
    prepared, cache = case.prepared, case.folder / "cache"
    limit = int(10 ** case.rng.uniform(SMALLEST, 5.7))
    Child(case, read_with_limit, prepared.pages, cache, prepared.expected, limit).wait()
    case.tally.samples += 2 * len(prepared.expected)
    read_twice(case, prepared.pages, cache, prepared.expected)


@fault(
    "disk-small",
    "a real file system gets full, has room again, and is read-only at last",
    share=12,
    prepare=prepare_caches,
)
def small_disk(case: Case) -> None:
    pages = shutil.copytree(case.prepared.pages, case.folder / "pages")
    (case.folder / "cache").mkdir()
    size = f"{case.rng.randrange(40, 400)}k"
    Child(case, fill_small_disk, str(pages), str(case.folder / "cache"), size).wait()
    case.tally.samples += 5 * len(case.prepared.expected)


def convert_with_limit(pages: Path, out: Path, limit_bytes: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
    try:
        convert_pages.convert(pages, out, workers=1, samples_per_shard=1)
    except OutputError as error:
        if str(out) not in str(error):
            raise


@fault("disk-full-convert", "the disk of a conversion is full", share=25, prepare=prepare_conversion)
def full_conversion(case: Case) -> None:
    out = case.folder / "out"
    Child(case, convert_with_limit, case.prepared["pages"], out, int(10 ** case.rng.uniform(SMALLEST, 4.5))).wait()
    convert_pages.convert(case.prepared["pages"], out, workers=1, samples_per_shard=1)
    if convert_pages.files(out) != case.prepared["expected"]:
        raise WrongSampleError("other bytes than those of a conversion with room")
    case.tally.samples += 4


@fault("disk-gone-cache", "the disk of a cache vanishes during an epoch", share=40, prepare=prepare_caches)
def gone_cache(case: Case) -> None:
    form = case.rng.choice(FORMS)
    cache = shutil.copytree(case.prepared.caches[form], case.folder / "cache")
    dataset = open_pages(case.prepared.pages, cache, cache_form=form)
    at, action = case.rng.randrange(len(dataset)), case.rng.randrange(3)
    found = []
    for index in range(len(dataset)):
        if index == at:
            if action == 0:
                shutil.rmtree(cache)
            elif action == 1:
                cache.rename(case.folder / "elsewhere")
            else:
                shutil.rmtree(next(path for path in cache.iterdir() if path.is_dir()))
        found.append(dataset[index])
    compare(case, found, case.prepared.expected)
    dataset.set_epoch(1)
    compare(case, items(dataset), case.prepared.expected)
    del dataset
    read_twice(case, case.prepared.pages, cache, case.prepared.expected, cache_form=form)


@fault("disk-gone-shards", "the disk of shards vanishes during an epoch", share=25, prepare=prepare_shards)
def gone_shards(case: Case) -> None:
    shards = shutil.copytree(case.prepared.shards[case.rng.choice([*KINDS])], case.folder / "shards")
    on_bad_sample, at = case.rng.choice(("raise", "skip")), case.rng.randrange(5)
    dataset = OCRWebDataset(f"{shards}/val-*.tar", convert_pages.transforms(), on_bad_sample=on_bad_sample)
    found: list[Any] = []
    try:
        for index in range(len(dataset)):
            if index == at:
                shutil.rmtree(shards)
            item = dataset[index]
            found.append(None if item is None else without_path(item))
    except GlyphFeedError as error:
        case.refusal(error, str(shards))
        compare(case, found, case.prepared.expected[: len(found)])
        return
    compare_unless_skipped(case, found, case.prepared.expected, dataset.ledger.totals()["skipped"])
