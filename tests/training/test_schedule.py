"""The learning rate over the steps of a run."""

import pytest
import torch
from rejection import rejects

from ocr.errors import ConfigError
from ocr.training.schedule import SCHEDULES, build_schedule


def rates(name: str, steps: int = 100, **settings: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = build_schedule(optimizer, name, steps, **settings)
    seen = []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return seen


def test_one_cycle_rises_to_the_rate_and_falls_to_its_final_share():
    seen = rates("one_cycle", warmup=0.1, final=0.02)
    top = seen.index(max(seen))
    assert 8 <= top <= 11
    assert max(seen) == pytest.approx(1, abs=0.01)
    assert seen[:top] == sorted(seen[:top])
    assert seen[top:] == sorted(seen[top:], reverse=True)
    assert seen[-1] == pytest.approx(0.02, abs=0.001)
    assert seen[0] > 0


def test_cosine_starts_at_the_rate():
    seen = rates("cosine", warmup=0.0, final=0.0)
    assert seen[0] == pytest.approx(1, abs=0.001)
    assert seen == sorted(seen, reverse=True)


def test_constant_stays_once_it_is_warm():
    seen = rates("constant", warmup=0.05)
    assert seen[0] < 1
    assert set(seen[10:]) == {1.0}


def test_an_unknown_schedule_or_share_is_named():
    warmups, finals = (1.5, "0.1", None), (-1, "0.1", [1])
    for name, value in (*(("warmup", one) for one in warmups), *(("final", one) for one in finals)):
        with rejects(ConfigError, setting=f"schedule.{name}", value=value):
            rates("cosine", **{name: value})
    for name in ("one_cycel", None, 0, [1]):
        with rejects(ConfigError, setting="schedule.name", value=name):
            rates(name)
    assert set(SCHEDULES) == {"one_cycle", "cosine", "constant"}
