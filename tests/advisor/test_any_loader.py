"""advise: the bottleneck of loaders that are not ours is named, and remedies fit what was measured."""

import random
import time
from typing import Any

import pytest
import torch
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
    assert "The model is the bottleneck" in found.sentence
    assert all(remedy.gain < 1.5 for remedy in found.remedies)


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
    # Four steps to measure one, then three epochs of two batches of each.
    assert steps == [4] * (4 + 3 * 2 * len(verified))
    assert found.advice.mean_error is not None


def test_the_advice_is_shown_on_the_screen_in_a_file_and_in_a_notebook(tmp_path, capsys):
    found = advise(open_loader(Numbers(count=5)), lambda batch: None, items=2)
    assert "One item of Numbers" in capsys.readouterr().out
    found.show(Console(width=100))
    assert "An epoch of 5 items" in capsys.readouterr().out
    found.write(tmp_path / "advice.html")
    page = (tmp_path / "advice.html").read_text()
    assert "CPU milliseconds per item" in page
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
    (ahead,) = found.remedies
    assert ahead.name == "batches ahead"
    assert ahead.gain > 1.1
    assert found.bottleneck == "the loader"
    assert "batch" in found.sentence
    assert {span.what for span in found.advice.timeline} == {"wait", "compute"}


def test_of_a_stream_that_is_read_ahead_nothing_is_promised():
    loader = DataLoader(Stream(SLOW), batch_size=None, num_workers=1)
    found = advise(loader, lambda batch: time.sleep(4 * SLOW), show=False)
    assert (found.remedies, found.bottleneck) == ([], "model")


def test_loaders_that_cannot_be_measured_are_refused_with_the_cure():
    with pytest.raises(DataError, match="generator gives fewer than 16 batches"):
        advise(iter(Stream(0.0, count=3)), show=False)
    with pytest.raises(ConfigError, match="batch_size=None"):
        advise(DataLoader(Numbers(), batch_size=None), show=False)
    with pytest.raises(ConfigError, match="items=0"):
        advise(open_loader(Numbers()), items=0, show=False)
