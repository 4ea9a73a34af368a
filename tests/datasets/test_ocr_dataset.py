"""OCRDataset: what an item holds, and that it is the same however it is made."""

import json
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest
import torch
from rejection import rejects
from sameness import assert_same
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.datasets.data_fingerprint import fingerprint_data
from ocr.errors import ConfigError
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import (
    ColourJitter,
    JpegNoise,
    RandomBlur,
    RandomFlip,
    RandomRotate,
    RandomScale,
    TextAwareCrop,
)

SIZE = 160


def augmentation() -> DBTransforms:
    random = [TextAwareCrop(), RandomFlip(), RandomRotate(), RandomScale(), ColourJitter(), RandomBlur(), JpegNoise()]
    return DBTransforms([Letterbox(SIZE), *random, Normalize()])


def fixed(normalize: str = "host") -> DBTransforms:
    return DBTransforms([Letterbox(SIZE), Normalize()], normalize=normalize)


def open_split(data: Path, split: str = "val", transform: DBTransforms | None = None, **settings: Any) -> OCRDataset:
    return pages.open_split(data, split, transform or fixed(), **settings)


def batches(dataset: OCRDataset, **settings: Any) -> list[Any]:
    return list(DataLoader(dataset, batch_size=3, collate_fn=DBCollateFN(), **settings))


def test_an_item_has_the_keys_shapes_and_types_that_training_code_expects(synthetic):
    item = open_split(synthetic)[0]
    assert item["image"].shape == (3, SIZE, SIZE)
    assert item["image"].dtype == torch.float32
    assert item["image"].is_contiguous()
    for name in ("prob_map", "thresh_map"):
        assert item[name].shape == (1, SIZE, SIZE)
        assert item[name].dtype == torch.float32
    for name in ("prob_mask", "thresh_mask"):
        assert item[name].shape == (1, SIZE, SIZE)
        assert item[name].dtype == torch.bool
    assert item["inverse_matrix"].shape == (3, 3)
    assert all(polygon.shape[0] == 1 and polygon.shape[2] == 2 for polygon in item["polygons"])
    assert all(polygon.dtype == np.float32 for polygon in item["polygons"])
    assert len(item["ignore"]) == len(item["polygons"]) == len(item["transcriptions"])
    assert item["image_path"].endswith(item["image_filename"])
    assert set(item) >= {"shape", "raw_size", "orientation", "polygon_frame"}


def test_normalising_on_the_device_leaves_uint8_and_gives_the_same_pixels(synthetic):
    on_host = open_split(synthetic)[1]["image"]
    transform = fixed("device")
    stays = open_split(synthetic, transform=transform)[1]["image"]
    assert stays.dtype == torch.uint8
    assert transform.normalization is not None
    torch.testing.assert_close(transform.normalization.on_device(stays[None])[0], on_host)


@pytest.mark.parametrize("split", ["train", "val"])
def test_batches_are_bit_identical_for_0_1_and_2_workers(synthetic, split):
    dataset = open_split(synthetic, split, augmentation() if split == "train" else fixed(), seed=5)
    alone = batches(dataset)
    for workers in (1, 2):
        assert_same(batches(dataset, num_workers=workers, multiprocessing_context="fork"), alone)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_started_by_any_method_give_the_same_batches(synthetic, method):
    dataset = open_split(synthetic, "train", augmentation(), seed=5)
    assert_same(batches(dataset, num_workers=2, multiprocessing_context=method), batches(dataset))


def test_a_dataset_that_travelled_as_to_a_spawned_worker_gives_the_same_items(synthetic):
    dataset = open_split(synthetic, "train", augmentation(), seed=5)
    dataset.set_epoch(1)
    travelled = pickle.loads(ForkingPickler.dumps(dataset))
    assert_same([travelled[index] for index in range(3)], [dataset[index] for index in range(3)])
    dataset.set_epoch(0)
    assert_same(travelled[0], dataset[0])


def test_another_epoch_or_seed_augments_differently_and_the_same_one_repeats(synthetic):
    dataset = open_split(synthetic, "train", augmentation(), seed=1)
    first = [dataset[index] for index in range(len(dataset))]
    dataset.set_epoch(1)
    second = [dataset[index] for index in range(len(dataset))]
    assert not all(torch.equal(a["image"], b["image"]) for a, b in zip(first, second, strict=True))
    dataset.set_epoch(0)
    assert_same([dataset[index] for index in range(len(dataset))], first)
    other = open_split(synthetic, "train", augmentation(), seed=2)
    assert not all(torch.equal(other[index]["image"], first[index]["image"]) for index in range(len(dataset)))


def test_persistent_workers_follow_the_epoch(synthetic):
    dataset = open_split(synthetic, "train", augmentation())
    loader = DataLoader(
        dataset, 4, num_workers=2, persistent_workers=True, collate_fn=DBCollateFN(), multiprocessing_context="fork"
    )
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        from_workers = list(loader)
        assert_same(from_workers, list(DataLoader(dataset, 4, collate_fn=DBCollateFN())))


def test_what_workers_saw_is_counted_in_the_main_process(synthetic):
    dataset = open_split(synthetic)
    batches(dataset, num_workers=2, multiprocessing_context="fork")
    assert dataset.ledger.totals()["seen"] == dataset.ledger.totals()["maps_drawn"] == len(dataset)
    dataset.set_epoch(1)
    assert dataset.ledger.totals()["seen"] == 0


FILLING = ("preload_images", "preload_everything", "prenormalize_images", "cache_transformed_tensors")


@pytest.mark.parametrize("flag", FILLING)
@pytest.mark.parametrize(("split", "normalize"), [("train", "host"), ("val", "host"), ("val", "device")])
def test_every_flag_that_preloads_fills_the_one_cache_and_changes_no_bit(synthetic, tmp_path, flag, split, normalize):
    transform = augmentation() if split == "train" else fixed(normalize)
    plain = open_split(synthetic, split, transform)
    kept = open_split(synthetic, split, transform, **{flag: True}, cache_folder=tmp_path)
    for epoch in (0, 1):
        for dataset in (plain, kept):
            dataset.set_epoch(epoch)
        assert_same([kept[index] for index in range(len(kept))], [plain[index] for index in range(len(plain))])
        counts = {"seen": len(kept), "maps_drawn": len(kept), "cache_hits": len(kept)}
        assert kept.ledger.totals(list(counts)) == counts
    # All flags fill the same cache, so another one finds everything.
    again = open_split(synthetic, split, transform, cache="auto", cache_folder=tmp_path)
    assert again.fill_cache() == {"hit": len(kept)}


def test_maps_of_augmented_pages_cannot_be_preloaded(synthetic):
    with rejects(ConfigError, setting="preload_maps", value=True):
        open_split(synthetic, "train", augmentation(), preload_maps=True)


@pytest.mark.parametrize("cache", ["prefix", "batch", "on", 1])
def test_a_cache_is_on_or_off(synthetic, cache):
    with rejects(ConfigError, setting="data.cache", value=cache):
        open_split(synthetic, cache=cache)


def test_changing_a_cached_item_does_not_change_the_cache(synthetic):
    dataset = open_split(synthetic, preload_images=True)
    expected, first = open_split(synthetic)[0], dataset[0]
    for value in first.values():
        if torch.is_tensor(value):
            value.zero_()
    first["polygons"][0][:] = -1
    first["inverse_matrix"][:] = 0
    assert_same(dataset[0], expected)


def test_indices_work_like_those_of_a_list(synthetic):
    dataset = open_split(synthetic)
    assert_same(dataset[-1], dataset[len(dataset) - 1])
    with pytest.raises(IndexError):
        dataset[len(dataset)]


def test_inverse_matrix_brings_polygons_back_to_the_annotation(synthetic):
    dataset = open_split(synthetic)
    for index in range(len(dataset)):
        sample = dataset.sample(index)
        back = sample.polygons.moved(sample.inverse_matrix)
        annotated = dataset.source.entries[index].polygons
        assert len(back) == len(annotated)
        assert np.abs(back.vertices - annotated.vertices).max() < 0.5


def test_printing_a_dataset_shows_its_path_and_the_cut(synthetic):
    shown = repr(open_split(synthetic, "train", augmentation()))
    stages = ["source", "Decode", "Letterbox", "|", "Warp", "ColourJitter", "Normalize", "Targets", "batch"]
    positions = [shown.index(stage) for stage in stages]
    assert positions == sorted(positions)


def fingerprint(data: Path) -> dict[str, Any]:
    return fingerprint_data(open_split(data, transform=DBTransforms([])))


def test_a_fingerprint_of_the_data_follows_the_words_and_not_the_folder(synthetic, dataset_folder):
    before = fingerprint(synthetic)
    assert before["pages"] == 6
    assert fingerprint(dataset_folder) == before
    file = dataset_folder / "jsons" / "val.json"
    annotation = json.loads(file.read_text())
    next(iter(next(iter(annotation["images"].values()))["words"].values()))["points"][0][0] += 5
    file.write_text(json.dumps(annotation))
    assert fingerprint(dataset_folder)["fingerprint"] != before["fingerprint"]
    assert fingerprint_data([1, 2, 3]) == {}


@pytest.mark.receipts
def test_the_real_receipts_load_without_a_complaint(receipts):
    for split in ("train", "val"):
        dataset = open_split(receipts, split)
        for index in range(0, len(dataset), 10):
            assert dataset[index]["prob_map"].sum() > 0
        assert dataset.ledger.totals()["skipped"] == 0
