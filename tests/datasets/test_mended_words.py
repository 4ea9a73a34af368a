"""Crossed and overlong words of a dataset: ignored or simplified, counted, and never learnt as background."""

import json

import numpy as np
import pytest
from PIL import Image

from ocr.datasets import DBTransforms, OCRDataset
from ocr.loader import Loader
from ocr.pipeline.prefix import Letterbox
from ocr.training.callbacks.data_report import describe

BOX = [[10, 60], [110, 60], [110, 90], [10, 90]]
BOW_TIE = [[10, 10], [110, 40], [110, 10], [10, 40]]
UNEVEN = [[10, 10], [110, 25], [110, 10], [10, 40]]
SCRIBBLE = (np.random.default_rng(0).uniform(0, 1, (3000, 2)) * (100, 30) + 10).tolist()
CONTOUR = (np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 6.28, 3000)]) * 15 + (60, 25)).tolist()


def open_page(folder, *words, **settings):
    """One page of 128x128 whose words are these points and flags."""
    (folder / "images").mkdir(exist_ok=True)
    Image.fromarray(np.full((128, 128, 3), 200, np.uint8)).save(folder / "images" / "a.png")
    entries = {str(at): {"points": points, "illegibility": ignore} for at, (points, ignore) in enumerate(words)}
    (folder / "a.json").write_text(json.dumps({"images": {"a.png": {"words": entries}}}))
    transform = DBTransforms([Letterbox(128)], normalize="device")
    return OCRDataset(folder / "images", folder / "a.json", transform, **settings)


@pytest.mark.parametrize("points", [BOW_TIE, UNEVEN, SCRIBBLE], ids=["bow-tie", "uneven", "scribble"])
@pytest.mark.parametrize("ignore", [False, True], ids=["word", "ignore region"])
@pytest.mark.parametrize("cache", ["off", "auto"])
def test_a_crossed_word_is_masked_out_of_the_loss_and_counted(tmp_path, points, ignore, cache):
    dataset = open_page(tmp_path, (points, ignore), (BOX, False), cache=cache, cache_folder=tmp_path / "cache")
    for _ in range(2):
        (batch,) = list(Loader(dataset, 1, 0))
        assert not batch["prob_masks"][0, 0, 15:24, 15:50].any(), "all of its left half"
        assert not batch["prob_maps"][0, 0, :45].any()
        assert not batch["thresh_masks"][0, 0, 15:24, 15:50].any()
        assert batch["prob_masks"][0, 0, 50:].all()
        assert batch["prob_maps"][0, 0, 75, 60] == 1
        assert batch["ignore"][0].tolist() == [True, False]
        totals = dataset.ledger.totals()
        assert (totals["crossed_polygons"], totals["dropped_polygons"]) == (1, 0)
        assert dataset.ledger.files("crossed_polygons") == ["a.png"]
        assert "1 polygons crossed, ignored" in describe(dataset, totals)


def test_an_outline_of_thousands_of_vertices_is_learnt_and_counted(tmp_path):
    dataset = open_page(tmp_path, (CONTOUR, False), (BOX, False))
    item = dataset[0]
    assert item["prob_map"][0, 25, 60] == 1
    assert item["prob_mask"].all()
    assert [polygon.shape for polygon in item["polygons"]] == [(1, 1000, 2), (1, 4, 2)]
    assert dataset.ledger.totals()["simplified_polygons"] == 1
    assert "1 polygons of more than 1000 vertices, simplified" in describe(dataset, dataset.ledger.totals())
