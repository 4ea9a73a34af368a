"""Pages that keep their shape: the same batches from every source, cache and engine, and padding that never counts."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from rejection import rejects
from sameness import assert_same
from splits import converted, without_paths
from torch.utils.data import DataLoader

from ocr import DBCollateFN, DBTransforms, Loader, OCRDataset, OCRWebDataset, ShapeBatchSampler
from ocr.errors import ConfigError
from ocr.models import DBLoss
from ocr.models.head import Prediction
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.stage import FixedStage
from ocr.pipeline.suffix import ColourJitter, RandomRotate, RandomScale, RandomWindow, TextAwareCrop
from ocr.pipeline.turns import QuarterTurn

PAGE = Letterbox(160, shape="page", fill=7)
RANDOM = (TextAwareCrop(p=1), RandomRotate(p=1), RandomScale(p=1), Letterbox(128, shape="page"), ColourJitter(p=1))
TENSORS = ("images", "prob_maps", "thresh_maps", "prob_masks", "thresh_masks")
STAGES = {"validation": (), "training": RANDOM, "windows": (RandomScale(p=1, resizes=True), RandomWindow(112))}


def transform(*random: Any, normalize: str = "device") -> DBTransforms:
    return DBTransforms([PAGE, *random, Normalize()], normalize=normalize)


def folder(data: Path, stages: Any, split: str = "train", **settings: Any) -> OCRDataset:
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", stages, seed=3, **settings)


def batches(dataset: Any, size: int = 3, workers: int = 2, **settings: Any) -> list[Any]:
    return without_paths(Loader(dataset, size, workers, shuffle=True, seed=4, **settings))


def pages_in(batch: dict[str, Any]) -> Any:
    """Each page of a batch with its (height, width) before it was padded; for transforms that keep the frame."""
    for number, (width, height) in enumerate(batch["shape"]):
        scale = 160 / max(width, height)
        yield number, round(height * scale), round(width * scale)


@pytest.mark.parametrize(
    ("stages", "normalize"),
    [("validation", "host"), ("training", "device"), ("training", "host"), ("windows", "device")],
)
def test_every_engine_and_cache_gives_the_same_batches(synthetic, tmp_path, stages, normalize):
    steps = transform(*STAGES[stages], normalize=normalize)
    expected = batches(folder(synthetic, steps), workers=0)
    assert len({batch["images"].shape for batch in expected}) > 1
    assert_same(batches(folder(synthetic, steps), engine="processes"), expected)
    for form in ("raw", "dense"):
        dataset = folder(synthetic, steps, cache="auto", cache_form=form, cache_folder=tmp_path / form)
        assert_same(batches(dataset), expected)
        assert_same(batches(dataset), expected)
        assert dataset.ledger.totals()["cache_hits"] == len(dataset)


@pytest.mark.parametrize("settings", [{}, {"ready": True}], ids=str)
def test_shards_give_the_batches_of_their_folder(synthetic, tmp_path, settings):
    dataset = folder(synthetic, transform())
    place = converted(dataset, tmp_path, "train", samples_per_shard=3, **settings)
    shards = OCRWebDataset(place, transform(), seed=3)
    assert shards.source.index.samples[0].size == dataset.source.size(0, 10**9)
    assert_same(batches(shards), batches(dataset))


@pytest.mark.parametrize("workers", [0, 2])
def test_torchs_own_loader_gives_the_same_batches_with_the_sampler(synthetic, workers):
    dataset = folder(synthetic, transform(*RANDOM))
    sampler = ShapeBatchSampler(dataset, 3, shuffle=True, seed=4)
    plain = DataLoader(dataset, batch_sampler=sampler, collate_fn=DBCollateFN(), num_workers=workers)
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        sampler.set_epoch(epoch)
        loader = Loader(folder(synthetic, transform(*RANDOM)), 3, 0, shuffle=True, seed=4)
        loader.set_epoch(epoch)
        assert_same(without_paths(plain), without_paths(loader))


def test_the_sampler_keeps_the_order_of_the_pages_unless_it_is_asked_to_shuffle(synthetic):
    dataset = folder(synthetic, transform())
    sampled, loaded = ShapeBatchSampler(dataset, 3), Loader(dataset, 3, 0)
    assert [list(batch) for batch in sampled] == [list(batch) for batch in loaded.batch_sampler]


def test_an_item_is_padded_to_multiples_of_32(synthetic):
    dataset = folder(synthetic, transform())
    for index in range(len(dataset)):
        item = dataset[index]
        width, height = dataset.planned_sizes()[index]
        assert item["image"].shape == (3, -(-height // 32) * 32, -(-width // 32) * 32)
        assert item["prob_map"].shape[1:] == item["image"].shape[1:]
        assert max(width, height) == 160


@pytest.mark.parametrize("normalize", ["host", "device"])
def test_padding_is_fill_in_the_image_and_nothing_in_the_maps(synthetic, normalize):
    dataset = folder(synthetic, transform(normalize=normalize))
    fill = torch.full((3, 1, 1), 7, dtype=torch.uint8)
    if normalize == "host":
        fill = torch.from_numpy(Normalize().on_host(np.full((1, 1, 3), 7, dtype=np.uint8)))
    padded = 0
    for batch in Loader(dataset, 3, 0):
        for number, height, width in pages_in(batch):
            for around in (np.s_[..., height:, :], np.s_[..., :, width:]):
                assert (batch["images"][number][around] == fill).all()
                assert not batch["prob_maps"][number][around].any()
                assert not batch["prob_masks"][number][around].any()
                assert not batch["thresh_masks"][number][around].any()
                assert (batch["thresh_maps"][number][around] == np.float32(0.3)).all()
                padded += batch["prob_maps"][number][around].numel()
            assert batch["prob_masks"][number][..., :height, :width].any()
    assert padded


def test_words_lie_where_they_are_on_the_source_page(synthetic):
    dataset = folder(synthetic, transform(*RANDOM))
    source = {name: dataset.source.read(index).polygons for index, name in enumerate(dataset.source.names)}
    for batch in Loader(dataset, 3, 0):
        for number, name in enumerate(batch["image_filename"]):
            matrix, size = batch["inverse_matrix"][number], batch["shape"][number]
            corners = source[name].vertices
            for polygon in batch["polygons"][number]:
                back = cv2.perspectiveTransform(polygon.astype(np.float64), matrix)[0]
                # Every vertex is one that was annotated.
                assert np.abs(back[:, None] - corners).max(axis=2).min(axis=1).max() < 1e-2 * max(size)


def test_the_loss_of_a_page_is_that_of_the_page_in_a_larger_batch(synthetic):
    dataset = folder(synthetic, transform())
    item = dataset[0]
    alone = DBCollateFN()([item])
    larger = DBCollateFN()([item | {"batch_hw": (192, 192)}])
    assert larger["images"].shape[-2:] == (192, 192)
    losses = []
    for batch in (alone, larger):
        shape = batch["prob_maps"].shape
        logits = torch.full(shape, 3.0)
        rows, columns = alone["prob_maps"].shape[-2:]
        logits[..., :rows, :columns] = torch.linspace(-3, 3, rows * columns).view(rows, columns)
        losses.append(DBLoss()(Prediction(logits, logits.sigmoid(), logits.sigmoid()), batch)[0])
    assert torch.allclose(*losses)


def test_turned_pages_are_planned_upright(tmp_path):
    (tmp_path / "images").mkdir()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (200, 100)).save(tmp_path / "images" / "a.jpg", exif=exif)
    Image.new("RGB", (200, 100)).save(tmp_path / "images" / "b.jpg")
    dataset = OCRDataset(tmp_path / "images", None, transform())
    assert dataset.planned_sizes().tolist() == [[80, 160], [160, 80]]
    assert [tuple(batch["images"].shape[-2:]) for batch in Loader(dataset, 2, 0)] == [(160, 96), (96, 160)]


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_page_that_turns_out_larger_than_planned_enlarges_its_batch(synthetic, engine):
    stages = transform(QuarterTurn(p=0.5))
    found = batches(folder(synthetic, stages), engine=engine)
    assert sorted(name for batch in found for name in batch["image_filename"]) == sorted(
        folder(synthetic, stages).source.names
    )
    assert {batch["images"].shape[-2:] for batch in found} & {(160, 160)}
    assert_same(found, batches(folder(synthetic, stages), workers=0))


def test_albumentations_keep_working(synthetic):
    import albumentations

    steps = [PAGE, albumentations.HorizontalFlip(p=1), albumentations.CLAHE(p=1), Normalize()]
    dataset = folder(synthetic, DBTransforms(steps, normalize="device"))
    assert_same(batches(dataset), batches(folder(synthetic, DBTransforms(steps, normalize="device")), workers=0))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_resumes_in_the_middle_of_an_epoch(synthetic, workers):
    whole = batches(folder(synthetic, transform(*RANDOM)), 2)
    first = Loader(folder(synthetic, transform(*RANDOM)), 2, 2, shuffle=True, seed=4)
    passed = iter(first)
    next(passed)
    state = first.state_dict()
    passed.close()
    again = Loader(folder(synthetic, transform(*RANDOM)), 2, workers, shuffle=True, seed=4)
    again.load_state_dict(state)
    assert_same(without_paths(again), whole[1:])
    other = Loader(folder(synthetic, transform(*RANDOM)), 2, workers, shuffle=True, seed=4, batch_shapes=2)
    with rejects(
        ConfigError,
        setting="batch_shapes",
        value={"batch_size": 2, "world_size": 1, "batch_shapes": 2, "batch_pixels": 0},
    ):
        other.load_state_dict(state)


def test_a_batch_has_as_many_pages_as_its_pixels_allow(synthetic):
    dataset = folder(synthetic, transform())
    for batch in Loader(dataset, 1, 0, batch_pixels=3 * 160 * 128):
        pages, _, height, width = batch["images"].shape
        assert pages <= max(1, 3 * 160 * 128 // (height * width))
    with rejects(ConfigError, setting="data.batch_pixels", value=1000):
        Loader(folder(synthetic, DBTransforms([Letterbox(96)])), 1, 0, batch_pixels=1000)


def test_a_sampler_for_pages_of_one_size_is_refused(synthetic):
    with rejects(ConfigError, setting="ShapeBatchSampler.dataset"):
        ShapeBatchSampler(folder(synthetic, DBTransforms([Letterbox(96)])), 2)


def test_unreadable_pages_are_skipped_like_all_others(dataset_folder):
    next((dataset_folder / "images" / "train").iterdir()).write_bytes(b"not an image")
    dataset = folder(dataset_folder, transform(), on_bad_sample="skip")
    found = [batch for batch in Loader(dataset, 3) if batch is not None]
    assert sum(len(batch["image_filename"]) for batch in found) == len(dataset) - 1


class Wider(FixedStage):
    """A stage that changes the size of pages and does not say so."""

    def __call__(self, sample):
        height, width = sample.image.shape[:2]
        return sample.moved(np.zeros((height, width + 64, 3), np.uint8), np.eye(3))


def test_a_custom_stage_that_changes_sizes_only_costs_padding(synthetic):
    dataset = folder(synthetic, DBTransforms([PAGE, Wider(), Normalize()], normalize="device"))
    for batch in Loader(dataset, 3):
        assert batch["images"].shape[-1] % 32 == 0
        assert batch["images"].shape[-1] >= 64
