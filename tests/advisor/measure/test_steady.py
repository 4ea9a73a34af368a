"""A few batches are tried: with the step, as many as there is time for, twice."""

import time

import pytest

from ocr.advisor.measure.steady import MAX_BATCHES, MIN_BATCHES, steady_seconds


@pytest.mark.parametrize(("expected", "tried"), [(0.0, MAX_BATCHES), (0.06, 10), (10.0, MIN_BATCHES)])
def test_every_batch_that_is_tried_reaches_the_step(expected, tried):
    seen = []
    assert steady_seconds(range(1000), seen.append, workers=1, expected=expected) >= 0
    assert seen == [*range(tried)] * 2


def test_the_time_of_the_step_counts():
    assert steady_seconds([0.01] * MIN_BATCHES, time.sleep, workers=1, expected=10.0) >= 0.01


def test_too_few_batches_tell_nothing():
    assert steady_seconds([1], None, workers=1, expected=1.0) is None
    assert steady_seconds([1, 2], None, workers=2, expected=1.0) is None
