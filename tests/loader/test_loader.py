"""loader: the same batches from any engine, cache, number of workers and ranks, and after any resume."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from pages import images_by_name, names, open_split, plain, transforms
from rejection import rejects
from sameness import assert_same
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, DBTransforms
from ocr.errors import ConfigError, GlyphFeedError
from ocr.loader import Loader
from ocr.loader.buffers import ItemBatches, PageBatches
from ocr.loader.order import EpochBatches

FORKED = (2, "processes")
ENGINES = [("threads", 0), ("threads", 2), ("processes", 1)]


# Every pair of split, normalisation, cache and way of making batches; the first pass with a cache fills it.
@pytest.mark.parametrize(
    ("split", "normalize", "cache", "ways"),
    [
        ("train", "host", "off", [(0,), (3,), FORKED]),
        ("train", "device", "auto", [(1,), (3,), FORKED]),
        ("train", "host", "auto", [(0,), (1,)]),
        ("val", "device", "off", [(1,)]),
        ("val", "host", "auto", [(0,), (3,), FORKED]),
        ("val", "device", "auto", [FORKED, (0,), (3,)]),
    ],
)
def test_every_engine_cache_and_number_of_workers_makes_the_same_batches(
    synthetic, tmp_path, split, normalize, cache, ways
):
    transform = transforms(split == "train", normalize)
    expected = plain(open_split(synthetic, split, transform, seed=4))
    dataset = open_split(synthetic, split, transform, seed=4, cache=cache, cache_folder=tmp_path)
    for workers, *engine in ways:
        context = {"multiprocessing_context": "fork"} if engine else {}
        assert_same(list(Loader(dataset, 3, workers, *engine, **context)), expected)


@pytest.mark.parametrize("cache", ["off", "auto"])
def test_two_ranks_share_all_samples_without_loss_or_repetition(synthetic, tmp_path, cache):
    for split, batch_sizes in (("val", (1, 5)), ("train", (2, 4))):
        alone = images_by_name(Loader(open_split(synthetic, split), 4, 0))
        for batch_size in batch_sizes:
            seen: list[Any] = []
            for rank in range(2):
                dataset = open_split(synthetic, split, cache=cache, cache_folder=tmp_path)
                seen += Loader(dataset, batch_size, 2, shuffle=True, seed=1, rank=rank, world_size=2)
            assert_same(dict(sorted(images_by_name(seen).items())), dict(sorted(alone.items())))


def test_batches_arrive_normalised_on_the_device(synthetic, tmp_path):
    for split in ("train", "val"):
        on_host = list(Loader(open_split(synthetic, split), 3, 0))
        for engine in ("threads", "processes"):
            transform = transforms(split == "train", "device")
            dataset = open_split(synthetic, split, transform, cache="auto", cache_folder=tmp_path)
            assert_same(list(Loader(dataset, 3, 2, engine, device="cpu")), on_host)


# -- passes and epochs


def test_every_pass_is_another_epoch_and_set_epoch_goes_back(synthetic):
    loader = Loader(open_split(synthetic, "train"), 4, 2, shuffle=True)
    first, second = list(loader), list(loader)
    assert names(first) != names(second)
    loader.set_epoch(0)
    assert_same(list(loader), first)


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_an_interrupted_pass_is_followed_by_the_next_epoch(synthetic, engine, workers):
    loader = Loader(open_split(synthetic, "train"), 2, workers, engine, shuffle=True)
    whole = [names(loader) for _ in range(3)]
    loader.set_epoch(0)
    assert [names(batch for batch, _ in zip(loader, range(2), strict=False)) for _ in range(3)] == [
        epoch[:2] for epoch in whole
    ]


def test_a_pass_that_was_not_begun_is_not_an_epoch(synthetic):
    loader = Loader(open_split(synthetic, "train"), 2, 0, shuffle=True)
    iter(loader)
    assert position(loader) == (0, 0)


def position(loader: Loader) -> tuple[int, int]:
    state = loader.state_dict()
    return state["epoch"], state["batches"]


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
@pytest.mark.parametrize("cache", ["off", "auto"])
def test_passes_at_once_over_one_dataset_each_draw_for_their_own_epoch(synthetic, tmp_path, engine, workers, cache):
    dataset = open_split(synthetic, "train", cache=cache, cache_folder=tmp_path)
    loader = Loader(open_split(synthetic, "train"), 2, 0)
    expected = [list(loader), list(loader)]
    first, second = (Loader(dataset, 2, workers, engine, batches_ahead=1) for _ in range(2))
    second.set_epoch(1)
    passed = list(zip(first, second, strict=True))
    assert_same([batch for batch, _ in passed], expected[0])
    assert_same([batch for _, batch in passed], expected[1])


# -- state


@pytest.mark.parametrize("workers", [(0, 2), (2, 0), (3, 1)], ids=str)
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_a_resumed_loader_continues_exactly_even_with_another_number_of_workers(synthetic, workers, engine):
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


def test_the_state_of_an_interrupted_pass_resumes_it_and_its_own_loader_starts_the_next_epoch(synthetic):
    loader, other = (Loader(open_split(synthetic, "train"), 2, 2, shuffle=True) for _ in range(2))
    whole = [names(other), names(other)]
    for _ in loader:
        break
    other.load_state_dict(loader.state_dict())
    other.set_epoch(0)
    assert names(other) == whole[0][1:]
    assert names(loader) == whole[1]


def test_a_state_saved_with_the_last_batch_in_hand_does_not_repeat_its_epoch(synthetic):
    loader, other = (Loader(open_split(synthetic, "train"), 2, 2, shuffle=True) for _ in range(2))
    whole = [names(other), names(other)]
    states = [loader.state_dict() for _ in loader]
    for state, rest in ((states[-1], whole[1]), (states[-2], whole[0][-1:]), (loader.state_dict(), whole[1])):
        other.load_state_dict(state)
        assert names(other) == rest


def test_naming_the_epoch_of_the_running_pass_keeps_its_position_and_another_starts_at_its_beginning(synthetic):
    loader = Loader(open_split(synthetic, "train"), 2, 2, shuffle=True)
    passed = iter(loader)
    next(passed)
    loader.set_epoch(0)
    next(passed)
    assert position(loader) == (0, 2)
    loader.set_epoch(1)
    assert position(loader) == (1, 0)


@pytest.mark.parametrize(
    ("setting", "value", "here"),
    [
        ("batch_size", 4, {"batch_size": 4, "world_size": 1}),
        ("world_size", 2, {"batch_size": 2, "world_size": 2}),
    ],
)
def test_the_middle_of_an_epoch_is_not_resumed_with_another_batch_size_or_number_of_ranks(
    synthetic, setting, value, here
):
    loader = Loader(open_split(synthetic, "train"), 2, 0, shuffle=True)
    states = [loader.state_dict() for _ in loader]
    other = Loader(open_split(synthetic, "train"), **{"batch_size": 2, "num_workers": 0, "rank": 0} | {setting: value})
    with rejects(ConfigError, setting=setting, value=here):
        other.load_state_dict(states[0])
    other.load_state_dict(states[-1])
    assert position(other) == (1, 0)


@pytest.mark.parametrize(
    ("state", "name", "value"),
    [
        ({"epoch": 1}, "batches of the state", None),
        ({"epoch": 1, "batches": -2}, "batches of the state", -2),
        ({"epoch": None, "batches": 0}, "epoch of the state", None),
    ],
)
def test_a_state_that_no_loader_has_is_rejected(state, name, value):
    loader = Loader([1, 2, 3], 1, collate_fn=list)
    with rejects(ConfigError, setting=name, value=value):
        loader.load_state_dict(state)
    with rejects(ConfigError, setting="epoch", value=-1):
        loader.set_epoch(-1)


# -- collate functions and other datasets


def test_a_collate_function_with_other_maps_gets_them(synthetic):
    dataset = open_split(synthetic, "val")
    other = DBCollateFN(shrink_ratio=0.6)
    expected = list(DataLoader(dataset, 3, collate_fn=other))
    assert_same(list(Loader(dataset, 3, 2, collate_fn=other)), expected)
    pairs = zip(expected, plain(dataset), strict=True)
    assert not all(torch.equal(batch["prob_maps"], own["prob_maps"]) for batch, own in pairs)


def test_pages_are_written_into_slots_unless_the_collate_function_needs_other_maps(synthetic):
    dataset = open_split(synthetic, "val")
    for collate_fn in (None, DBCollateFN()):
        assert isinstance(Loader(dataset, collate_fn=collate_fn)._maker, PageBatches)
    for collate_fn in (DBCollateFN(shrink_ratio=0.5), lambda items: {"count": len(items)}):
        assert isinstance(Loader(dataset, collate_fn=collate_fn)._maker, ItemBatches)


def test_a_list_of_the_items_of_pages_is_a_dataset(synthetic):
    dataset = open_split(synthetic, "val")
    items = [dataset[index] for index in range(len(dataset))]
    for engine in ("threads", "processes"):
        assert_same(list(Loader(items, 3, 2, engine)), plain(dataset))


class Squares:
    """A map-style dataset that has nothing to do with pages; it counts its epochs if it can."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((2, 3), index, np.float32), index * index

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_any_map_style_dataset_is_loaded_with_a_collate_function(engine, workers):
    dataset, collate_fn = Squares(), torch.utils.data.default_collate
    loader = Loader(dataset, 4, workers, engine, shuffle=True, seed=3, collate_fn=collate_fn)
    for epoch in (0, 1):
        order = EpochBatches(10, 4, shuffle=True, drop_last=False, seed=3).batches(epoch, 0)
        assert_same(list(loader), [collate_fn([dataset[index] for index in batch]) for batch in order])
    assert dataset.epochs == [0, 1]


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
def test_items_that_are_not_pages_need_a_collate_function(workers):
    with rejects(ConfigError, setting="collate_fn", value="tuple"):
        list(Loader([(1, 2)], 1, workers))


class Ends(list[int]):
    def __getitem__(self, index: Any) -> Any:
        raise StopIteration


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_an_item_cannot_end_the_epoch_unseen(engine):
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(Loader(Ends([1, 2]), 1, 0, engine, collate_fn=list))


# -- settings


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
        ({"batch_pixels": 1000}, "data.batch_pixels", 1000),
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_rejected(synthetic, settings, name, value):
    with rejects(ConfigError, setting=name, value=value):
        Loader(open_split(synthetic, "val"), **settings)


def test_a_dataset_that_has_no_items_or_cannot_be_indexed_is_rejected():
    with rejects(ConfigError, setting="dataset", value=0):
        Loader([])
    with rejects(ConfigError, setting="dataset", value="generator"):
        Loader(item for item in "ab")


def test_pages_of_two_sizes_in_a_batch_are_rejected_with_the_setting_that_fixes_it(synthetic):
    with rejects(ConfigError, setting="transforms.letterbox"):
        list(Loader(open_split(synthetic, "val", DBTransforms([])), 3, 2))
    single = list(Loader(open_split(synthetic, "val", DBTransforms([])), 1, 2))
    assert len({batch["images"].shape for batch in single}) > 1


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


def test_the_wording_of_errors_of_loaders(synthetic, snapshot):
    pages = open_split(synthetic, "val")
    unboxed = open_split(synthetic, "val", DBTransforms([]))
    empty: list[Any] = []
    texts = []

    def add(dataset: Any, batch_size: int = 2, **settings: Any) -> None:
        with pytest.raises(GlyphFeedError) as caught:
            list(Loader(dataset, batch_size, 0, **settings))
        texts.append(str(caught.value).replace(str(synthetic), "DIR"))

    add(pages, engine="fibres")
    add(pages, batches_ahead=0)
    add(pages, batch_size=0)
    add(pages, rank=2, world_size=2)
    add(pages, sampler=[1])
    add(pages, pin_memory=True)
    add(pages, batch_pixels=1000)
    add(pages, batch_size=7, drop_last=True)
    add(pages, world_size=9)
    add(empty)
    add(item for item in "ab")
    add([(1, 2)])
    add(unboxed)
    with pytest.raises(GlyphFeedError) as caught:
        Loader(pages, 4).load_state_dict({"epoch": 1, "batches": 1, "batch_size": 2, "world_size": 1})
    texts.append(str(caught.value))
    with pytest.raises(GlyphFeedError) as caught:
        EpochBatches(4, 2, shuffle=False, drop_last=False).set_epoch(-1)
    texts.append(str(caught.value))
    snapshot("loader_errors", "\n".join(texts))
