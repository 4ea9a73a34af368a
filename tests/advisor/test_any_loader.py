"""advise: the bottleneck of loaders that are not ours is named, and remedies fit what was measured."""

import random
import time
from typing import Any

import pytest
import torch
from rejection import rejects
from rich.console import Console
from torch.utils.data import DataLoader, IterableDataset

from ocr.advisor import advise
from ocr.errors import ConfigError, DataError
from ocr.system import usable_cores

SLOW = 0.02


class Numbers:
    """A dataset that waits for each item."""

    def __init__(self, seconds: float = 0.0, noise: float = 0.0, count: int = 24) -> None:
        self.seconds, self.noise, self.count = seconds, noise, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((4,), index + self.noise * random.random())


def open_loader(dataset: Any, **settings: Any) -> DataLoader[Any]:
    return DataLoader(dataset, batch_size=4, **settings)


def test_a_slow_dataset_is_the_bottleneck_and_its_cache_the_cure():
    found = advise(open_loader(Numbers(SLOW)), lambda batch: None, items=3, show=False)
    assert found.bottleneck == "the dataset"
    assert found.advice.best is not None
    assert "cache" in found.advice.best.name
    names = {remedy.name for remedy in found.remedies}
    assert {"1 worker process", "1 thread", "cache, 1 thread"} <= names
    assert "workers that stay" not in names
    gains = {remedy.name: remedy.gain for remedy in found.remedies}
    assert gains["1 thread"] < gains[f"{2 * usable_cores()} worker processes"] < found.advice.best.gain


def test_a_slow_step_is_the_bottleneck_and_nothing_helps():
    found = advise(open_loader(Numbers()), lambda batch: time.sleep(10 * SLOW), items=3, show=False)
    assert found.bottleneck == "model"
    assert all(remedy.gain < 1.5 for remedy in found.remedies)


class ByBatch(Numbers):
    """The same, a batch of items at a time."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        time.sleep(self.seconds)
        return [torch.full((4,), float(index)) for index in indices]


@pytest.mark.slow
def test_a_dataset_that_waits_could_read_a_batch_at_a_time():
    found = advise(open_loader(Numbers(SLOW, noise=1.0)), items=3, show=False)
    gains = {remedy.name: remedy.gain for remedy in found.remedies}
    assert gains["batch-wise reading"] > 2
    assert gains["batch-wise reading"] > gains["1 thread"]


@pytest.mark.slow
def test_a_dataset_that_reads_batches_is_measured_as_torch_reads_it():
    found = advise(open_loader(ByBatch(SLOW, noise=1.0)), items=3, show=False)
    one_by_one = advise(open_loader(Numbers(SLOW, noise=1.0)), items=3, show=False)
    assert found.advice.present.later.epoch_seconds < one_by_one.advice.present.later.epoch_seconds / 2
    gains = {remedy.name: remedy.gain for remedy in found.remedies}
    assert "batch-wise reading" not in gains
    # Threads of our loader read item by item.
    assert gains["1 thread"] < 0.5


class Uneven(Numbers):
    """Every fourth item takes long."""

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.0 if index % 4 else self.seconds)
        return torch.zeros(1)


@pytest.mark.slow
def test_batches_further_ahead_help_where_items_take_long_now_and_then():
    loader = DataLoader(Uneven(4 * SLOW, count=48), batch_size=1, num_workers=1, persistent_workers=True)
    found = advise(loader, lambda batch: time.sleep(SLOW), items=48, show=False)
    (ahead,) = (remedy for remedy in found.remedies if remedy.name == "8 batches ahead")
    assert ahead.overrides == ("prefetch_factor=8",)
    assert ahead.gain > 1.02


@pytest.mark.slow
def test_workers_that_are_started_for_every_epoch_are_named_if_that_takes_longest():
    loader = open_loader(Numbers(count=8), num_workers=1, multiprocessing_context="spawn")
    found = advise(loader, items=2, show=False)
    assert found.bottleneck == "starting the workers"
    stay = next(remedy for remedy in found.remedies if remedy.name == "workers that stay")
    assert stay.gain > 2


@pytest.mark.slow
def test_random_items_are_not_to_be_cached():
    found = advise(open_loader(Numbers(SLOW, noise=1.0)), items=3, show=False)
    assert not [remedy for remedy in found.remedies if "cache" in remedy.name]


def test_every_remedy_is_tried_and_compared_with_its_prediction():
    steps: list[int] = []
    loader = open_loader(Numbers(count=8), num_workers=1, shuffle=True)
    found = advise(loader, lambda batch: steps.append(len(batch)), items=2, verify=True, show=False)
    verified = [name for name, _, _ in found.advice.verified]
    assert verified == ["present", *(remedy.name for remedy in found.remedies)]
    assert "workers that stay" in verified
    # Four steps to measure one, some to try workers, and three epochs of two batches of each.
    assert set(steps) == {4}
    assert len(steps) >= 4 + 3 * 2 * len(verified)
    assert found.advice.mean_error is not None


def test_the_advice_is_shown_on_the_screen_in_a_file_and_in_a_notebook(tmp_path, capsys):
    found = advise(open_loader(Numbers(count=5)), lambda batch: None, items=2)
    assert "Numbers" in capsys.readouterr().out
    found.show(Console(width=100))
    assert "5 items" in capsys.readouterr().out
    found.write(tmp_path / "advice.html")
    page = (tmp_path / "advice.html").read_text()
    assert "<svg" in page
    assert "5 items" in page
    assert "ocr train" not in page
    assert found._repr_html_().startswith("<iframe srcdoc=")
    assert "&lt;!doctype html&gt;" in found._repr_html_()


class Stream(IterableDataset[int]):
    def __init__(self, seconds: float, count: int = 40) -> None:
        self.seconds, self.count = seconds, count

    def __iter__(self) -> Any:
        for number in range(self.count):
            time.sleep(self.seconds)
            yield number


@pytest.mark.parametrize("wrap", [iter, lambda stream: DataLoader(stream, batch_size=None)])
def test_of_a_stream_or_any_iterable_waiting_and_computing_are_told_apart(wrap):
    found = advise(wrap(Stream(3 * SLOW)), lambda batch: time.sleep(SLOW), show=False)
    gains = {remedy.name: remedy.gain for remedy in found.remedies}
    assert gains["batches ahead"] > 1.1
    # A worker of torch's DataLoader does the same; more than one would repeat a stream that knows nothing of them.
    assert set(gains) - {"batches ahead"} == ({"1 worker process"} if wrap is not iter else set())
    assert found.bottleneck == "the loader"
    assert found.advice.unit == "batch"
    assert {span.what for span in found.advice.timeline} == {"wait", "compute"}


def test_what_is_advised_for_a_stream_is_tried_on_all_its_batches():
    seen: list[int] = []
    # As few as can be measured.
    loader = DataLoader(Stream(SLOW / 4, count=16), batch_size=None)
    found = advise(loader, seen.append, verify=True, show=False)
    assert found.advice.pages == 16
    assert [name for name, _, _ in found.advice.verified] == ["present", *(each.name for each in found.remedies)]
    # Eight steps to measure one, then three epochs of each.
    assert sorted(seen[8:]) == sorted(list(range(16)) * 3 * len(found.advice.verified))


def test_of_a_stream_that_is_read_ahead_nothing_is_promised():
    loader = DataLoader(Stream(SLOW), batch_size=None, num_workers=1)
    found = advise(loader, lambda batch: time.sleep(4 * SLOW), show=False)
    assert (found.remedies, found.bottleneck) == ([], "model")


def test_workers_make_batches_of_a_stream_ahead_however_short_the_step_is():
    found = advise(DataLoader(Stream(0.0), batch_size=None, num_workers=1), show=False)
    assert found.remedies == []
    assert found.advice.workers == 1


def test_loaders_that_cannot_be_measured_are_refused():
    with rejects(DataError, setting="loader"):
        advise(iter(Stream(0.0, count=3)), show=False)
    with rejects(ConfigError, setting="verify", value=True):
        advise(iter(Stream(0.0)), verify=True, show=False)
    with rejects(ConfigError, setting="batch_size"):
        advise(DataLoader(Numbers(), batch_size=None), show=False)
    with rejects(ConfigError, setting="items", value=0):
        advise(open_loader(Numbers()), items=0, show=False)
    for settings in ({"batch_size": 25, "drop_last": True}, {"batch_sampler": []}):
        empty: Any = DataLoader(Numbers(), **settings)
        with rejects(DataError, setting="loader", value=empty):
            advise(empty, show=False)
    numbers = iter(range(8))
    with rejects(ConfigError, setting="sampler", value=numbers):
        advise(open_loader(Numbers(), sampler=numbers), show=False)
    with rejects(ConfigError, setting="loader", value=3):
        advise(3, show=False)  # type: ignore[arg-type]
    with rejects(ConfigError, setting="step", value=3):
        advise(open_loader(Numbers()), 3, show=False)  # type: ignore[arg-type]


class Named:
    """A dataset whose items have names, and which does not know how many it has."""

    def __getitem__(self, name: str) -> torch.Tensor:
        return {"a": torch.zeros(1), "b": torch.ones(1)}[name]


def test_a_sampler_says_which_items_there_are_and_is_not_replaced_by_the_order_of_our_loader():
    named: Any = Named()
    found = advise(DataLoader(named, batch_size=2, sampler=["a", "b", "a", "b"]), items=2, show=False)
    assert set(found.advice.left_out) == {"ocr.Loader"}
    assert found.advice.pages == 4
    assert {remedy.name for remedy in found.remedies} >= {"1 worker process"}
    assert not [remedy.name for remedy in found.remedies if "thread" in remedy.name]
