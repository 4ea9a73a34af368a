"""The traced loader: the same batches as any other loader, and what every thread did for them."""

import itertools
import time

import pytest
import torch

from ocr.advisor.measure.epoch_trace import MAX_SECONDS, TracedLoader, trace_batches, trace_later_epoch
from ocr.datasets import DBTransforms, OCRDataset
from ocr.loader.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomFlip, RandomRotate

RANDOM = (RandomFlip(), RandomRotate(10), ColourJitter())


def open_dataset(data, folder, *stages, shape="square", **settings):
    transform = DBTransforms([Letterbox(64, shape=shape), *stages, Normalize()], normalize="device")
    return OCRDataset(
        data / "images/train", data / "jsons/train.json", transform, seed=5, cache_folder=folder, **settings
    )


@pytest.mark.parametrize(
    ("workers", "cache", "stages", "shape"),
    [
        (0, "off", (), "square"),
        (2, "off", RANDOM, "page"),
        (0, "prefix", RANDOM, "square"),
        (2, "prefix", (), "square"),
        (0, "auto", RANDOM, "page"),
        (2, "auto", (), "square"),
        (2, "auto", RANDOM, "square"),
    ],
)
def test_traced_batches_are_those_of_the_loader(synthetic, tmp_path, workers, cache, stages, shape):
    settings = {"batch_size": 3, "num_workers": workers, "shuffle": bool(stages), "device": "cpu"}
    plain = Loader(open_dataset(synthetic, tmp_path / "a", *stages, shape=shape, cache=cache), **settings)
    traced = TracedLoader(open_dataset(synthetic, tmp_path / "b", *stages, shape=shape, cache=cache), **settings)
    for _ in range(2):  # The second epoch comes from the cache, if there is one.
        for one, other in zip(plain, traced, strict=True):
            assert one["image_filename"] == other["image_filename"]
            for name in ("images", "prob_maps", "thresh_maps"):
                assert torch.equal(one[name], other[name])


def test_every_stage_is_noted_in_the_thread_that_ran_it(synthetic, tmp_path):
    loader = TracedLoader(open_dataset(synthetic, tmp_path, *RANDOM), 2, 2, shuffle=True, device="cpu")
    trace = trace_batches(loader, lambda batch: time.sleep(0.02), count=4)
    by_thread = {}
    for span in trace.spans:
        by_thread.setdefault(span.thread, []).append(span)
    assert set(by_thread) <= {"model", "worker 1", "worker 2"}
    assert [span.what for span in by_thread.pop("model")] == ["wait", "step"] * 4
    done = [span.what for spans in by_thread.values() for span in spans]
    stages = ("source", "decode", "Letterbox", "random stages", "targets")
    assert {what: done.count(what) for what in stages} == dict.fromkeys(stages, 8)
    # A page that the draws leave alone is not warped.
    assert done.count("warp into the batch") + done.count("write into the batch") == 8
    assert done.count("warp into the batch") > 0
    assert done.count("device") == 4
    kinds = {span.what: span.kind for spans in by_thread.values() for span in spans}
    assert (kinds["source"], kinds["random stages"], kinds["targets"]) == ("source", "random", "targets")
    for spans in by_thread.values():
        for one, after in itertools.pairwise(spans):
            assert one.end_s <= after.start_s
    end = max(span.end_s for span in trace.spans)
    assert all(0 <= span.start_s <= span.end_s for span in trace.spans)
    assert 0 <= trace.memory[0][0] < trace.memory[-1][0] < end + 5
    assert all(size > 10e6 for _, size in trace.memory)


def test_a_later_epoch_reads_what_the_first_has_kept(synthetic, tmp_path):
    dataset = open_dataset(synthetic, tmp_path, *RANDOM, cache="prefix")
    trace = trace_later_epoch(TracedLoader(dataset, 2, 1, shuffle=True), None)
    done = [span.what for span in trace.spans if span.thread != "model"]
    assert done.count("read what is kept") == 8
    assert "page, into the cache" not in done


def test_without_workers_everything_happens_in_the_thread_of_the_model(synthetic, tmp_path):
    trace = trace_batches(TracedLoader(open_dataset(synthetic, tmp_path), 4, 0), None, count=9)
    assert {span.thread for span in trace.spans} == {"model"}
    assert [span.what for span in trace.spans].count("decode") == 8


def test_a_step_that_takes_too_long_is_not_traced(synthetic, tmp_path):
    loader = TracedLoader(open_dataset(synthetic, tmp_path), 4, 0)
    assert trace_later_epoch(loader, None, step_seconds=MAX_SECONDS) == ([], [])
