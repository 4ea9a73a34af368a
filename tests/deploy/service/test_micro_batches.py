"""Micro-batches: which pages share a call of the model, and who gets its errors."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from rejection import rejects
from service_client import PATIENCE_SECONDS, eventually

from ocr.deploy.service.worker import MicroBatches
from ocr.errors import ConfigError


class Recorder:
    """A model that gives each page its first pixel, and can be held back."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []
        self.open, self.reached = threading.Event(), threading.Event()
        self.open.set()

    def __call__(self, pages_bhwc: np.ndarray) -> np.ndarray:
        self.calls.append(pages_bhwc.shape[:3])
        self.reached.set()
        assert self.open.wait(PATIENCE_SECONDS)
        if (pages_bhwc == 255).all(axis=(1, 2, 3)).any():
            raise MemoryError("too much")
        return pages_bhwc[..., 0].astype(np.float32)


def pages(value: int, count: int = 1, height: int = 64) -> np.ndarray:
    return np.full((count, height, 32, 3), value, dtype=np.uint8)


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def start(recorder):
    started = []

    def make(**options):
        started.append(MicroBatches(recorder, **options))
        return started[-1]

    yield make
    recorder.open.set()
    for batches in started:
        batches.close()
        assert not batches.is_alive


def call_together(batches: MicroBatches, recorder: Recorder, calls: list[np.ndarray]) -> list:
    """The results of calls that all wait while the model is busy with a page before them."""
    recorder.open.clear()
    with ThreadPoolExecutor(len(calls) + 1) as threads:
        first = threads.submit(batches, pages(7))
        assert recorder.reached.wait(PATIENCE_SECONDS)
        waiting = []
        for number, given in enumerate(calls, 1):
            waiting.append(threads.submit(batches, given))
            eventually(lambda number=number: len(batches._calls) == number)
        recorder.open.set()
        assert first.result().max() == 7
        return [one.exception() or one.result() for one in waiting]


def test_pages_of_one_size_share_a_call_and_each_gets_its_own_map(start, recorder):
    told = []
    batches = start(batch_size=8, wait_seconds=0, on_batch=told.append)
    found = call_together(batches, recorder, [pages(value) for value in (1, 2, 3)])
    assert [one.max() for one in found] == [1, 2, 3]
    assert all(one.shape == (1, 64, 32) for one in found)
    assert recorder.calls == [(1, 64, 32), (3, 64, 32)]
    assert told == [1, 3]


def test_pages_of_other_sizes_have_a_call_of_their_own_oldest_first(start, recorder):
    batches = start(batch_size=8, wait_seconds=0)
    call_together(batches, recorder, [pages(1, height=96), pages(2), pages(3, height=96)])
    assert recorder.calls[1:] == [(2, 96, 32), (1, 64, 32)]


def test_a_batch_has_at_most_so_many_pages_unless_one_call_brings_more(start, recorder):
    batches = start(batch_size=3, wait_seconds=0)
    found = call_together(batches, recorder, [pages(1, 2), pages(2, 2), pages(3), pages(4, 5)])
    assert [call[0] for call in recorder.calls[1:]] == [3, 2, 5]
    assert [len(one) for one in found] == [2, 2, 1, 5]
    assert [one.min() for one in found] == [1, 2, 3, 4]


def test_a_full_batch_does_not_wait_for_more(start, recorder):
    batches = start(batch_size=2, wait_seconds=PATIENCE_SECONDS)
    with ThreadPoolExecutor(2) as threads:
        assert [one.max() for one in threads.map(batches, [pages(1), pages(2)])] == [1, 2]
    assert recorder.calls == [(2, 64, 32)]


def test_an_error_of_the_model_reaches_all_who_wait_for_it_and_the_next_call_works(start, recorder):
    batches = start(batch_size=8, wait_seconds=0)
    found = call_together(batches, recorder, [pages(1), pages(255)])
    assert [type(one) for one in found] == [MemoryError, MemoryError]
    assert batches(pages(9)).max() == 9


def test_the_end_answers_those_who_wait_and_refuses_others(recorder):
    batches = MicroBatches(recorder, batch_size=8, wait_seconds=PATIENCE_SECONDS)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(batches, pages(5))
        eventually(lambda: bool(batches._calls))
        batches.close()
        assert waiting.result().max() == 5
    assert not batches.is_alive
    with pytest.raises(RuntimeError, match="had ended"):
        batches(pages(1))


@pytest.mark.parametrize(("setting", "value"), [("batch_size", 0), ("wait_seconds", -1)])
def test_settings_that_cannot_work_are_refused(recorder, setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        MicroBatches(recorder, **{setting: value})
