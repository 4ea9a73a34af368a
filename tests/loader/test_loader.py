"""loader: the same batches from any engine, cache, number of workers and ranks, and after any resume."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from rejection import rejects
from sameness import assert_same
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.errors import ConfigError
from ocr.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, JpegNoise, RandomFlip, RandomRotate, TextAwareCrop

SIZE = 96
FORKED = (2, "processes")


def transforms(random: bool, normalize: str = "host") -> DBTransforms:
    steps = [TextAwareCrop(), RandomFlip(), RandomRotate(), ColourJitter(), JpegNoise()] if random else []
    return DBTransforms([Letterbox(SIZE), *steps, Normalize()], normalize=normalize)


def open_split(data: Path, split: str, transform: DBTransforms | None = None, **settings: Any) -> OCRDataset:
    chosen = transform or transforms(split == "train")
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", chosen, **settings)


def plain(dataset: OCRDataset, batch_size: int = 3) -> list[Any]:
    """What torch's own loader gives, in the main process."""
    return list(DataLoader(dataset, batch_size, collate_fn=DBCollateFN()))


# Every pair of split, normalisation, cache and way of making batches; the first pass with a cache fills it.
@pytest.mark.parametrize(
    ("split", "normalize", "cache", "ways"),
    [
        ("train", "host", "off", [(0,), (3,), FORKED]),
        ("train", "device", "auto", [(1,), (3,), FORKED]),
        ("train", "host", "prefix", [(0,), (1,)]),
        ("val", "device", "off", [(1,)]),
        ("val", "host", "auto", [(0,), (3,), FORKED]),
        ("val", "device", "prefix", [FORKED, (0,), (3,)]),
    ],
)
def test_every_engine_cache_and_number_of_workers_gives_the_same_batches(
    synthetic, tmp_path, split, normalize, cache, ways
):
    transform = transforms(split == "train", normalize)
    expected = plain(open_split(synthetic, split, transform, seed=4))
    dataset = open_split(synthetic, split, transform, seed=4, cache=cache, cache_folder=tmp_path)
    for workers, *engine in ways:
        context = {"multiprocessing_context": "fork"} if engine else {}
        assert_same(list(Loader(dataset, 3, workers, *engine, **context)), expected)


@pytest.mark.parametrize(
    ("method", "workers"),
    [
        ("fork", 2),
        ("spawn", 1),
        pytest.param("forkserver", 2, marks=pytest.mark.slow),
    ],
)
def test_worker_processes_of_any_kind_share_the_cache(synthetic, tmp_path, method, workers):
    dataset = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    expected = plain(open_split(synthetic, "val"))
    loader = Loader(dataset, 3, workers, "processes", persistent_workers=True, multiprocessing_context=method)
    for hits in (0, len(dataset)):
        assert_same(list(loader), expected)
        assert dataset.ledger.totals()["cache_hits"] == hits


@pytest.mark.parametrize("cache", ["off", "auto"])
def test_two_ranks_share_all_samples_without_loss_or_repetition(synthetic, tmp_path, cache):
    for split, count, batch_sizes in (("val", 6, (1, 5)), ("train", 8, (2, 4))):
        alone = dict(named_images(open_split(synthetic, split)))
        for batch_size in batch_sizes:
            seen: dict[str, Any] = {}
            for rank in range(2):
                dataset = open_split(synthetic, split, cache=cache, cache_folder=tmp_path)
                for batch in Loader(dataset, batch_size, 2, shuffle=True, seed=1, rank=rank, world_size=2):
                    for name, image in zip(batch["image_filename"], batch["images"], strict=True):
                        assert name not in seen
                        seen[name] = image.clone()
            assert len(seen) == count
            assert_same(seen, {name: alone[name] for name in seen})


def named_images(dataset: OCRDataset) -> list[tuple[str, torch.Tensor]]:
    items = [dataset[index] for index in range(len(dataset))]
    return [(item["image_filename"], item["image"]) for item in items if item is not None]


@pytest.mark.parametrize("workers", [(0, 2), (2, 0), (3, 1)], ids=str)
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_resumed_loader_goes_on_exactly_also_with_another_number_of_workers(synthetic, workers, engine):
    before, after = workers
    expected = list(Loader(open_split(synthetic, "train", seed=2), 3, 0, shuffle=True, seed=7))
    loader = Loader(open_split(synthetic, "train", seed=2), 3, before, shuffle=True, seed=7)
    first = next(iter(loader))
    state = loader.state_dict()
    assert (state["epoch"], state["batches"]) == (0, 1)
    resumed = Loader(open_split(synthetic, "train", seed=2), 3, after, engine, shuffle=True, seed=7)
    resumed.load_state_dict(state)
    assert_same([first, *resumed], expected)
    assert resumed.state_dict() == state | {"epoch": 1, "batches": 0}


def test_every_pass_is_another_epoch_and_set_epoch_goes_back(synthetic):
    loader = Loader(open_split(synthetic, "train"), 4, 2, shuffle=True)
    first, second = list(loader), list(loader)
    assert [batch["image_filename"] for batch in first] != [batch["image_filename"] for batch in second]
    loader.set_epoch(0)
    assert_same(list(loader), first)


def test_a_batch_that_is_still_held_never_changes_and_others_are_used_again(synthetic):
    loader = Loader(open_split(synthetic, "train"), 2, 2, shuffle=True)
    held = list(loader)
    copies = [{name: value.clone() for name, value in batch.items() if torch.is_tensor(value)} for batch in held]
    views = [batch["images"][0].numpy() for batch in held]
    for _ in range(3):
        for _ in loader:
            pass
    for batch, copy, view in zip(held, copies, views, strict=True):
        assert all(torch.equal(batch[name], value) for name, value in copy.items())
        assert np.array_equal(view, copy["images"][0].numpy())
    del held, batch, views, view
    addresses = {batch["images"].data_ptr() for _ in range(5) for batch in loader}
    assert len(addresses) <= loader.batches_ahead + 2


def test_writing_into_a_batch_in_place_does_not_reach_the_cache_or_the_next_epoch(synthetic, tmp_path):
    dataset = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    loader = Loader(dataset, 3, 2)
    for _ in range(3):
        for batch in loader:
            for value in batch.values():
                if torch.is_tensor(value):
                    value.zero_()
            batch["polygons"][0][0][:] = -1
    assert_same(list(loader), plain(open_split(synthetic, "val")))


@pytest.mark.parametrize("split", ["train", "val"])
def test_batches_arrive_normalised_on_the_device(synthetic, tmp_path, split):
    on_host = list(Loader(open_split(synthetic, split), 3, 0))
    settings = {"cache": "auto", "cache_folder": tmp_path}
    for engine in ("threads", "processes"):
        dataset = open_split(synthetic, split, transforms(split == "train", "device"), **settings)
        assert_same(list(Loader(dataset, 3, 2, engine, device="cpu")), on_host)


def test_a_collate_function_with_other_maps_gets_them(synthetic):
    dataset = open_split(synthetic, "val")
    other = DBCollateFN(shrink_ratio=0.6)
    expected = list(DataLoader(dataset, 3, collate_fn=other))
    assert_same(list(Loader(dataset, 3, 2, collate_fn=other)), expected)
    pairs = zip(expected, plain(dataset), strict=True)
    assert not all(torch.equal(batch["prob_maps"], own["prob_maps"]) for batch, own in pairs)


def test_any_dataset_of_items_can_be_loaded(synthetic):
    dataset = open_split(synthetic, "val")
    items = [dataset[index] for index in range(len(dataset))]
    for engine in ("threads", "processes"):
        assert_same(list(Loader(items, 3, 2, engine)), plain(dataset))


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"engine": "fibres"}, "data.engine", "fibres"),
        ({"num_workers": -1}, "data.num_workers", -1),
        ({"batches_ahead": 0}, "data.batches_ahead", 0),
        ({"batch_size": 0}, "batch_size", 0),
        ({"batch_size": "4"}, "batch_size", "4"),
        ({"rank": 2, "world_size": 2}, "rank", 2),
        ({"rank": -1, "world_size": 2}, "rank", -1),
        ({"world_size": 0}, "world_size", 0),
        ({"seed": -1}, "seed", -1),
        ({"sampler": [1]}, "sampler", [1]),
        ({"engine": "processes", "batch_sampler": [[1]]}, "batch_sampler", [[1]]),
        ({"pin_memory": True}, "pin_memory", True),
        ({"prefetch_factor": 0}, "data.batches_ahead", 0),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused(synthetic, settings, name, value):
    with rejects(ConfigError, setting=name, value=value):
        Loader(open_split(synthetic, "val"), **settings)


def test_a_dataset_that_has_no_items_or_cannot_be_indexed_is_refused():
    with rejects(ConfigError, setting="dataset", value=0):
        Loader([])
    with rejects(ConfigError, setting="dataset", value="generator"):
        Loader(item for item in "ab")


class Pair(NamedTuple):
    one: torch.Tensor
    other: list[Any]


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_batches_of_any_form_arrive_on_the_device(engine):
    made = Loader([1, 2, 3], 2, 1, engine, device="meta", collate_fn=as_pair)
    for batch in made:
        assert isinstance(batch, Pair)
        assert [batch.one.device.type, batch.other[0]["deep"].device.type, batch.other[1]] == ["meta", "meta", "word"]


def as_pair(items: list[Any]) -> Any:
    return Pair(torch.tensor(items), [{"deep": torch.tensor(items)}, "word"])


@pytest.mark.parametrize("workers", [0, 1])
def test_items_that_are_no_pages_need_a_collate_function(workers):
    with rejects(ConfigError, setting="collate_fn", value="tuple"):
        list(Loader([(1, 2)], 1, workers))


class Ends(list[int]):
    def __getitem__(self, index: Any) -> Any:
        raise StopIteration


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_an_item_cannot_end_the_epoch_unseen(engine):
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(Loader(Ends([1, 2]), 1, 0, engine, collate_fn=list))


@pytest.mark.parametrize(
    ("state", "name", "value"),
    [
        ({"epoch": 1}, "batches of the state", None),
        ({"epoch": 1, "batches": -2}, "batches of the state", -2),
        ({"epoch": None, "batches": 0}, "epoch of the state", None),
    ],
)
def test_a_state_that_no_loader_has_is_refused(state, name, value):
    loader = Loader([1, 2, 3], 1, collate_fn=list)
    with rejects(ConfigError, setting=name, value=value):
        loader.load_state_dict(state)
    with rejects(ConfigError, setting="epoch", value=-1):
        loader.set_epoch(-1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_the_names_of_torch_work_with_every_engine(synthetic, engine, workers):
    dataset = open_split(synthetic, "val")
    settings = {"prefetch_factor": 4, "persistent_workers": True}
    made = Loader(dataset, 3, workers, engine, **settings)
    assert made.batches_ahead == 4
    assert_same([*made, *made], 2 * plain(dataset))


def test_printing_a_loader_shows_how_batches_are_made(synthetic):
    shown = repr(Loader(open_split(synthetic, "val"), 4, 1))
    assert shown.startswith("Loader(2 batches, batch_size=4, num_workers=1, engine='threads') of OCRDataset(6 pages")


def test_samples_of_a_read_only_page_can_be_augmented(synthetic, tmp_path):
    dataset = open_split(synthetic, "train", cache="prefix", cache_folder=tmp_path)
    dataset.fill_cache()
    page = dataset.cache.sample(0)
    assert not page.image.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        page.image[:] = 0
    assert replace(page, cached="").image is page.image
