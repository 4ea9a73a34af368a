"""Batches ahead make up for uneven ones, and for nothing else."""

import pytest

from ocr.advisor.model.prefetch import epoch_seconds, uneven_batches


def test_even_batches_take_as_long_however_many_are_made_ahead():
    for step in (0.5, 1.0, 2.0):
        assert epoch_seconds([1.0] * 20, 1, 2, step) == pytest.approx(epoch_seconds([1.0] * 20, 1, 8, step))


def test_a_long_batch_is_made_up_for_by_those_made_ahead():
    batches = [1.0] * 10 + [8.0] + [1.0] * 10
    few, many = (epoch_seconds(batches, 1, ahead, step_seconds=2.0) for ahead in (2, 8))
    # With two batches ahead the step waits; with eight it never does: the first batch, then only steps.
    assert few > many == pytest.approx(1.0 + 2.0 * 21)


def test_workers_share_the_batches_in_turns():
    assert epoch_seconds([1.0] * 8, workers=2, ahead=2, step_seconds=0.0) == pytest.approx(4.0)


def test_drawn_batches_have_all_items_of_an_epoch():
    batches = uneven_batches([1.0], items=10, batch_size=4)
    assert batches == [4.0, 4.0, 2.0]
