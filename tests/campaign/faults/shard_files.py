"""Damage to shards, their index, stored maps, and a conversion that is not finished."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import convert_pages
from cache_worker import items
from convert_pages import convert, files, write_pages
from test_convert_kills import convert_and_die

from ocr.datasets import OCRWebDataset
from ocr.errors import GlyphFeedError
from ocr.tools.preprocess import preprocess_maps
from tests.campaign.cases import Case, SilentSkipError, fault
from tests.campaign.compared import Child, compare, compare_unless_skipped, without_path
from tests.campaign.damage import DAMAGES, choose
from tests.campaign.pages import KINDS

NAMES = convert_pages.NAMES[:5]
PER_SHARD = 2
FORMS = KINDS | {"batches": {"ready_batches": 2}}


@dataclass(frozen=True)
class Converted:
    """Pages, their shards of every kind, and the samples of the folder."""

    pages: Path
    shards: dict[str, Path]
    expected: list[Any]


def prepare(folder: Path) -> Converted:
    pages = write_pages(folder / "pages", NAMES)
    shards = {kind: folder / kind for kind in FORMS}
    for kind, out in shards.items():
        convert(pages, out, workers=1, samples_per_shard=PER_SHARD, **FORMS[kind])
    return Converted(pages, shards, [without_path(item) for item in items(convert_pages.open_pages(pages))])


def damaged(name: str, case: Case) -> None:
    """One file of some shards; what is wrong is named, or skipped and counted."""
    shards = shutil.copytree(case.prepared.shards[case.rng.choice([*FORMS])], case.folder / "shards")
    file = choose(list(shards.iterdir()), case.rng)
    DAMAGES[name][1](file, case.rng)
    on_bad_sample = case.rng.choice(("raise", "skip"))
    pattern = f"{shards}/val-{{000000..{(len(NAMES) - 1) // PER_SHARD:06d}}}.tar"
    try:
        dataset = OCRWebDataset(pattern, convert_pages.transforms(), on_bad_sample=on_bad_sample)
        if len(dataset) != len(NAMES) and (shards / "val-index.json").is_file():
            raise SilentSkipError(f"{len(dataset)} samples of {len(NAMES)}")
        found = [without_path(item) for item in items(dataset)]
    except GlyphFeedError as error:
        case.refusal(error, str(shards))
        return
    skipped = dataset.ledger.totals()["skipped"]
    compare_unless_skipped(case, found, case.prepared.expected, skipped)


for _name, (_about, _) in DAMAGES.items():
    fault(f"shard-{_name}", f"a shard or its index: {_about}", share=60, prepare=prepare)(partial(damaged, _name))


def prepare_maps(folder: Path) -> Converted:
    pages = write_pages(folder / "pages", NAMES[:3])
    expected = items(convert_pages.open_pages(pages))
    preprocess_maps(convert_pages.open_pages(pages), workers=1, show_progress=False)
    return Converted(pages, {}, expected)


@fault("maps-damage", "stored maps: any damage", share=40, prepare=prepare_maps)
def maps(case: Case) -> None:
    data = shutil.copytree(case.prepared.pages, case.folder / "pages")
    chosen = choose(list(data.rglob("*.npz")), case.rng)
    DAMAGES[case.rng.choice([*DAMAGES])][1](chosen, case.rng)
    dataset = convert_pages.open_pages(data, preload_maps=case.rng.random() < 0.5)
    try:
        found = items(dataset)
    except GlyphFeedError as error:
        case.refusal(error, chosen.name)
        return
    case.tally.counted += dataset.ledger.totals().get("maps_stale", 0)
    compare(case, [without_path(item) for item in found], [without_path(item) for item in case.prepared.expected])


def prepare_conversion(folder: Path) -> dict[str, Any]:
    pages = write_pages(folder / "pages", NAMES[:4])
    convert(pages, folder / "expected", workers=1, samples_per_shard=1)
    return {"pages": pages, "expected": files(folder / "expected")}


@fault(
    "convert-damage", "a conversion killed, its files damaged, and begun again", share=30, prepare=prepare_conversion
)
def conversion(case: Case) -> None:
    out, settings = case.folder / "out", {"samples_per_shard": 1}
    arguments = case.prepared["pages"], out, settings, case.rng.randrange(5, 45), case.folder / "log"
    Child(case, convert_and_die, *arguments).wait()
    left = [path for path in out.iterdir() if path.is_file()] if out.exists() else []
    if left:
        DAMAGES[case.rng.choice(("flip", "cut", "garbage"))][1](choose(left, case.rng), case.rng)
    try:
        convert(case.prepared["pages"], out, workers=1, **settings)
    except GlyphFeedError as error:
        case.refusal(error, str(out))
        convert(case.prepared["pages"], out, workers=1, overwrite=True, **settings)
    found, expected = files(out), case.prepared["expected"]
    if found != expected:
        raise SilentSkipError(f"other bytes: {sorted(name for name in expected if found.get(name) != expected[name])}")
    case.tally.samples += len(NAMES[:4])
