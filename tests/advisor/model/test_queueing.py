"""The queueing model: what holds a pipeline up, and what an epoch takes then."""

from dataclasses import replace

import pytest

from ocr.advisor.model.queueing import (
    DISK,
    GIL,
    MAIN,
    START,
    Consumer,
    Demand,
    Pipeline,
    beside_workers,
    contended,
    scaled,
)

MS = 1e-3
WORK = Demand("work", 10 * MS, 10 * MS)


def pipeline(*demands: Demand, step: float = 0.0, step_cpu: float = 0.0, **settings: float) -> Pipeline:
    shape = {"pages": 160, "batch_size": 16, "workers": 2, "cores": 2} | settings
    return Pipeline(demands, Consumer(step, step_cpu), **shape)


@pytest.mark.parametrize(
    ("line", "bottleneck", "stage", "seconds"),
    [
        # 10 batches of 16 pages of 10 ms on 2 cores: 80 ms each.
        (pipeline(WORK), "cores", "work", 0.8),
        (pipeline(WORK, workers=1), "workers", "work", 1.6),
        (pipeline(WORK, workers=8), "cores", "work", 0.8),
        # Sleeping needs workers, not cores.
        (pipeline(Demand("sleep", 10 * MS, 0)), "workers", "sleep", 0.8),
        (pipeline(Demand("sleep", 10 * MS, 0), workers=8), "workers", "sleep", 0.2),
        # One at a time: 16 pages of 10 ms.
        (pipeline(Demand("python", 10 * MS, 10 * MS, 10 * MS, GIL)), GIL, "python", 1.6),
        (pipeline(Demand("source", 10 * MS, 0, 10 * MS, DISK), workers=8), DISK, "source", 1.6),
        # Threads and the step take turns with the GIL, 160 + 50 ms; processes have their own, and so has a GPU's step.
        (pipeline(Demand("python", 10 * MS, 10 * MS, 10 * MS, GIL), step=0.05, step_cpu=0.05), GIL, "python", 2.15),
        (pipeline(Demand("python", 1 * MS, 1 * MS, 1 * MS, GIL), step=0.1, step_cpu=0.1), "model", "", 1.26),
        (pipeline(Demand("python", 10 * MS, 10 * MS, 10 * MS, GIL), step=0.05), GIL, "python", 1.65),
        # The model: 10 steps of 100 ms, and the first batch.
        (pipeline(WORK, step=0.1), "model", "", 1.08),
        # A model on the CPU takes the cores that loading needs: 80 + 40 ms a batch.
        (pipeline(WORK, step=0.02, step_cpu=0.08), "cores", "work", 1.22),
        # Batches that the main process must unpickle between its steps: 16 pages of 10 ms, and the step.
        (pipeline(Demand("way", 10 * MS, 0, 10 * MS, MAIN), step=0.02, workers=8), MAIN, "way", 1.82),
        (pipeline(Demand("way", 1 * MS, 0, 1 * MS, MAIN), step=0.1), "model", "", 1.168),
        (
            pipeline(Demand("python", 10 * MS, 10 * MS, 10 * MS, GIL), step=0.05, step_cpu=0.05, processes=True),
            "cores",
            "python",
            1.1,
        ),
        # Workers that are started for every epoch, which has 0.8 s of batches.
        (pipeline(WORK, start_seconds=1.0), START, "", 1.8),
        (pipeline(WORK, start_seconds=0.5), "cores", "work", 1.3),
        # Without workers nothing overlaps.
        (pipeline(WORK, step=0.1, workers=0), "workers", "work", 2.6),
    ],
)
def test_the_bottleneck_and_the_epoch_of_a_pipeline(line, bottleneck, stage, seconds):
    predicted = line.predict()
    assert (predicted.bottleneck, predicted.stage) == (bottleneck, stage)
    assert predicted.epoch_seconds == pytest.approx(seconds)
    assert predicted.samples_per_second == pytest.approx(160 / seconds)
    assert predicted.sentence()


def test_processes_have_an_interpreter_each():
    threads = pipeline(Demand("python", 10 * MS, 10 * MS, 10 * MS, GIL))
    processes = Pipeline(threads.demands, threads.consumer, 160, 16, 2, 2, processes=True)
    assert processes.predict().epoch_seconds == pytest.approx(threads.predict().epoch_seconds / 2)
    assert processes.predict().bottleneck == "cores"


def test_a_faster_stage_changes_nothing_where_the_model_is_the_bottleneck():
    line = pipeline(WORK, Demand("targets", 2 * MS, 2 * MS), step=0.2)
    assert line.without("targets").predict().epoch_seconds == pytest.approx(line.predict().epoch_seconds, rel=0.02)
    assert line.predict().wait_share < 0.06


def test_waiting_is_what_loading_takes_longer_than_the_step():
    assert pipeline(WORK, step=0.04).predict().wait_share == pytest.approx(1 - 0.4 / 0.84)
    assert pipeline(WORK, step=0.04, workers=0).predict().wait_share == pytest.approx(1.6 / 2.0)


def test_one_worker_alone_is_not_held_up_by_others():
    alone = pipeline(Demand("work", 15 * MS, 15 * MS, contention=1.5), workers=1)
    assert alone.predict().epoch_seconds == pytest.approx(1.6)


def test_demands_can_be_scaled():
    (twice,) = scaled([Demand("a", 1, 2, 3, GIL)], 2)
    assert (twice.seconds, twice.cpu_seconds, twice.serial_seconds, twice.resource) == (2, 4, 6, GIL)


def test_a_step_slows_down_as_far_as_workers_compute_beside_it():
    line = pipeline(Demand("work", 1 * MS, 1 * MS), step=0.032, step_cpu=0.032, workers=1)
    # 16 ms of loading beside a step of 32 ms, at 1.5 times the time while both are busy.
    assert beside_workers(line, 1.5) == Consumer(pytest.approx(0.040), pytest.approx(0.040))
    assert beside_workers(replace(line, workers=0), 1.5) == line.consumer
    sleeping = replace(line, consumer=Consumer(0.032, 0.0))
    assert beside_workers(sleeping, 1.5) == sleeping.consumer


def test_contention_of_processes_replaces_that_of_threads():
    threads = Demand("work", 15 * MS, 15 * MS, contention=1.5)
    processes = contended(threads, 1.1)
    assert processes.seconds == processes.cpu_seconds == pytest.approx(11 * MS)
    # One worker alone takes what was measured alone.
    assert pipeline(processes, workers=1).predict().epoch_seconds == pytest.approx(1.6)


def test_a_stage_that_is_not_said_to_be_serial_is_not():
    alone = Demand("work", 0.1, 0.1)
    assert (alone.serial_seconds, alone.resource) == (0.0, Demand("work", 0.1, 0.1, 0.0).resource)
    # Eight workers on eight cores: only one of them at a time would take eight times as long.
    free, serial = (
        Pipeline((demand,), Consumer(0.0), 80, 8, 8, 8).predict().epoch_seconds
        for demand in (alone, Demand("work", 0.1, 0.1, 0.1, GIL))
    )
    assert serial > 4 * free
