"""Passes on the clock: what is counted of them, and what a busy machine does to them."""

import time

import pytest
import torch
from advisor.trials import Batches, timing

from ocr.advisor.measure import (
    BUSY,
    MIN_BATCHES,
    ModelStep,
    OtherPrograms,
    Pass,
    Round,
    SleepingStep,
    Timing,
    Trial,
    _whole_epoch,
    find_device,
    run_pass,
    run_trials,
)
from ocr.jobs.compose import compose_training


def test_a_whole_epoch_is_what_it_took():
    found = run_pass(Batches(4, 0.01), SleepingStep(0.02), 4, 4, 10.0)
    assert (found.done, found.pages) == (4, 8)
    assert found.seconds >= 4 * 0.03
    assert 0.01 <= found.first_wait < found.seconds
    assert 0.1 < found.waited < 0.6


def test_the_rest_of_an_epoch_is_as_fast_as_its_part():
    found = run_pass(Batches(1000, 0.001), None, 1000, 20, 10.0)
    assert found.done == 20
    assert 1.0 <= found.seconds < 5.0


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_part_predicts_an_epoch_of_workers_that_make_a_batch_each(workers):
    # Batch i of a worker is there after i seconds; nothing else takes time.
    arrivals = [1.0 + index // workers for index in range(3 * workers + 1)]
    assert _whole_epoch(arrivals, arrivals[-1], 100 * workers, workers) == pytest.approx(100, rel=0.03)


def test_a_step_that_is_slower_than_the_loader_predicts_an_epoch():
    arrivals = [0.5, 2.5, 4.5, 6.5]
    assert _whole_epoch(arrivals, 8.5, 50, 1) == pytest.approx(0.5 + 50 * 2.0)


def test_a_pass_is_cut_after_two_batches_of_each_worker_or_a_few_long_ones():
    assert run_pass(Batches(1000, 0.02), None, 1000, 1000, 0.05).done == 3
    eight = Batches(1000)
    eight.num_workers = 8
    assert run_pass(eight, None, 1000, 1000, 0.0).done == MIN_BATCHES
    eight.engine = "threads"
    assert run_pass(eight, None, 1000, 1000, 0.0).done == MIN_BATCHES


def test_the_pass_that_is_not_counted_reads_the_batches_that_are():
    loader = Batches(6)
    trial = Trial(loader, None, 0.01)
    trial.warm_up()
    trial.run_round()
    assert set(loader.epochs) == {0}
    assert len(loader.epochs) >= 2
    assert trial.timing.filling is not None
    assert trial.timing.pages == 12


def test_trials_take_turns():
    order: list[str] = []
    trials = {name: Trial(Batches(2), None, 0.0) for name in "ab"}
    run_trials(trials, order.append, rounds=2, repeats=0)
    assert order == ["a", "b"] * 3


def test_nothing_starts_after_the_time_is_up():
    trial = Trial(Batches(2), None)
    run_trials({"late": trial}, str, until=time.perf_counter() - 1)
    assert trial.timing.passes == []


def rounds(*others: float) -> Timing:
    """One pass per round, which takes as many seconds as others take of the cores."""
    return Timing(1, [Round((Pass(share, 0, 0, 1, 1, 1),), share) for share in others])


def test_quiet_rounds_count_and_noisy_ones_do_not():
    found = rounds(0.9, 0.04, 0.5, 0.05)
    assert not found.is_noisy
    assert [one.seconds for one in found.passes] == [0.04, 0.05]


def test_if_the_load_never_ends_all_rounds_count():
    found = rounds(0.80, 0.82, 0.84)
    assert found.is_noisy
    assert found.seconds == 0.82


def test_all_trials_have_more_rounds_on_a_busy_machine_and_none_on_a_quiet_one(monkeypatch):
    for share, expected in ((0.0, 2), (0.9, 3)):
        monkeypatch.setattr(OtherPrograms, "share", lambda self, share=share: share)
        trials = {name: Trial(Batches(1), None, 0.0) for name in "ab"}
        run_trials(trials, str, rounds=2, repeats=1)
        assert {len(trial.timing.rounds) for trial in trials.values()} == {expected}


def test_configurations_are_compared_by_pages_and_not_by_batches():
    small = Timing(80, [Round((Pass(4.0, 0, 0, 80, 80, 80.0),), 0.0)])
    assert timing(seconds=4.0).pages_per_second == pytest.approx(25)
    assert small.pages_per_second == pytest.approx(20)
    assert timing(others=2 * BUSY).is_noisy


def test_a_step_of_the_model_is_measured_per_pixel():
    config = compose_training(["model=lite", "model.channels=32", "model.head_channels=16", "transforms.size=64"])
    step = ModelStep(config, torch.device("cpu"), training=True)
    maps = torch.zeros(2, 1, 64, 64)
    batch = {
        "images": torch.zeros(2, 3, 64, 64, dtype=torch.uint8),
        **dict.fromkeys(("prob_maps", "thresh_maps"), maps),
        **dict.fromkeys(("prob_masks", "thresh_masks"), maps + 1),
    }
    before = [one.detach().clone() for one in step.module.model.parameters()]
    assert step.seconds_per_pixel([batch], 0.0) * 2 * 64 * 64 < 60
    assert any(not torch.equal(*pair) for pair in zip(before, step.module.model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("accelerator", "cuda", "mps", "expected"),
    [
        ("auto", False, False, "cpu"),
        ("auto", True, True, "cuda"),
        ("cpu", True, True, "cpu"),
        ("mps", True, True, "mps"),
    ],
)
def test_the_model_is_measured_where_the_trainer_would_put_it(monkeypatch, accelerator, cuda, mps, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert find_device(accelerator).type == expected
