"""Epochs that are timed: every batch reaches the step, and an epoch that is broken off is scaled up."""

import time

from ocr.advisor.measure.timed_batches import run_part


def test_every_batch_reaches_the_step_but_one_that_is_empty():
    seen = []
    assert run_part([{"images": 1}, None, {"images": 2}], seen.append, 60) > 0
    assert seen == [{"images": 1}, {"images": 2}]


def test_the_rest_of_an_epoch_that_takes_too_long_is_taken_to_be_like_its_beginning():
    seen = []

    def step(batch):
        seen.append(batch)
        time.sleep(0.02)

    assert run_part([{}] * 50, step, 0.01) >= 50 * 0.02
    assert len(seen) == 1
