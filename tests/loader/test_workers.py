"""workers: threads that make batches in order, name the page they fail on or hang at, and end with their pass."""

import _thread
import gc
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pages import SIZE, open_split, plain
from rejection import rejects
from sameness import assert_same

from ocr.datasets import DBTransforms
from ocr.errors import ImageError, StageError
from ocr.loader import Loader, loader, workers
from ocr.loader.buffers import PageBatches
from ocr.loader.workers import Schedule, WorkerPool
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage

# -- the schedule


def no_alarm(seconds: float) -> None:
    pytest.fail(f"waited for {seconds} s")


def test_batches_are_taken_in_order_whichever_is_done_first():
    schedule = Schedule(iter([[0], [1]]), 2, epoch=0)
    opened = [schedule.next_task()[0] for _ in range(2)]
    for pending in reversed(opened):
        schedule.finish(pending)
    assert [schedule.take(1, no_alarm) for _ in range(3)] == [*opened, None]
    assert [pending.indices for pending in opened] == [[0], [1]]


class MustWaitError(Exception):
    """Raised instead of waiting."""


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_no_batch_is_opened_while_as_many_as_allowed_are_not_taken(ahead, monkeypatch):
    schedule = Schedule(iter([[number] for number in range(9)]), ahead, epoch=0)

    def refuse() -> None:
        raise MustWaitError

    monkeypatch.setattr(schedule._change, "wait", refuse)
    for _ in range(ahead):
        schedule.finish(schedule.next_task()[0])
    for number in range(3):
        with pytest.raises(MustWaitError):
            schedule.next_task()
        assert schedule.take(1, no_alarm).indices == [number]
        schedule.finish(schedule.next_task()[0])


def test_workers_leave_when_nothing_is_left_although_batches_are_not_taken_yet():
    schedule = Schedule(iter([[7, 8]]), 2, epoch=0)
    pending, _ = schedule.next_task()
    assert [schedule.next_task() for _ in range(2)] == [(pending, 1), None]


def test_an_error_of_the_plan_comes_after_the_batches_before_it():
    def plan() -> Iterator[list[int]]:
        yield [0]
        raise OSError("shard lost")

    schedule = Schedule(plan(), 3, epoch=0)
    first, _ = schedule.next_task()
    assert schedule.next_task() is None
    schedule.finish(first)
    assert schedule.take(1, no_alarm) is first
    assert str(schedule.take(1, no_alarm).error) == "shard lost"
    assert schedule.take(1, no_alarm) is None


def test_a_stopped_schedule_gives_out_nothing():
    schedule = Schedule(iter([[0, 1], [2]]), 2, epoch=0)
    schedule.next_task()
    schedule.stop()
    assert schedule.next_task() is None


def test_a_long_wait_is_reported():
    schedule = Schedule(iter([[0]]), 1, epoch=0)
    pending, _ = schedule.next_task()
    waited = []

    def alarm(seconds: float) -> None:
        waited.append(seconds)
        pending.done = True

    assert schedule.take(0.01, alarm) is pending
    assert len(waited) == 1


# -- pages that fail


@dataclass(frozen=True)
class Fails(FixedStage):
    """Raises at one page."""

    name: str

    def __call__(self, sample: Sample) -> Sample:
        if sample.filename == self.name:
            raise ZeroDivisionError("no way")
        return sample


def test_an_error_in_a_worker_reaches_the_user_with_the_name_of_the_page(synthetic):
    name = open_split(synthetic, "val").source.names[4]
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Fails(name)]))
    passed = iter(Loader(dataset, 2, 2))
    next(passed), next(passed)
    with rejects(StageError, value=4, path=name):
        next(passed)
    assert not running()


def test_a_broken_page_stops_the_loader_or_is_left_out_of_its_batch(dataset_folder):
    broken = sorted((dataset_folder / "images" / "val").iterdir())[1]
    broken.write_bytes(b"nothing")
    for count in (0, 2):
        with rejects(ImageError, value=b"nothing", path=broken):
            list(Loader(open_split(dataset_folder, "val"), 3, count))
        dataset = open_split(dataset_folder, "val", on_bad_sample="skip")
        batches = list(Loader(dataset, 3, count))
        assert [len(batch["images"]) for batch in batches] == [2, 3]
        assert_same(batches, plain(dataset))
        assert list(Loader(dataset, 1, count))[1] is None


# -- threads that end


def running() -> int:
    """Worker pools with a thread that has not ended."""
    return sum(pool.is_running() for pool in workers._pools)


def system_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def test_an_abandoned_or_interrupted_pass_leaves_no_thread(synthetic):
    dataset = open_split(synthetic, "train")
    list(Loader(dataset, 1, 3))
    before = system_threads()
    for _ in Loader(dataset, 1, 3):
        assert running()
        break
    gc.collect()
    assert not running()

    def interrupted() -> None:
        for _ in Loader(dataset, 1, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert not running()
    # The system may take a moment to bury a thread.
    deadline = time.monotonic() + 600
    while system_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert system_threads() <= before


@dataclass(frozen=True)
class PressesCtrlC(FixedStage):
    """Interrupts the program from a worker, and lets nothing more through."""

    gate: Any

    def __call__(self, sample: Sample) -> Sample:
        if sample.index == 2:
            _thread.interrupt_main()
            self.gate.wait()
        return sample


def test_ctrl_c_while_a_batch_is_awaited_ends_the_pass_and_its_threads(synthetic):
    gate = threading.Event()
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), PressesCtrlC(gate)]))
    threading.Timer(0.5, gate.set).start()
    made = Loader(dataset, 1, 2)
    with pytest.raises(KeyboardInterrupt):
        list(made)
    gc.collect()
    assert gate.is_set()
    assert not running()
    assert made.state_dict()["batches"] <= 2


def test_a_program_ends_with_a_pass_unfinished(synthetic):
    code = f"""
import sys
from pathlib import Path
sys.path += {sys.path!r}
from pages import open_split
from ocr.loader import Loader
batches = iter(Loader(open_split(Path({str(synthetic)!r}), "train"), 1, 2, batches_ahead=4))
next(batches)
print("left")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stdout) == (0, "left\n"), done.stderr


@dataclass(frozen=True)
class Waits(FixedStage):
    """Hangs until it is let go."""

    gate: Any

    def __call__(self, sample: Sample) -> Sample:
        self.gate.wait()
        return sample


def test_a_stuck_worker_is_reported_with_the_page_it_is_at(synthetic, monkeypatch, caplog):
    monkeypatch.setattr(loader, "REPORT_SECONDS", 0.1)
    gate = threading.Event()
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Waits(gate)]))
    threading.Timer(0.5, gate.set).start()
    with caplog.at_level(logging.WARNING):
        assert len(list(Loader(dataset, 6, 1))) == 1
    assert f"sample 0 {dataset.source.names[0]}" in caplog.text


def test_a_worker_that_does_not_stop_is_named_and_not_waited_for(synthetic, monkeypatch, caplog):
    monkeypatch.setattr(workers, "JOIN_SECONDS", 0.1)
    gate = threading.Event()
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Waits(gate)]))
    at_work = WorkerPool(iter([[0]]), PageBatches(dataset.path, None), 1, 1, 10.0, epoch=0)
    while not at_work._busy:
        pass
    at_work.close()
    assert f"sample 0 {dataset.source.names[0]}" in caplog.text
    gate.set()
