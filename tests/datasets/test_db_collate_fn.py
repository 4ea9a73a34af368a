"""DBCollateFN: what comes in can lack maps, have others, or be nothing at all."""

import pickle
from typing import Any

import numpy as np
import torch
from rejection import rejects

from ocr.datasets import DBCollateFN
from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.batch import map_tensors, to_item
from ocr.pipeline.device import Normalize
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets

WORD = [[5, 6], [45, 6], [45, 20], [5, 20]]


def item_of(seed: int, targets: Targets | None, normalize: Normalize | None = None, side: int = 64) -> dict[str, Any]:
    image = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    page = Sample(seed, f"{seed}.jpg", "", Polygons.pack([WORD]), image=image)
    return to_item(targets(page) if targets else page, normalize, targets)


def test_items_become_stacks_and_lists() -> None:
    items = [item_of(seed, Targets(), Normalize()) for seed in range(2)]

    batch = DBCollateFN()(items)

    assert batch["images"].shape == (2, 3, 64, 64)
    assert batch["images"].dtype == torch.float32
    assert batch["images"].is_contiguous()
    for name in ("prob_maps", "thresh_maps", "prob_masks", "thresh_masks"):
        assert batch[name].shape == (2, 1, 64, 64)
    assert (batch["prob_maps"].dtype, batch["prob_masks"].dtype) == (torch.float32, torch.bool)
    for name in ("polygons", "inverse_matrix", "shape", "raw_size", "image_filename", "image_path"):
        assert isinstance(batch[name], list)
        assert len(batch[name]) == 2


def test_missing_maps_are_drawn() -> None:
    drawn, expected = DBCollateFN()([item_of(0, None)]), DBCollateFN()([item_of(0, Targets())])

    assert drawn["prob_maps"].any()
    for name in ("prob_maps", "thresh_maps", "prob_masks", "thresh_masks"):
        assert torch.equal(drawn[name], expected[name])


def test_maps_of_other_parameters_are_redrawn() -> None:
    batch = DBCollateFN(shrink_ratio=0.6, thresh_min=0.2, thresh_max=0.8)([item_of(0, Targets())])
    expected = map_tensors(Targets(0.6, 0.2, 0.8).draw(Polygons.pack([WORD]), 64, 64))

    assert torch.equal(batch["prob_maps"][0], expected["prob_map"])
    assert torch.equal(batch["thresh_maps"][0], expected["thresh_map"])


def test_maps_of_the_same_parameters_are_taken_as_they_are() -> None:
    item = item_of(0, Targets(min_text_size=7))
    item["prob_map"] = torch.full((1, 64, 64), 0.5)

    batch = DBCollateFN()([item])

    assert (batch["prob_maps"] == 0.5).all()


def test_an_item_of_only_an_image_and_polygons_is_enough() -> None:
    image = torch.zeros(3, 40, 50)

    batch = DBCollateFN()(
        [{"image": image, "polygons": [np.array([WORD], np.float32)]}, {"image": image, "polygons": []}]
    )

    assert batch["prob_maps"].flatten(1).any(dim=1).tolist() == [True, False]
    assert batch["image_filename"] == [None, None]


def test_skipped_items_are_left_out_and_a_batch_of_them_is_none() -> None:
    batch = DBCollateFN()([None, item_of(4, Targets()), None])

    assert batch["image_filename"] == ["4.jpg"]
    assert len(batch["images"]) == 1
    assert DBCollateFN()([None, None]) is None


def test_uint8_pages_are_stacked_as_they_lie_in_memory() -> None:
    items = [item_of(seed, Targets()) for seed in range(3)]

    batch = DBCollateFN()(items)

    images = batch["images"]
    assert images.dtype == torch.uint8
    assert images.shape == (3, 3, 64, 64)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(images, torch.stack([item["image"] for item in items]))


def test_pages_of_different_sizes_are_refused() -> None:
    with rejects(ConfigError, setting="transforms", value=[(3, 32, 32), (3, 64, 64)]):
        DBCollateFN()([item_of(0, Targets()), item_of(1, Targets(), side=32)])


def test_parameters_that_cannot_work_are_refused_at_once() -> None:
    with rejects(ConfigError, setting="Targets.shrink_ratio", value=1.4):
        DBCollateFN(shrink_ratio=1.4)


def test_the_function_travels_to_a_worker() -> None:
    collate = DBCollateFN(0.5, 0.2, 0.8)

    again = pickle.loads(pickle.dumps(collate))

    assert repr(again) == repr(collate) == "DBCollateFN(0.5, 0.2, 0.8)"
    assert again.targets == collate.targets
