"""Passes over a dataset: whole, broken off, resumed, and several at once."""

from typing import Any

import pytest
from rejection import rejects
from sameness import assert_same
from test_loader import open_split

from ocr.errors import ConfigError
from ocr.loader import Loader

ENGINES = [("threads", 0), ("threads", 2), ("processes", 1)]


def names(batches: Any) -> list[tuple[str, ...]]:
    return [tuple(batch["image_filename"]) for batch in batches]


def take(passed: Any, count: int) -> list[tuple[str, ...]]:
    return names(batch for batch, _ in zip(passed, range(count), strict=False))


def position(loader: Loader) -> tuple[int, int]:
    state = loader.state_dict()
    return state["epoch"], state["batches"]


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
def test_a_pass_that_is_broken_off_is_followed_by_the_next_epoch(synthetic, engine, workers):
    loader = Loader(open_split(synthetic, "train"), 2, workers, engine, shuffle=True)
    whole = [names(loader) for _ in range(3)]
    loader.set_epoch(0)
    assert [take(iter(loader), 2) for _ in range(3)] == [epoch[:2] for epoch in whole]


def test_a_pass_that_was_not_begun_is_not_an_epoch(synthetic):
    loader = Loader(open_split(synthetic, "train"), 2, 0, shuffle=True)
    iter(loader)
    assert position(loader) == (0, 0)


def test_the_state_of_a_broken_pass_resumes_it_and_its_own_loader_goes_on_to_the_next_epoch(synthetic):
    loader, other = (Loader(open_split(synthetic, "train"), 2, 2, shuffle=True) for _ in range(2))
    whole = [names(other), names(other)]
    for _ in loader:
        break
    state = loader.state_dict()
    other.load_state_dict(state)
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


@pytest.mark.parametrize(("engine", "workers"), ENGINES)
@pytest.mark.parametrize("cache", ["off", "prefix"])
def test_passes_at_once_over_one_dataset_each_draw_for_their_own_epoch(synthetic, tmp_path, engine, workers, cache):
    dataset = open_split(synthetic, "train", cache=cache, cache_folder=tmp_path)
    loader = Loader(open_split(synthetic, "train"), 2, 0)
    expected = [list(loader), list(loader)]
    first, second = (Loader(dataset, 2, workers, engine, batches_ahead=1) for _ in range(2))
    second.set_epoch(1)
    passed = list(zip(first, second, strict=True))
    assert_same([batch for batch, _ in passed], expected[0])
    assert_same([batch for _, batch in passed], expected[1])


@pytest.mark.parametrize("persistent", [False, True])
def test_passes_at_once_of_one_loader_with_worker_processes_each_have_their_own_epoch(synthetic, persistent):
    here = Loader(open_split(synthetic, "train"), 2, 0)
    expected = [list(here), list(here), list(here)]
    loader = Loader(open_split(synthetic, "train"), 2, 1, "processes", persistent_workers=persistent)
    passed = list(zip(loader, loader, strict=True))
    assert_same([batch for batch, _ in passed], expected[0])
    assert_same([batch for _, batch in passed], expected[1])
    assert_same(list(loader), expected[2])


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
