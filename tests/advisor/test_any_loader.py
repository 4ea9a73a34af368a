"""advise(loader, step): a loader of somebody else, its bottleneck, and what was tried."""

import os
import random
import time
from typing import Any

import pytest
import torch
from rejection import rejects
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

from ocr.advisor import advise
from ocr.errors import ConfigError
from ocr.system import usable_cores

SLOW = 0.01


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """So many seconds per configuration; whether the figures are right is for the benchmark."""
    monkeypatch.setattr("ocr.advisor.any_loader.SECONDS", 0.02)
    monkeypatch.setattr("ocr.advisor.any_loader.ITEM_SECONDS", 0.02)


class Numbers:
    """A dataset that waits for each item."""

    def __init__(self, seconds: float = 0.0, noise: float = 0.0, count: int = 12) -> None:
        self.seconds, self.noise, self.count = seconds, noise, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((4,), index + self.noise * random.random())


class OnlyHere(Numbers):
    """A dataset that no other process can read."""

    def __init__(self) -> None:
        super().__init__()
        self.process = os.getpid()

    def __getitem__(self, index: int) -> torch.Tensor:
        if os.getpid() != self.process:
            raise RuntimeError("only here")
        return super().__getitem__(index)


class Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        for number in range(8):
            time.sleep(SLOW)
            yield number


def names(found) -> set[str]:
    return {row.change.name for row in found.rows}


def test_a_slow_dataset_is_the_bottleneck_and_a_cache_removes_it():
    found = advise(DataLoader(Numbers(SLOW), batch_size=4), lambda batch: None)
    assert found.bottleneck == "loader"
    assert {"cache", "1 thread", "1 worker process", f"{2 * usable_cores()} worker processes"} <= names(found)
    assert next(row for row in found.rows if row.change.name == "cache") in found.useful
    assert found.cause != found.step_name
    assert found.pages == 12


def test_a_slow_step_is_the_bottleneck():
    found = advise(DataLoader(Numbers(), batch_size=12), lambda batch: time.sleep(10 * SLOW))
    assert (found.bottleneck, found.cause) == ("model", "the step")
    assert found.step_seconds >= 9 * SLOW


def test_items_that_change_are_not_to_be_cached():
    found = advise(DataLoader(Numbers(noise=1.0), batch_size=4))
    assert "cache" in found.not_tried
    assert "cache" not in names(found)


def test_a_sampler_of_its_own_rules_out_a_loader_that_takes_every_item():
    sampler = WeightedRandomSampler([1.0] * 12, 12)
    found = advise(DataLoader(Numbers(), batch_size=4, sampler=sampler))
    assert "ocr.Loader" in found.not_tried
    assert not {name for name in names(found) if "thread" in name}


def test_workers_that_are_started_in_every_epoch_could_stay():
    found = advise(DataLoader(Numbers(), batch_size=4, num_workers=1))
    stay = next(row for row in found.rows if row.change.name == "workers that stay")
    assert stay.gain > 2
    assert "8 batches ahead" in names(found)


def test_batches_of_a_stream_could_be_made_in_a_thread():
    found = advise(DataLoader(Stream(), batch_size=2), lambda batch: time.sleep(2 * SLOW))
    (row,) = found.rows
    assert row.gain > 1.2
    assert found.batches == 4
    assert "workers" in found.not_tried


def test_whole_epochs_verify_it():
    found = advise(DataLoader(Numbers(SLOW), batch_size=4), verify=True)
    assert found.verified[0][0] == "present"


def test_it_prints_the_verdict():
    printed = str(advise(DataLoader(Numbers(), batch_size=4)))
    assert printed.lstrip().startswith("The loader is the bottleneck")
    assert "12 items" in printed


def test_a_candidate_that_breaks_leaves_the_others():
    found = advise(DataLoader(OnlyHere(), batch_size=4))
    assert "only here" in found.not_tried["1 worker process"]
    assert "1 thread" in names(found)


def test_nothing_more_is_started_after_the_time_is_up():
    found = advise(DataLoader(Numbers(), batch_size=4), seconds=0.0)
    assert not found.rows
    assert {"1 thread", "cache"} <= found.not_tried.keys()


@pytest.mark.parametrize("loader", [5, iter([1])])
def test_what_cannot_be_run_twice_is_refused(loader):
    with rejects(ConfigError, setting="loader", value=loader):
        advise(loader)


def test_a_step_must_be_callable():
    with rejects(ConfigError, setting="step", value=3):
        advise([[1]], 3)
