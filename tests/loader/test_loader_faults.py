"""What goes wrong in a pass: errors name their page, and nothing is left running."""

import gc
import logging
import multiprocessing
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rejection import rejects
from sameness import assert_same
from test_loader import SIZE, open_split, plain

from ocr.datasets import DBTransforms
from ocr.errors import ConfigError, ImageError, StageError
from ocr.loader import Loader, loader, worker_pool
from ocr.loader.batch_maker import choose_maker
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage


def own_threads() -> int:
    """Worker pools whose threads have not ended; the system may take a moment to bury a thread."""
    return sum(pool.is_running() for pool in worker_pool._pools)


def system_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@dataclass(frozen=True)
class Fails(FixedStage):
    """Raises at one page."""

    name: str

    def __call__(self, sample: Sample) -> Sample:
        if sample.filename == self.name:
            raise ZeroDivisionError("no way")
        return sample


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_an_error_in_a_worker_reaches_the_user_with_the_name_of_the_page(synthetic, engine):
    name = open_split(synthetic, "val").source.entries[4].filename
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Fails(name)]))
    passed = iter(Loader(dataset, 2, 2, engine))
    next(passed), next(passed)
    with pytest.raises(StageError) as caught:
        next(passed)
    assert name in str(caught.value)
    # Torch makes the error of a worker process again from its text alone.
    assert (caught.value.value, caught.value.path) == ((4, name) if engine == "threads" else (None, None))
    assert not own_threads()
    assert not multiprocessing.active_children()


def test_a_broken_page_stops_the_loader_or_is_left_out_of_its_batch(dataset_folder):
    broken = sorted((dataset_folder / "images" / "val").iterdir())[1]
    broken.write_bytes(b"nothing")
    for workers in (0, 2):
        with rejects(ImageError, value=b"nothing", path=broken):
            list(Loader(open_split(dataset_folder, "val"), 3, workers))
        dataset = open_split(dataset_folder, "val", on_bad_sample="skip")
        batches = list(Loader(dataset, 3, workers))
        assert [len(batch["images"]) for batch in batches] == [2, 3]
        assert_same(batches, plain(dataset))
        assert list(Loader(dataset, 1, workers))[1] is None


def test_pages_of_two_sizes_in_a_batch_are_refused_with_the_cure(synthetic):
    with rejects(ConfigError, setting="transforms.letterbox"):
        list(Loader(open_split(synthetic, "val", DBTransforms([])), 3, 2))
    single = list(Loader(open_split(synthetic, "val", DBTransforms([])), 1, 2))
    assert len({batch["images"].shape for batch in single}) > 1


def test_an_abandoned_or_interrupted_pass_leaves_no_thread_and_no_process(synthetic):
    dataset = open_split(synthetic, "train")
    list(Loader(dataset, 1, 3))
    before = system_threads()
    for _ in Loader(dataset, 1, 3):
        assert own_threads()
        break
    gc.collect()
    assert not own_threads()
    deadline = time.monotonic() + 600
    while system_threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert system_threads() <= before

    def interrupted() -> None:
        for _ in Loader(dataset, 1, 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert not own_threads()
    for _ in Loader(dataset, 1, 2, "processes", multiprocessing_context="fork"):
        break
    gc.collect()
    assert not multiprocessing.active_children()


def test_a_program_ends_with_a_pass_unfinished(synthetic):
    code = f"""
import sys
from pathlib import Path
sys.path += {sys.path!r}
from test_loader import Loader, open_split
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
    assert f"sample 0 {dataset.source.entries[0].filename}" in caplog.text


def test_a_worker_that_does_not_stop_is_named_and_not_waited_for(synthetic, monkeypatch, caplog):
    monkeypatch.setattr(worker_pool, "JOIN_SECONDS", 0.1)
    gate = threading.Event()
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Waits(gate)]))
    at_work = worker_pool.WorkerPool(iter([[0]]), choose_maker(dataset, None, None), 1, 1, 10.0)
    while not at_work._busy:
        pass
    at_work.close()
    assert f"sample 0 {dataset.source.entries[0].filename}" in caplog.text
    gate.set()
