"""Known answers: each pipeline has one stage that holds it up, and measuring it names that stage and that resource.

How well predictions agree with epochs is measured by benchmarks/advisor.py: a test must not depend on a quiet machine.
"""

import pytest

from benchmarks.artificial import Burn, HoldInterpreter, Sleep, open_pages
from ocr.advisor.measure.stage_demands import measure_demands
from ocr.advisor.model.queueing import DISK, GIL, Consumer, Pipeline

CASES = {
    "sleep": ([Sleep(0.05)], 0.0, 0.0, "workers", "Sleep"),
    "burn": ([Burn(0.04)], 0.0, 0.0, "cores", "Burn"),
    "interpreter": ([HoldInterpreter(0.04)], 0.0, 0.0, GIL, "HoldInterpreter"),
    "disk": ([], 0.05, 0.0, DISK, "source"),
    "consumer": ([Sleep(0.01)], 0.0, 2.0, "model", ""),
}


# Other programs can take the cores from stages that compute or share a disk, and not the sleep of the others.
ON_IDLE_CORES = {"burn", "interpreter", "disk"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] * (case in ON_IDLE_CORES)) for case in CASES]
)
def test_the_bottleneck_is_named(synthetic, case):
    stages, disk, step, bottleneck, stage = CASES[case]
    dataset = open_pages(synthetic, *stages, disk_seconds=disk)
    for _ in range(3):  # Others may take the cores for as long as one measurement lasts.
        measured = measure_demands(dataset, range(6), workers=2, cores=2)
        line = Pipeline(measured.demands, Consumer(step), pages=64, batch_size=8, workers=2, cores=2)
        found = line.predict()
        if found.bottleneck == bottleneck:
            break
    assert (found.bottleneck, found.stage) == (bottleneck, stage), (found.limits, measured)
    if stage:
        assert line.without(stage).predict().epoch_seconds < found.epoch_seconds / 2
