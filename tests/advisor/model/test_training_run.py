"""A whole run, with numbers worked out by hand."""

import pytest

from ocr.advisor.model.queueing import Consumer, Demand, Pipeline
from ocr.advisor.model.training_run import TrainingRun

LINE = Pipeline((Demand("Warp", 0.004, 0.004, kind="random"),), Consumer(1.0), 160, 16, workers=2, cores=2)


def test_a_run_is_its_first_epoch_the_later_ones_and_the_validations():
    # Ten steps of 1 s, and 0.032 s for the first batch. Compiling takes 30 s once.
    later = LINE.predict()
    first = Pipeline(LINE.demands, LINE.consumer, 160, 16, 2, 2, start_seconds=30.0).predict()
    assert TrainingRun(5, 2, 4.0).seconds(first, later) == pytest.approx(30 + 5 * 10.032 + 2 * 4)


def test_smaller_pages_are_loaded_faster_but_read_and_decoded_as_before():
    kinds = {"source": 0.001, "fixed": 0.002, "random": 0.004, "targets": 0.008, "": 0.016}
    demands = tuple(Demand(kind, seconds, seconds, kind=kind) for kind, seconds in kinds.items())
    line = Pipeline(demands, Consumer(), 160, 10, workers=1, cores=2, pixels=0.25)
    assert line.limits()["workers"] == pytest.approx(10 * (0.001 + 0.002 + 0.001 + 0.002 + 0.004))
