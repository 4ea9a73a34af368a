"""Edits while a dataset is open: during an epoch a sample is the old or the new one, the next epoch has all edits."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from cache_worker import items, open_pages, read_annotation, repaint, write_annotation
from PIL import Image
from sameness import assert_same

from ocr.loader import Loader
from tests.campaign.cases import Case, WrongSampleError, fault
from tests.campaign.compared import check_order, compare
from tests.campaign.faults.cache_files import FORMS, prepare


def edit(pages: Path, rng: Random) -> None:
    """Another picture, or another word."""
    names = sorted(path.name for path in (pages / "images").iterdir())
    action, name = rng.randrange(4), rng.choice(names)
    if action == 0:
        repaint(pages / "images" / rng.choice([name for name in names if name.endswith(".bmp")]))
    elif action == 1:
        size = rng.randrange(40, 90), rng.randrange(40, 90), 3
        new = np.random.default_rng(rng.randrange(10**6)).integers(0, 256, size, dtype=np.uint8)
        Image.fromarray(new).save(pages / f"new{Path(name).suffix}")
        (pages / f"new{Path(name).suffix}").replace(pages / "images" / name)
    else:
        annotation = read_annotation(pages)
        word = annotation[name]["words"]["0001"]
        word["points"] = [[x + 1, y] for x, y in word["points"]] if action == 2 else word["points"][:3]
        write_annotation(pages, annotation)


@fault("edit-between", "edits between epochs", share=50, prepare=prepare)
def between(case: Case) -> None:
    rng, form = case.rng, case.rng.choice(FORMS)
    pages = shutil.copytree(case.prepared.pages, case.folder / "pages")
    dataset = open_pages(pages, case.folder / "cache", cache_form=form)
    loader = Loader(dataset, batch_size=4, num_workers=rng.choice((0, 2)))
    for _ in range(3):
        for _ in range(rng.randrange(3)):
            edit(pages, rng)
        found, expected = list(loader), list(Loader(open_pages(pages), batch_size=4, num_workers=0))
        compare(case, found, expected)
        case.tally.samples += len(dataset) - len(found)
        check_order(case, names(found), names(expected))


def names(batches: list[Any]) -> list[str]:
    return [name for batch in batches for name in batch["image_filename"]]


@fault("edit-during", "edits during an epoch", share=50, prepare=prepare)
def during(case: Case) -> None:
    rng, form = case.rng, case.rng.choice(FORMS)
    pages = shutil.copytree(case.prepared.pages, case.folder / "pages")
    dataset = open_pages(pages, case.folder / "cache", cache_form=form)
    for epoch in range(3):
        dataset.set_epoch(epoch)
        versions, at, found = [items(open_pages(pages))], rng.randrange(len(dataset)), []
        for index in range(len(dataset)):
            if index == at:
                edit(pages, rng)
                versions.append(items(open_pages(pages)))
            found.append(dataset[index])
        for number, sample in enumerate(found):
            if not any(is_same(sample, version[number]) for version in versions):
                raise WrongSampleError(f"sample {number} is neither the old nor the new one")
        case.tally.samples += len(found)
    dataset.set_epoch(3)
    compare(case, items(dataset), items(open_pages(pages)))


def is_same(one: Any, other: Any) -> bool:
    try:
        assert_same(one, other)
    except AssertionError:
        return False
    return True
