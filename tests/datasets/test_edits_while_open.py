"""Edits while a dataset is open: the next epoch has them, whichever engine reads it and whatever is cached."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import open_split, transforms
from PIL import Image
from sameness import assert_same

from ocr.datasets import OCRDataset
from ocr.datasets.page_dataset import PageDataset
from ocr.formats.maps import map_file, maps_folder
from ocr.loader import Loader
from ocr.pipeline.page_index import SourceState
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import Source
from ocr.tools.preprocess import preprocess_maps

FIXED, DEVICE = transforms(False), transforms(False, "device")
ENGINES = {
    "threads": {"num_workers": 2},
    "no workers": {"num_workers": 0},
    "processes": {"num_workers": 1, "engine": "processes"},
    "persistent processes": {"num_workers": 1, "engine": "processes", "persistent_workers": True},
}


def invert(page: Path) -> None:
    """The page's negative, in a file of its own that takes the page's name."""
    with Image.open(page) as image:
        Image.fromarray(255 - np.asarray(image)).save(page.with_name("new.jpg"))
    os.replace(page.with_name("new.jpg"), page)


def move_a_word(data: Path, page: str) -> None:
    path = data / "jsons" / "val.json"
    document = json.loads(path.read_text())
    word = next(iter(document["images"][page]["words"].values()))
    word["points"] = [[x + 40, y + 20] for x, y in word["points"]]
    path.write_text(json.dumps(document))


def fresh(data: Path, transform: Any = DEVICE) -> list[Any]:
    return list(Loader(open_split(data, "val", transform), 4, 0))


@pytest.mark.parametrize(
    ("engine", "cache", "transform"),
    [
        ("threads", "auto", DEVICE),
        ("threads", "off", FIXED),
        ("no workers", "auto", FIXED),
        ("processes", "auto", DEVICE),
        ("persistent processes", "off", FIXED),
        ("persistent processes", "auto", DEVICE),
    ],
)
def test_an_image_or_a_word_that_is_edited_is_seen_in_the_next_epoch(
    dataset_folder, tmp_path, engine, cache, transform
):
    dataset = open_split(dataset_folder, "val", transform, cache=cache, cache_folder=tmp_path / "cache")
    loader = Loader(dataset, 4, **ENGINES[engine])
    names = list(dataset.source.names)
    for edit in (
        lambda: None,
        lambda: invert(dataset_folder / "images" / "val" / names[0]),
        lambda: move_a_word(dataset_folder, names[1]),
        lambda: invert(dataset_folder / "images" / "val" / names[0]),
        lambda: invert(dataset_folder / "images" / "val" / names[5]),
    ):
        edit()
        assert_same(list(loader), fresh(dataset_folder, transform))


def test_a_page_that_is_not_edited_stays_a_hit(dataset_folder, tmp_path):
    dataset = open_split(dataset_folder, "val", DEVICE, cache="auto", cache_folder=tmp_path / "cache")
    loader = Loader(dataset, 4)
    list(loader)
    invert(dataset_folder / "images" / "val" / dataset.source.names[2])
    move_a_word(dataset_folder, dataset.source.names[3])
    for hits, misses in ((4, 2), (6, 0)):
        list(loader)
        totals = dataset.ledger.totals()
        assert (totals["cache_hits"], totals["cache_misses"]) == (hits, misses)


class Watched(Source):
    """A folder that notes in a file which process looks for edits."""

    def __init__(self, folder: Source, notes: Path) -> None:
        self.folder, self.notes = folder, notes

    @property
    def names(self) -> Any:
        return self.folder.names

    def read(self, index: int) -> Sample:
        return self.folder.read(index)

    def state(self, index: int) -> SourceState:
        return self.folder.state(index)

    def refresh(self) -> Any:
        with self.notes.open("a") as notes:
            notes.write(f"{os.getpid()}\n")
        return self.folder.refresh()


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_processes_do_not_look_for_edits_until_the_main_process_found_one(dataset_folder, tmp_path, persistent):
    notes, here = tmp_path / "notes", str(os.getpid())
    dataset = PageDataset(Watched(open_split(dataset_folder, "val").source, notes), DEVICE)
    loader = Loader(dataset, 3, 2, "processes", persistent_workers=persistent)
    for _ in range(3):
        list(loader)
    assert notes.read_text().split() == [here] * 3
    move_a_word(dataset_folder, dataset.source.names[0])
    assert_same(list(loader), list(Loader(open_split(dataset_folder, "val", DEVICE), 3, 0)))
    list(loader)
    looked = notes.read_text().split()
    assert looked.count(here) == 5
    assert len(looked) == (7 if persistent else 5)


def test_an_annotation_that_cannot_be_read_is_reported_and_tried_again(dataset_folder, caplog):
    path = dataset_folder / "jsons" / "val.json"
    loader, text = Loader(open_split(dataset_folder, "val", DEVICE), 4), path.read_text()
    before = list(loader)
    path.write_text(text[: len(text) // 2])
    assert_same(list(loader), before)
    assert any(record.levelname == "WARNING" and str(path) in record.getMessage() for record in caplog.records)
    caplog.clear()
    path.write_text(text)
    move_a_word(dataset_folder, loader.dataset.source.names[0])
    assert_same(list(loader), fresh(dataset_folder))
    assert "added" not in caplog.text


def test_pages_that_are_added_or_removed_are_reported_and_count_from_the_next_run_on(dataset_folder, caplog):
    path = dataset_folder / "jsons" / "val.json"
    loader, document = Loader(open_split(dataset_folder, "val", DEVICE), 4), json.loads(path.read_text())
    before, (removed, *_) = list(loader), document["images"]
    invert_into = dataset_folder / "images" / "val"
    (invert_into / "added.jpg").write_bytes((invert_into / removed).read_bytes())
    document["images"]["added.jpg"] = document["images"].pop(removed)
    path.write_text(json.dumps(document))
    assert_same(list(loader), before)
    assert re.search(r"\b1 .*added.*\b1 .*removed", caplog.text)


def test_a_label_file_that_is_edited_is_read_again(dataset_folder, tmp_path):
    images, labels = dataset_folder / "images" / "val", tmp_path / "labels"
    labels.mkdir()
    for image in sorted(images.iterdir()):
        (labels / f"{image.stem}.txt").write_text("10,10,200,10,200,60,10,60,word\n")
    opened = [OCRDataset(images, labels, DEVICE) for _ in range(2)]
    loader = Loader(opened[0], 4)
    before = list(loader)
    with sorted(labels.iterdir())[0].open("a") as label:
        label.write("10,100,200,100,200,160,10,160,other\n")
    after = list(loader)
    assert len(after[0]["polygons"][0]) == len(before[0]["polygons"][0]) + 1
    assert_same(after, list(Loader(OCRDataset(images, labels, DEVICE), 4)))


def test_maps_that_are_stored_or_edited_while_a_dataset_is_open_change_no_sample(dataset_folder, tmp_path, caplog):
    expected = fresh(dataset_folder)
    dataset = open_split(dataset_folder, "val", DEVICE)
    preprocess_maps(dataset, show_progress=False)
    kept = {"cache": "auto", "cache_folder": tmp_path / "cache"}
    loaders = [Loader(open_split(dataset_folder, "val", DEVICE, **settings), 4) for settings in ({}, kept)]
    for loader in loaders:
        assert_same(list(loader), expected)
    maps = maps_folder(dataset_folder / "images" / "val")
    names = dataset.source.names
    os.replace(map_file(maps, names[0]), map_file(maps, names[1]))
    for loader in loaders:
        assert_same(list(loader), expected)
    assert loaders[0].dataset.ledger.totals()["maps_stale"] == 1
