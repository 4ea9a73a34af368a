"""The Lightning module by itself."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset, OCRWebDataset
from ocr.evaluation import HmeanIoU
from ocr.evaluation.boxes import BoxesFromMap
from ocr.loader import Loader
from ocr.models.detector import TextDetector
from ocr.models.loss import DBLoss
from ocr.pipeline.prefix import Letterbox
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings
from ocr.training.module import OCRPLModule, truth_on_page


def test_a_validation_begins_without_the_pages_of_one_that_failed():
    module = OCRPLModule(TextDetector("test_efficientnet", channels=16).eval(), DBLoss(), BoxesFromMap())
    batch = {"images": torch.zeros(1, 3, 32, 32), "inverse_matrix": [np.eye(3)], "shape": [(32, 32)]}
    module.on_validation_epoch_start()
    with torch.no_grad():
        module.validation_step(batch, 0)
    # An error or an interrupt: the end of the epoch is never reached.
    module.on_validation_epoch_start()
    module.on_validation_epoch_end()
    assert module.record._scores[1]["hmean"] == 1


WORDS = {
    "shown": [[40, 40], [200, 40], [200, 80], [40, 80]],
    "half a pixel high on the model's page": [[40, 200], [60, 200], [60, 204], [40, 204]],
    "off the page": [[700, 40], [740, 40], [740, 60], [700, 60]],
}


@pytest.mark.parametrize("kind", ["folder", "kept", "ready shards"])
def test_every_annotated_word_counts_for_the_score(tmp_path, kind):
    (tmp_path / "images").mkdir()
    Image.new("RGB", (640, 480), "white").save(tmp_path / "images/a.png")
    Image.new("RGB", (640, 480), "white").save(tmp_path / "images/b.png")
    words = {name: {"points": points, "transcription": name} for name, points in WORDS.items()}
    pages = {"a.png": {"words": words}, "b.png": {"words": {"shown": words["shown"]}}}
    (tmp_path / "a.json").write_text(json.dumps({"images": pages}))
    transform, cache = DBTransforms([Letterbox(32)]), {"cache": "auto", "cache_folder": tmp_path / "cache"}
    dataset = OCRDataset(tmp_path / "images", tmp_path / "a.json", transform, **cache)
    if kind == "kept":
        dataset.fill_cache()
    if kind == "ready shards":
        convert({"val": dataset}, tmp_path / "shards", ConvertSettings(ready=True))
        dataset = OCRWebDataset(str(tmp_path / "shards/val-*.tar"), transform)
    for loader in (Loader(dataset, 2), DataLoader(dataset, 2, collate_fn=DBCollateFN())):
        (batch,) = loader
        truth = truth_on_page(batch, 0)
        assert sorted(map(str, truth.texts)) == sorted(WORDS)
        for name, found in zip(truth.texts, truth, strict=True):
            assert found == pytest.approx(np.array(WORDS[str(name)]), abs=0.01)
        assert truth_on_page(batch, 1).texts == ("shown",)
        metric = HmeanIoU()
        metric.update([np.array(WORDS["shown"])], truth)
        assert metric.compute()["recall"] == pytest.approx(1 / 3)
