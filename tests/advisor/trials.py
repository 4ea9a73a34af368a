"""Loaders whose time is known, and advice as if it had been measured."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ocr.advisor.advice import Advice, Change, Row
from ocr.advisor.measure import Pass, Round, Timing
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage


@dataclass(frozen=True, slots=True)
class Burn(FixedStage):
    """A stage that keeps a core busy for so long."""

    seconds: float

    def __call__(self, sample: Sample) -> Sample:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return sample


class Batches:
    """So many batches of two pages that take so long to make."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        self.count, self.seconds, self.epochs = count, seconds, []

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(self.count):
            time.sleep(self.seconds)
            yield [number, number]


def timing(seconds: float = 2.0, waited: float = 0.5, others: float = 0.0) -> Timing:
    """Of an epoch of ten batches with a hundred pages."""
    return Timing(10, [Round((Pass(seconds, 0.1, waited, 10, 100, 100.0),), others)])


def row(name: str, gain: float, setting: str = "workers", **known: Any) -> Row:
    how = known.pop("how", "measured")
    change = Change(name, (f"data.{setting}={name.split()[0]}",), f"not {name}", setting, **known)
    return Row(change, 2.0 / gain, gain, how)


def advice(rows: list[Row], waited: float = 0.5, **settings: Any) -> Advice:
    return Advice("data/<pages>", 100, 10, timing(waited=waited), 2.0, waited, 1.5, 0.1, rows, **settings)
