"""DALIDataLoader: the batches of the default loader, in its order, for every source, rank and resume."""

import logging
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rejection import rejects
from sameness import assert_same

from ocr.dali.graph import ocr_pipeline
from ocr.datasets import DALIDataLoader, DBCollateFN, DBTransforms, OCRDataset, OCRWebDataset
from ocr.errors import ConfigError
from ocr.loader import Loader, workers
from ocr.pipeline.device import with_tensors
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import PageView, Sample
from ocr.pipeline.stage import RandomStage
from ocr.pipeline.suffix import (
    ColourJitter,
    JpegNoise,
    QuarterTurn,
    RandomBlur,
    RandomFlip,
    RandomRotate,
    RandomScale,
    RandomWindow,
    TextAwareCrop,
)
from ocr.tools.convert.convert import convert_split
from ocr.tools.convert.plan import make_plan
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.preprocess import preprocess_maps

HAS_DALI = find_spec("nvidia") is not None and find_spec("nvidia.dali") is not None
pytestmark = needs_dali = pytest.mark.skipif(not HAS_DALI, reason="nvidia.dali is not installed")

SIZE = 96
GEOMETRY = (TextAwareCrop(p=0.8), RandomFlip(), RandomRotate(), RandomScale())
RESIZE = RandomScale(p=0.8, resizes=True)
COLOURS = (ColourJitter(p=0.8), RandomBlur(p=0.8), JpegNoise(p=0.8))
TENSORS = ("images", "prob_maps", "thresh_maps", "prob_masks", "thresh_masks")
# Levels of 255: the mean over a page, and over all pages. docs/scale.md states these.
ROUNDING, WORST_PAGE, ALL_PAGES = 0.2, 8.0, 1.5
# With a JPEG's traces and the like on top.
AUGMENTED = 2.5


def open_split(data: Path, split: str = "val", *random: Any, normalize: str = "device", **settings: Any) -> OCRDataset:
    box = settings.pop("box", Letterbox(SIZE))
    transform = DBTransforms([box, *random, Normalize()], normalize=normalize)
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", transform, **settings)


def load(dataset: Any, batch_size: int = 4, threads: int = 2, suffix: str = "auto", **settings: Any) -> DALIDataLoader:
    pipeline = ocr_pipeline(dataset, batch_size, max(1, threads), device="cpu", suffix=suffix)
    return DALIDataLoader(pipeline, len(dataset), batch_size, num_workers=threads, **settings)


def compare(expected: list[Any], found: list[Any]) -> np.ndarray:
    """Everything but pixels is the same; mean difference of each page's pixels, in levels of 255."""
    differences: list[float] = []
    for one, other in zip(expected, found, strict=True):
        assert one.keys() == other.keys()
        for name in TENSORS:
            assert one[name].dtype == other[name].dtype
            assert one[name].stride() == other[name].stride()
        assert_same({**one, "images": 0}, {**other, "images": 0})
        scale = 1 if one["images"].dtype == torch.uint8 else 58
        differences += ((one["images"].float() - other["images"].float()).abs().mean(dim=(1, 2, 3)) * scale).tolist()
    return np.array(differences)


def to_shards(dataset: OCRDataset, split: str, out: Path, **settings: Any) -> str:
    wanted = ConvertSettings(samples_per_shard=3, **settings)
    convert_split(make_plan(dataset, split, out, wanted), wanted, show_progress=False)
    return f"{out}/{split}-*.tar"


@pytest.mark.parametrize("normalize", ["host", "device"])
@pytest.mark.parametrize(("split", "random"), [("val", ()), ("train", (*GEOMETRY, *COLOURS))])
def test_pixels_are_equal_within_rounding_and_all_else_exactly(synthetic, split, random, normalize):
    settings = {"normalize": normalize, "image_loading_config": {"scaled": "off"}, "seed": 5}
    order = {"shuffle": True, "seed": 5}
    expected = list(Loader(open_split(synthetic, split, *random, **settings), 4, **order))
    found = list(load(open_split(synthetic, split, *random, **settings), 4, **order))
    assert len(found[-1]["images"]) == len(expected[-1]["images"])
    # A JPEG's steps make much of a pixel that was rounded the other way.
    assert compare(expected, found).max() < (AUGMENTED if random else ROUNDING)


@pytest.mark.parametrize("split", ["train", "val"])
def test_pages_that_our_decoder_reduces_are_near_and_polygons_and_maps_the_same(synthetic, split):
    random = GEOMETRY if split == "train" else ()
    expected, found = (list(make(open_split(synthetic, split, *random), 3)) for make in (Loader, load))
    differences = compare(expected, found)
    assert differences.max() < WORST_PAGE
    assert differences.mean() < ALL_PAGES


@pytest.mark.parametrize("split", ["train", "val"])
def test_shards_give_the_batches_of_the_default_loader(synthetic, tmp_path, split):
    random = (*GEOMETRY, *COLOURS) if split == "train" else ()
    shards = to_shards(open_split(synthetic, split), split, tmp_path)
    transform = open_split(synthetic, split, *random).transform
    config = {"image_loading_config": {"scaled": "off"}}
    expected, found = (
        list(make(OCRWebDataset(shards, transform, **config), 4, shuffle=True)) for make in (Loader, load)
    )
    assert compare(expected, found).max() < (AUGMENTED if random else ROUNDING)
    folder = list(load(open_split(synthetic, split, *random, **config), 4, shuffle=True))
    for batch, same in zip(found, folder, strict=True):
        assert_same({**batch, "image_path": 0}, {**same, "image_path": 0})


@pytest.mark.parametrize(
    "random",
    [GEOMETRY, (RandomWindow(64),), (*GEOMETRY[1:], RandomWindow(64), *COLOURS), (*GEOMETRY, Letterbox(64)), COLOURS],
    ids=["geometry", "window", "everything", "smaller", "colours"],
)
def test_random_stages_in_dali_give_the_pages_of_our_own(synthetic, random):
    settings = {"image_loading_config": {"scaled": "off"}, "seed": 2}
    expected = list(Loader(open_split(synthetic, "train", *random, **settings), 4))
    loader = load(open_split(synthetic, "train", *random, **settings), 4, suffix="dali")
    assert not loader.pipeline.plan.rest
    assert compare(expected, list(loader)).max() < AUGMENTED


@pytest.mark.parametrize("suffix", ["host", "dali"])
@pytest.mark.parametrize("normalize", ["host", "device"])
@pytest.mark.parametrize(
    "random",
    [(), (*GEOMETRY, *COLOURS), (*GEOMETRY, Letterbox(64, shape="page")), (RESIZE, RandomWindow(64)), (QuarterTurn(),)],
    ids=["validation", "everything", "smaller", "window", "turns"],
)
def test_pages_that_keep_their_shape_are_those_of_the_default_loader(synthetic, random, normalize, suffix):
    settings = {"normalize": normalize, "image_loading_config": {"scaled": "off"}, "seed": 5}
    box = Letterbox(SIZE, shape="page")
    order = {"shuffle": True, "seed": 5}
    expected = list(Loader(open_split(synthetic, "train", *random, box=box, **settings), 3, **order))
    found = list(load(open_split(synthetic, "train", *random, box=box, **settings), 3, suffix=suffix, **order))
    assert len({batch["images"].shape[-2:] for batch in expected}) > 1 or RandomWindow(64) in random
    assert compare(expected, found).max() < (AUGMENTED if random else ROUNDING)


def test_no_threads_of_our_own_give_the_same_batches(synthetic):
    for suffix in ("host", "dali"):
        batches = [
            list(load(open_split(synthetic, "train", *GEOMETRY), 3, threads, suffix, shuffle=True))
            for threads in (0, 1, 3)
        ]
        assert_same(batches[0], batches[1])
        assert_same(batches[0], batches[2])


def test_two_ranks_share_all_pages_without_loss_or_repetition(synthetic):
    for shuffle in (False, True):
        ranks = [
            list(load(open_split(synthetic, "train"), 3, rank=rank, world_size=2, shuffle=shuffle)) for rank in range(2)
        ]
        assert len(ranks[0]) == len(ranks[1])
        names = [name for batches in ranks for batch in batches for name in batch["image_filename"]]
        assert sorted(names) == sorted(open_split(synthetic, "train").source.names)


def test_a_batch_that_has_a_page_more_than_asked_for_is_made(synthetic):
    # Three ranks with batches of one: eight pages are three, three and two.
    loaders = [load(open_split(synthetic, "train"), 1, rank=rank, world_size=3) for rank in range(3)]
    sizes = [[len(batch["images"]) for batch in loader] for loader in loaders]
    assert [sum(pages) for pages in sizes] == [3, 3, 2]
    assert max(map(max, sizes)) == 2


@pytest.mark.parametrize("threads", [0, 2])
def test_a_resumed_loader_continues_exactly(synthetic, threads):
    random = (*GEOMETRY, *COLOURS)
    whole = load(open_split(synthetic, "train", *random), 3, 2, shuffle=True)
    expected = [list(whole) for _ in range(2)]
    first = load(open_split(synthetic, "train", *random), 3, 2, shuffle=True)
    list(first)
    batches = iter(first)
    next(batches)
    state = first.state_dict()
    del batches
    assert (state["epoch"], state["batches"]) == (1, 1)
    resumed = load(open_split(synthetic, "train", *random), 3, threads, shuffle=True)
    resumed.load_state_dict(state)
    assert_same(list(resumed), expected[1][1:])


def test_every_pass_is_another_epoch_and_set_epoch_goes_back(synthetic):
    loader = load(open_split(synthetic, "train", *GEOMETRY), 3, shuffle=True)
    assert len(loader) == 3
    first, second = list(loader), list(loader)
    assert [len(batch["images"]) for batch in first] == [3, 3, 2]
    assert [batch["image_filename"] for batch in first] != [batch["image_filename"] for batch in second]
    loader.set_epoch(0)
    assert_same(list(loader), first)
    assert len(load(open_split(synthetic, "train"), 3, drop_last=True)) == 2


def test_a_batch_that_is_still_held_never_changes(synthetic):
    loader = load(open_split(synthetic, "train", *GEOMETRY), 2, shuffle=True)
    held, copies = [], []
    for _ in range(4):
        for batch in loader:
            held.append(batch)
            copies.append({name: batch[name].clone() for name in TENSORS})
    for batch, copy in zip(held, copies, strict=True):
        assert_same({name: batch[name] for name in TENSORS}, copy)


@pytest.mark.parametrize("random", [(), GEOMETRY])
def test_batches_arrive_normalised_on_the_device(synthetic, random):
    settings = {"image_loading_config": {"scaled": "off"}}
    expected = list(Loader(open_split(synthetic, "val", *random, **settings), 4, device="cpu"))
    found = list(load(open_split(synthetic, "val", *random, **settings), 4, device="cpu"))
    assert expected[0]["images"].is_floating_point()
    assert compare(expected, found).max() < ROUNDING


def test_stored_maps_are_used(dataset_folder):
    preprocess_maps(open_split(dataset_folder), show_progress=False)
    dataset = open_split(dataset_folder)
    found = list(load(dataset))
    assert dataset.ledger.totals()["maps_stored"] == 6
    assert_same([batch["thresh_maps"] for batch in found], [batch["thresh_maps"] for batch in Loader(dataset, 4)])


class Widen(RandomStage):
    """Repeats every page to its right, which no plan of a batch knows."""

    def draw(self, rng: np.random.Generator, page: PageView) -> int:
        return int(rng.integers(2, 4))

    def apply(self, sample: Sample, parameters: int) -> Sample:
        return replace(sample, image=np.tile(sample.image, (1, parameters, 1)))


@pytest.mark.parametrize("threads", [0, 3])
def test_pages_that_outgrow_their_batch_enlarge_it_and_keep_their_random_numbers(synthetic, threads):
    settings = {"image_loading_config": {"scaled": "off"}, "seed": 5, "box": Letterbox(SIZE, shape="page")}
    dataset = open_split(synthetic, "train", *GEOMETRY, Widen(), **settings)
    for batch in load(dataset, 3, threads, suffix="dali"):
        for name, page, prob_map in zip(batch["image_filename"], batch["images"], batch["prob_maps"], strict=True):
            expected = dataset.sample(dataset.source.names.index(name))
            inside = slice(expected.height), slice(expected.width)
            difference = page.numpy().transpose(1, 2, 0)[inside].astype(float) - expected.image
            assert np.abs(difference).mean() < AUGMENTED
            assert np.array_equal(prob_map[0].numpy()[inside], expected.maps["prob_map"])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize(("split", "random"), [("val", ()), ("train", (*GEOMETRY, *COLOURS))])
def test_a_gpu_gives_the_batches_of_the_default_loader(synthetic, split, random):
    settings = {"image_loading_config": {"scaled": "off"}}
    expected = list(Loader(open_split(synthetic, split, *random, **settings), 4))
    dataset = open_split(synthetic, split, *random, **settings)
    batches = list(DALIDataLoader(ocr_pipeline(dataset, 4, device="gpu"), len(dataset), 4))
    assert all(batch["images"].is_cuda for batch in batches)
    on_host = [with_tensors(batch, torch.Tensor.cpu) for batch in batches]
    assert compare(expected, on_host).max() < (4 if random else 1)


def test_an_abandoned_pass_leaves_no_thread_of_ours(synthetic):
    batches = iter(load(open_split(synthetic, "train"), 2))
    next(batches)
    batches.close()
    assert not any(pool.is_running() for pool in workers._pools)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"size": 5}, "DALIDataLoader.size"),
        ({"batch_size": 9}, "DALIDataLoader.batch_size"),
        ({"engine": "processes"}, "data.engine"),
        ({"collate_fn": DBCollateFN(shrink_ratio=0.6)}, "DALIDataLoader.collate_fn"),
        ({"pipeline": "none"}, "DALIDataLoader.pipeline"),
        ({"batches_ahead": 0}, "data.batches_ahead"),
        ({"pin_memory": True}, "pin_memory"),
    ],
)
def test_settings_that_cannot_work_are_refused(synthetic, settings, setting):
    pipeline = ocr_pipeline(open_split(synthetic), 4, device="cpu")
    with rejects(ConfigError, setting=setting, value=next(iter(settings.values()))):
        DALIDataLoader(**{"pipeline": pipeline, "size": 6, "batch_size": 4, **settings})


def test_printing_a_loader_shows_what_dali_does_and_what_comes_after(synthetic):
    shown = repr(load(open_split(synthetic, "train", *GEOMETRY, normalize="host")))
    assert shown.startswith("DALIDataLoader(2 batches, batch_size=4)")
    assert shown.index("Letterbox") < shown.index("Warp")
    assert "-> Normalize" in repr(load(open_split(synthetic, normalize="host")))


@pytest.mark.slow
@pytest.mark.receipts
def test_real_receipts_stay_within_the_stated_tolerance(receipts, caplog):
    caplog.set_level(logging.ERROR)
    for scaled, all_pages, worst_page in (("off", 0.1, 0.2), ("auto", 1.0, 4.0)):
        paths = receipts / "images" / "val", receipts / "jsons" / "val.json"
        transform = DBTransforms([Letterbox(640), Normalize()], normalize="device")
        expected, found = (
            list(make(OCRDataset(*paths, transform, image_loading_config={"scaled": scaled}), 16))
            for make in (Loader, load)
        )
        differences = compare(expected, found)
        assert differences.mean() < all_pages
        assert differences.max() < worst_page
