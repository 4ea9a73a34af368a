"""The path of pages that `ocr profile` measures is that of the dataset, with its limits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rejection import rejects

from ocr.advisor.measure.data_path import DataPath
from ocr.datasets import DBTransforms, OCRDataset, OCRWebDataset
from ocr.errors import ImageError
from ocr.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings

TRANSFORM = DBTransforms([Letterbox(64), Normalize()], normalize="device")


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A dense page of 64 x 64 pixels, without an index."""
    pixels = np.random.default_rng(0).integers(0, 256, (50, 60, 3), dtype=np.uint8)
    (tmp_path / "pages").mkdir()
    Image.fromarray(pixels).save(tmp_path / "pages/a.png")
    pages = OCRDataset(tmp_path / "pages", None, TRANSFORM)
    assert convert({"val": pages}, str(tmp_path / "shards"), ConvertSettings(ready=True, form="dense", workers=1)) == 0
    (tmp_path / "shards/val-index.json").unlink()
    return tmp_path / "shards/val-000000.tar"


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_the_path_that_is_measured_gives_the_batch_that_the_loader_gives(synthetic, engine):
    transform = DBTransforms([Letterbox(64), Normalize()], normalize="device")
    dataset = OCRDataset(synthetic / "images/val", synthetic / "jsons/val.json", transform)
    measured = DataPath(dataset, torch.device("cpu"), engine).run_batch([0, 1], 0)
    batch = next(iter(Loader(dataset, 2, 0)))
    assert torch.equal(measured["images"], Normalize().on_device(batch["images"]))
    assert torch.equal(measured["prob_maps"], batch["prob_maps"])
    assert measured["image_filename"] == batch["image_filename"]


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_ready_page_beyond_the_limit_of_pixels_is_refused_before_it_is_unpacked(shard, engine):
    sound = DataPath(OCRWebDataset(shard, TRANSFORM), torch.device("cpu"), engine)
    assert sound.run_batch([0], 0)["images"].shape == (1, 3, 64, 64)
    dataset = OCRWebDataset(shard, TRANSFORM, image_loading_config={"max_pixels": 4095})
    with rejects(ImageError, setting="decode.max_pixels", value=(64, 64), path=f"{shard}/00000000.npy"):
        DataPath(dataset, torch.device("cpu"), engine).run_batch([0], 0)
