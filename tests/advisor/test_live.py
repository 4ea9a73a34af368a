"""During training: a model that waits for data is told what would help, once, and one that does not is left alone."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from benchmarks.artificial import Sleep, open_pages
from ocr.advisor.live import LiveAdvice, after_the_cut, best_remedy
from ocr.advisor.model.queueing import GIL, Consumer, Demand, Pipeline
from ocr.datasets import DBTransforms, OCRDataset
from ocr.loader import Loader
from ocr.pipeline.cut import Cut
from ocr.pipeline.prefix import Letterbox
from ocr.training.stopwatch import Stopwatch


def end_epoch(advice: LiveAdvice, dataset: OCRDataset, seconds: float, waited: float, first_wait: float = 0.0) -> None:
    """Call the callback as a trainer does after an epoch of this length."""
    module = SimpleNamespace(stopwatch=Stopwatch())
    trainer = SimpleNamespace(
        datamodule=SimpleNamespace(datasets={"train": dataset}),
        train_dataloader=Loader(dataset, 2, 1),
        num_training_batches=4,
        is_global_zero=True,
    )
    advice.on_train_epoch_start(trainer, module)
    advice._started -= seconds
    for index, until_now in enumerate((first_wait, waited)):
        module.stopwatch.seconds["data wait"] = until_now
        advice.on_train_batch_start(trainer, module, None, index)
    advice.on_train_epoch_end(trainer, module)


def advice_to(stream: io.StringIO) -> LiveAdvice:
    return LiveAdvice(Console(file=stream, width=200), pages=2)


def test_a_model_that_waits_is_told_what_would_help_once(synthetic):
    advice, told = advice_to(out := io.StringIO()), []
    dataset = open_pages(synthetic, Sleep(0.3))
    for seconds, waited in ((2500.0, 100.0), (2500.0, 2499.9), (2500.0, 2499.9)):
        end_epoch(advice, dataset, seconds, waited)
        told.append(len(out.getvalue().splitlines()))
    assert told == [0, 1, 1]
    assert "100%" in out.getvalue()
    # Both would do: a cache makes the sleeping stage needless, more workers sleep at the same time.
    assert "data.cache=auto" in out.getvalue()
    assert "ocr advise" in out.getvalue()


def test_pages_that_are_skipped_are_not_measured(dataset_folder):
    pages = sorted((dataset_folder / "images" / "train").iterdir())
    advice = advice_to(out := io.StringIO())
    for bad in (pages[:1], pages):
        for page in bad:
            page.write_bytes(b"nothing")
        dataset = open_pages(dataset_folder, Sleep(0.1))
        dataset.on_bad_sample = "skip"
        end_epoch(advice, dataset, 2500.0, 2400.0)
        assert len(out.getvalue().splitlines()) == 1
        advice.advised = False


def test_waiting_for_the_first_batch_is_named_as_starting(synthetic):
    advice = advice_to(out := io.StringIO())
    end_epoch(advice, open_pages(synthetic), seconds=2500.0, waited=2400.0, first_wait=2300.0)
    assert "2300.0 s" in out.getvalue()
    assert not advice.advised


def test_an_epoch_that_fills_the_cache_is_named_as_that_and_no_reason_to_advise(synthetic, tmp_path):
    advice = advice_to(out := io.StringIO())
    dataset = OCRDataset(
        synthetic / "images" / "train",
        synthetic / "jsons" / "train.json",
        DBTransforms([Letterbox(64)], normalize="device"),
        cache="prefix",
        cache_folder=tmp_path,
    )
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        assert all(dataset[index] for index in range(len(dataset)))
        end_epoch(advice, dataset, seconds=2500.0, waited=2400.0)
        assert len(out.getvalue().splitlines()) == epoch + 1
        assert ("ocr advise" in out.getvalue()) == bool(epoch)
        assert advice.advised == bool(epoch)


@pytest.mark.parametrize(
    ("demand", "step", "workers", "words"),
    [
        (Demand("decode", 0.01, 0.01, kind="fixed"), 0.0, 1, "data.cache=auto"),
        (Demand("Warp", 0.01, 0.0, kind="random"), 0.0, 1, "data.num_workers="),
        (Demand("Warp", 0.01, 0.01, 0.01, GIL, kind="random"), 0.0, 2, "data.engine=processes"),
        (Demand("Warp", 0.01, 0.01, kind="random"), 1.0, 2, "40 ms"),
    ],
)
def test_what_the_model_of_the_pipeline_ranks_first_is_named(synthetic, monkeypatch, demand, step, workers, words):
    monkeypatch.setattr("ocr.advisor.live.usable_cores", lambda: 2)
    dataset = open_pages(synthetic)
    line = Pipeline((demand, Demand("slot", 0.0001, 0.0001)), Consumer(step), 64, 8, workers, 2)
    assert words in best_remedy(line, dataset)


def test_cached_pages_need_what_is_behind_the_cut():
    kinds = ("source", "fixed", "random", "targets", "batch")
    demands = [Demand(kind, 1, 1, kind=kind) for kind in kinds]
    assert [one.name for one in after_the_cut(demands, Cut(page=True))] == ["random", "targets", "batch"]
    assert [one.name for one in after_the_cut(demands, Cut(page=True, maps=True))] == ["random", "batch"]
    assert len(after_the_cut(demands, Cut())) == 5
