"""A teacher that sees every page once: its maps are those of prediction, and lie where the pixels of a batch are."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rejection import rejects

from ocr.cache.store import close_store
from ocr.datasets import DBTransforms, OCRDataset, OCRWebDataset
from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons
from ocr.models import TextDetector
from ocr.pipeline.copy_paste import CopyPasteLines
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.suffix import QuarterTurn, RandomFlip, RandomPerspective, RandomRotate, RandomScale, RandomWindow
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings
from ocr.training.page_teacher import LEVELS, PageTeacher, move_maps

SIDE = 320


@pytest.fixture(scope="module")
def model() -> TextDetector:
    torch.manual_seed(5)
    return TextDetector("mobilenetv3_small_050", channels=32)


def pages(folder: Path, *stages: object, split: str = "train") -> OCRDataset:
    transform = DBTransforms([Letterbox(SIDE, shape="page"), *stages, Normalize()])
    return OCRDataset(folder / f"images/{split}", folder / f"jsons/{split}.json", transform)


def batch_of(dataset: OCRDataset, index: int) -> dict:
    sample = dataset.sample(index)
    images = torch.zeros(1, 3, sample.height, sample.width)
    names = {"image_filename": [sample.filename], "image_path": [sample.path]}
    return {"images": images, **names, "inverse_matrix": [sample.inverse_matrix]}


def started(model: TextDetector, dataset: OCRDataset, tmp_path: Path) -> PageTeacher:
    teacher = PageTeacher(model, Letterbox(SIDE, shape="page"), cache_folder=tmp_path / "cache")
    teacher.start(dataset)
    return teacher


def test_on_pages_that_are_not_moved_its_maps_are_those_of_prediction(synthetic, model, tmp_path):
    dataset = pages(synthetic)
    teacher = started(model, dataset, tmp_path)
    page = torch.from_numpy(dataset.sample(3).image.copy()).permute(2, 0, 1)[None]
    with torch.no_grad():
        own = model(Normalize().on_device(page), with_threshold=True)
    for _ in range(2):  # Made, then kept by another run.
        found = teacher.maps(batch_of(dataset, 3))
        assert (found.prob_logits.sigmoid() - own.prob_map).abs().max() < 0.6 / LEVELS + 1e-3
        assert (found.thresh - own.thresh).abs().max() < 0.6 / LEVELS
        assert found.binary.shape == own.binary.shape
        close_store(tmp_path / "cache")
        teacher = started(model, dataset, tmp_path)
    assert teacher.find(3).cached == "hit"


@pytest.mark.parametrize(
    "stage",
    [
        RandomFlip(p=1),
        RandomRotate(8, p=1),
        RandomScale(0.7, 1.4, p=1, resizes=True),
        RandomWindow(160),
        RandomPerspective(15, p=1),
        QuarterTurn(p=1),
    ],
    ids=lambda stage: type(stage).__name__,
)
def test_maps_lie_where_the_pixels_of_the_moved_page_lie(synthetic, stage):
    dataset, still = pages(synthetic, stage), pages(synthetic)
    for index in range(4):
        moved, page = dataset.sample(index), still.sample(index)
        found = move_maps(page, moved.inverse_matrix, moved.size, 0.0)
        difference = np.abs(found.astype(int) - moved.image)
        if isinstance(stage, RandomFlip | QuarterTurn | RandomWindow):
            assert not difference.any()
        # OpenCV rounds places to 1/32 of a pixel.
        assert difference.mean() < 0.5


@pytest.mark.parametrize("side", [160, 320, 640])
@pytest.mark.parametrize("stage", [RandomFlip(p=1), QuarterTurn(p=1)], ids=["flipped", "turned"])
def test_a_teacher_that_sees_larger_or_smaller_pages_finds_the_same_places(stage, side):
    source = np.zeros((640, 640, 3), dtype=np.uint8)
    source[160:224, 320:480] = LEVELS
    whole = Sample(0, "", "", Polygons.pack([]), image=source, shape=(640, 640))
    seen, page = Letterbox(side)(whole), Letterbox(320)(whole)
    for seed in range(4):
        moved = stage.run(page, np.random.default_rng(seed)).unpacked()
        found = move_maps(seen, moved.inverse_matrix, moved.size, 0.0, side / 320)
        assert _middle(found) == pytest.approx(_middle(moved.image), abs=0.01)


def _middle(image: np.ndarray) -> tuple[float, float]:
    """The centre of the bright pixels."""
    weights = image[..., 0].astype(float)
    rows, columns = np.mgrid[: weights.shape[0], : weights.shape[1]]
    return (columns * weights).sum() / weights.sum(), (rows * weights).sum() / weights.sum()


def test_pages_of_shards_have_the_maps_of_their_files(synthetic, model, tmp_path):
    folder, at = pages(synthetic), tmp_path / "shards"
    convert({"train": folder}, at, ConvertSettings(samples_per_shard=3))
    shards = OCRWebDataset(str(at / "train-*.tar"), folder.transform)
    of_files, of_shards = (started(model, dataset, tmp_path) for dataset in (folder, shards))
    names = {folder.name(index): index for index in range(len(folder))}
    for index in range(len(shards)):
        found = of_shards.maps(batch_of(shards, index))
        same = of_files.maps(batch_of(folder, names[shards.name(index)]))
        assert torch.equal(found.prob_logits, same.prob_logits)


def test_what_is_not_on_the_page_is_background(synthetic, model, tmp_path):
    dataset = pages(synthetic)
    teacher, batch = started(model, dataset, tmp_path), batch_of(dataset, 0)
    batch["inverse_matrix"] = [batch["inverse_matrix"][0] @ np.array([[1, 0, 10_000], [0, 1, 0], [0, 0, 1.0]])]
    found = teacher.maps(batch)
    assert found.prob_logits.sigmoid().max() < 0.002
    assert torch.allclose(found.thresh, torch.tensor(0.3), atol=1 / LEVELS)


def test_an_edited_page_is_seen_again(dataset_folder, model, tmp_path):
    dataset = pages(dataset_folder)
    teacher = started(model, dataset, tmp_path)
    before = teacher.find(0).image.copy()
    path = dataset.source.state(0).path
    Image.open(path).rotate(180).save(path)
    assert not np.array_equal(teacher.find(0).image, before)


def test_another_teacher_does_not_get_the_maps_of_the_first(synthetic, model, tmp_path):
    dataset = pages(synthetic)
    first = started(model, dataset, tmp_path).find(0)
    torch.manual_seed(6)
    other = started(TextDetector("mobilenetv3_small_050", channels=32), dataset, tmp_path).find(0)
    assert (first.cached, other.cached) == ("miss", "miss")
    assert not np.array_equal(first.image, other.image)


def test_what_maps_cannot_follow_is_rejected(synthetic, model, tmp_path):
    pasting = CopyPasteLines(p=1)
    with rejects(ConfigError, setting="distil.maps", value=pasting):
        started(model, pages(synthetic, pasting), tmp_path)
    with rejects(ConfigError, setting="distil.maps", value="page"):
        PageTeacher(model).start([1, 2, 3])
    with rejects(ConfigError, setting="PageTeacher.start"):
        PageTeacher(model).find(0)
