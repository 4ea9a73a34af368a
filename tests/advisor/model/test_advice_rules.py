"""The arithmetic of the advisor, rule by rule, with numbers worked out by hand."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ocr.advisor.measure.stage_demands import IDLE_FROM, ScalingClock, _waiting_share
from ocr.advisor.model.queueing import DISK, GIL, Consumer, Demand, Pipeline, Prediction
from ocr.advisor.remedies.advice import Remedy

LINE = Pipeline((), Consumer(), pages=160, batch_size=16, workers=4, cores=4)


def prediction(seconds: float) -> Prediction:
    return Prediction({}, "", seconds, 0.0, LINE)


@pytest.mark.parametrize(
    ("resource", "processes", "seconds"),
    # 16 pages of 10 ms, one at a time: 160 ms a batch, and 10 batches.
    [(GIL, False, 1.6), (DISK, False, 1.6), (DISK, True, 1.6), (GIL, True, 0.4)],
)
def test_processes_share_the_disk_and_have_a_gil_each(resource, processes, seconds):
    demand = Demand("stage", 0.010, 0.0, 0.010, resource)
    line = Pipeline((demand,), Consumer(), 160, 16, workers=4, cores=4, processes=processes)
    assert line.limits()[resource] == pytest.approx(seconds / 10)
    assert line.predict().epoch_seconds == pytest.approx(seconds)


def test_stages_of_one_resource_wait_for_each_other_and_those_of_two_do_not():
    demands = (Demand("a", 0.01, 0, 0.01, DISK), Demand("b", 0.02, 0, 0.02, DISK), Demand("c", 0.04, 0, 0.04, GIL))
    limits = Pipeline(demands, Consumer(), 160, 16, workers=8, cores=8).limits()
    assert (limits[DISK], limits[GIL]) == (pytest.approx(16 * 0.03), pytest.approx(16 * 0.04))


def test_a_last_batch_with_fewer_pages_is_a_step_and_the_start_of_an_epoch_is_waiting():
    # 17 pages of 16: two steps of 1 s, and 0.1 s for the first batch; the start adds 0.5 s.
    line = Pipeline((Demand("a", 0.0125, 0),), Consumer(1.0), 17, 16, workers=2, cores=2, start_seconds=0.5)
    predicted = line.predict()
    assert line.steps == 2
    assert predicted.epoch_seconds == pytest.approx(2.6)
    assert predicted.wait_share == pytest.approx(0.6 / 2.6)


@pytest.mark.parametrize(
    ("ratios", "share"),
    [
        # Three threads at once; the quartile of the ratios, because a busy machine only makes them larger.
        ([4.0, 1.8, 3.0, 2.0], 0.5),
        ([9.0, 2.0, 9.0, 1.8, 9.0, 9.0, 9.0, 9.0], 1.0),
        ([1.4, 1.2, 3.0, 3.0], 0.0),
        ([2.6], 0.8),
        ([], 0.0),
    ],
)
def test_the_share_in_which_threads_wait_for_each_other(ratios, share):
    assert _waiting_share(ratios, at_once=3) == pytest.approx(share)


@pytest.mark.parametrize(
    ("first", "later", "epochs"),
    [
        # Now 10 s an epoch. 8 s more once, 4 s less each time: two epochs.
        (18.0, 6.0, 2.0),
        (11.0, 2.0, 0.125),
        (9.0, 6.0, 0.0),
        (12.0, 10.0, None),
        (12.0, 11.0, None),
    ],
)
def test_a_slower_first_epoch_pays_off_after(first, later, epochs):
    remedy = Remedy("cache", (), "", prediction(later), prediction(first), gain=10 / later)
    assert remedy.payback_epochs(prediction(10.0)) == (None if epochs is None else pytest.approx(epochs))


def measured(seconds: float, cpu: float, together: list[float], held: float) -> Demand:
    """The demand of a stage with these measurements; a thread is seen to hold the GIL for 0.1 to 0.9 of the time."""
    with ThreadPoolExecutor(1) as pool:
        clock = ScalingClock(pool, at_once=3)
    clock._alone, clock._kinds, clock._core_seconds = {"stage": [(seconds, cpu)]}, {"stage": "fixed"}, [1.0]
    clock._together = {"stage": together}
    clock._held = {"stage": [held], "free": [0.1], "held": [0.9]}
    (demand,) = clock.demands(contended=True).demands
    return demand


def test_a_stage_that_computes_is_slowed_down_by_the_median_of_its_ratios():
    demand = measured(0.010, 0.010, [1.0, 1.5, 5.0], held=0.1)
    assert (demand.seconds, demand.cpu_seconds) == (pytest.approx(0.015), pytest.approx(0.015))
    assert (demand.contention, demand.resource) == (pytest.approx(1.5), "")


def test_a_stage_that_holds_the_gil_needs_it_for_its_share():
    # (0.7 - 0.1) of (0.9 - 0.1) is 0.75.
    demand = measured(0.010, 0.010, [1.0], held=0.7)
    assert (demand.resource, demand.serial_seconds) == (GIL, pytest.approx(0.0075))
    assert measured(0.010, 0.010, [1.0], held=0.3).resource == ""


class OneThread(ThreadPoolExecutor):
    """Work is done before `submit` returns, as on a busy machine."""

    def submit(self, work, /, *arguments, **named):
        future = super().submit(work, *arguments, **named)
        future.result()
        return future


def test_a_stage_that_is_done_before_anybody_asks_for_the_gil_has_a_share_too():
    with OneThread(1) as pool:
        assert 0 <= ScalingClock(pool, at_once=1)._held_share(lambda: None) < 1


def test_a_stage_that_waits_needs_the_disk_for_its_share():
    demand = measured(0.010, 0.001, [2.0, 2.0, 3.0, 3.0], held=0.9)
    assert (demand.resource, demand.serial_seconds) == (DISK, pytest.approx(0.005))
    assert demand.cpu_seconds == pytest.approx(0.001 * IDLE_FROM)
