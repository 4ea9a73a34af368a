"""Samples to items, and what a batch is made of."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from ocr.geometry.polygons import Polygons
from ocr.pipeline.batch import LISTED, Slot, collate, image_tensor, to_item
from ocr.pipeline.device import Normalize
from ocr.pipeline.sample import NO_IMAGE, Sample
from ocr.pipeline.targets import MAPS, Targets

TARGETS = Targets()
WORD = [[5, 6], [25, 6], [25, 16], [5, 16]]


def page(index: int = 0, annotated: bool = True) -> Sample:
    image = np.random.default_rng(index).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    polygons = Polygons.pack([WORD, WORD], [False, True], ["total", None])
    return Sample(
        index,
        f"{index}.jpg",
        f"/data/{index}.jpg",
        polygons,
        annotated,
        image=image,
        shape=(64, 48),
        raw_size=(48, 64),
        orientation=6,
        polygon_frame="raw",
        inverse_matrix=np.diag([2.0, 2, 1]),
    )


def test_an_item_tells_everything_about_its_page() -> None:
    item = to_item(TARGETS(page()), Normalize(), TARGETS)

    assert item["image"].shape == (3, 24, 32)
    assert item["image"].dtype == torch.float32
    assert [polygon.shape for polygon in item["polygons"]] == [(1, 4, 2)] * 2
    assert item["polygons"][0].dtype == np.float32
    assert item["ignore"].tolist() == [False, True]
    assert item["transcriptions"] == ["total", None]
    assert item["inverse_matrix"].shape == (3, 3)
    assert (item["shape"], item["raw_size"], item["orientation"]) == ((64, 48), (48, 64), 6)
    assert (item["polygon_frame"], item["image_filename"], item["image_path"]) == ("raw", "0.jpg", "/data/0.jpg")
    for name in ("prob_map", "thresh_map", "prob_mask", "thresh_mask"):
        assert item[name].shape == (1, 24, 32)


def test_an_item_of_a_page_without_maps_has_none() -> None:
    assert "prob_map" not in to_item(page(), None, None)


def test_a_page_that_is_not_normalised_is_a_view_of_its_pixels() -> None:
    image = page().image

    tensor = image_tensor(image, None)

    assert tensor.dtype == torch.uint8
    assert tensor.data_ptr() == image.ctypes.data
    assert np.array_equal(tensor.permute(1, 2, 0).numpy(), image)


def test_a_page_that_is_float_already_is_not_normalised_again() -> None:
    image = page().image.astype(np.float32)

    assert np.array_equal(image_tensor(image, Normalize()).permute(1, 2, 0).numpy(), image)


def test_a_batch_holds_the_stacked_items_in_their_order() -> None:
    items = [to_item(TARGETS(page(index)), Normalize(), TARGETS) for index in range(3)]

    batch = collate(items, TARGETS)

    assert batch is not None
    stacked = {"image": "images"} | {name: spec.batch_name for name, spec in MAPS.items()}
    assert set(batch) == {*stacked.values(), *LISTED}
    assert batch["image_filename"] == ["0.jpg", "1.jpg", "2.jpg"]
    for name, plural in stacked.items():
        assert torch.equal(batch[plural], torch.stack([item[name] for item in items]))


def test_an_unannotated_page_teaches_nothing_when_its_maps_are_redrawn() -> None:
    items = [to_item(TARGETS(page(0, annotated)), None, TARGETS) for annotated in (True, False)]

    batch = collate(items, Targets(0.6))

    assert batch is not None
    assert batch["prob_masks"].flatten(1).any(dim=1).tolist() == [True, False]


def test_the_smallest_text_of_the_dataset_stays_when_maps_are_redrawn() -> None:
    coarse = Targets(min_text_size=12)

    batch = collate([to_item(coarse(page()), None, coarse)], Targets(0.6))

    assert batch is not None
    assert not batch["prob_maps"].any()


def empty_slot(dtype: type = np.uint8) -> Slot:
    image = np.zeros((24, 32, 3) if dtype is np.uint8 else (3, 24, 32), dtype)
    return Slot(image, {name: np.zeros((24, 32), spec.dtype) for name, spec in MAPS.items()})


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_slot_holds_what_the_item_of_its_sample_holds(dtype: type) -> None:
    normalize = Normalize() if dtype is np.float32 else None
    item = to_item(TARGETS(page()), normalize, TARGETS)
    slot = empty_slot(dtype)

    written = slot.write(page(), normalize, TARGETS)

    image = slot.image.transpose(2, 0, 1) if dtype is np.uint8 else slot.image
    assert np.array_equal(image, item["image"])
    assert slot.maps.keys() == MAPS.keys()
    for name, array in slot.maps.items():
        assert np.array_equal(array, item[name][0])
    assert written.map_source == "drawn"


def test_a_slot_leaves_out_pixels_that_dali_holds() -> None:
    slot = empty_slot()
    slot.write(replace(page(), image=NO_IMAGE, reduced_from=(32, 24)), None, TARGETS)
    assert not slot.image.any()
    assert slot.maps["prob_map"].any()
