"""processes: worker processes of any kind make the samples of the threads, share the cache, and end with their pass."""

import gc
import multiprocessing
from dataclasses import dataclass

import pytest
from pages import SIZE, open_split, plain
from sameness import assert_same

from ocr.datasets import DBTransforms
from ocr.errors import StageError
from ocr.loader import Loader
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage


@pytest.mark.parametrize(
    ("method", "workers"),
    [("fork", 2), ("spawn", 1), pytest.param("forkserver", 2, marks=pytest.mark.slow)],
)
def test_worker_processes_of_any_kind_share_the_cache_with_threads(synthetic, tmp_path, method, workers):
    dataset = open_split(synthetic, "val", cache="auto", cache_folder=tmp_path)
    expected = plain(open_split(synthetic, "val"))
    processes = Loader(dataset, 3, workers, "processes", multiprocessing_context=method)
    passes = [processes, Loader(dataset, 3, 2), *([processes] if method == "fork" else [])]
    for number, loader in enumerate(passes):
        assert_same(list(loader), expected)
        assert dataset.ledger.totals()["cache_hits"] == (len(dataset) if number else 0)


@pytest.mark.parametrize("persistent", [False, True])
def test_passes_at_once_of_one_loader_each_have_their_own_epoch(synthetic, persistent):
    here = Loader(open_split(synthetic, "train"), 2, 0)
    expected = [list(here), list(here), list(here)]
    loader = Loader(open_split(synthetic, "train"), 2, 1, "processes", persistent_workers=persistent)
    passed = list(zip(loader, loader, strict=True))
    assert_same([batch for batch, _ in passed], expected[0])
    assert_same([batch for _, batch in passed], expected[1])
    assert_same(list(loader), expected[2])


@dataclass(frozen=True)
class Fails(FixedStage):
    """Raises at every page."""

    def __call__(self, sample: Sample) -> Sample:
        raise ZeroDivisionError("no way")


def test_an_error_in_a_worker_process_names_the_page_and_leaves_no_process(synthetic):
    dataset = open_split(synthetic, "val", DBTransforms([Letterbox(SIZE), Fails()]))
    # Torch makes the error of a worker process again, from its text alone.
    with pytest.raises(StageError) as caught:
        next(iter(Loader(dataset, 2, 2, "processes")))
    assert dataset.source.names[0] in str(caught.value)
    assert not multiprocessing.active_children()


def test_an_abandoned_pass_leaves_no_process(synthetic):
    for _ in Loader(open_split(synthetic, "train"), 1, 2, "processes", multiprocessing_context="fork"):
        break
    gc.collect()
    assert not multiprocessing.active_children()
