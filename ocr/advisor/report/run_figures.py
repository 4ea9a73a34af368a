"""What the report tells about a run: its curves, its best validation, and where its time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from ocr.advisor.report.line_chart import Point
from ocr.advisor.report.number_format import in_count, in_digits, in_percent
from ocr.advisor.report.result_fields import number, objects, part, words

WAIT = "data_wait"
WAIT_WORTH_A_REMEDY = 0.1
"""If the model waits less, faster loading is not worth the effort."""


@dataclass(frozen=True)
class Run:
    """A run under the name that it has in charts and tables."""

    name: str
    found: Mapping[str, Any]

    @property
    def epochs(self) -> list[Mapping[str, Any]]:
        """One object per epoch."""
        return objects(self.found, "epochs")

    @property
    def trained(self) -> int:
        """How many epochs have ended."""
        return 1 + int(max((number(epoch, "epoch") or 0.0 for epoch in self.epochs), default=-1.0))

    @property
    def losses(self) -> list[Point]:
        """Epochs trained so far and the loss, of every step that was logged."""
        return [(float(x), float(y)) for x, y in self.found.get("losses") or ()]

    @property
    def last_loss(self) -> float | None:
        """The mean of the last epoch that has ended."""
        last = [loss for epochs, loss in self.losses if self.trained - 1 < epochs <= self.trained]
        return sum(last) / len(last) if last else None

    def curve(self, figure: str) -> list[Point]:
        """Epochs trained so far, and a figure of the epoch; those without one are left out."""
        pairs = [(number(epoch, "epoch"), number(epoch, figure)) for epoch in self.epochs]
        return [(epoch + 1, value) for epoch, value in pairs if epoch is not None and value is not None]

    @cached_property
    def best(self) -> Mapping[str, Any]:
        """The epoch with the highest H-mean; empty if nothing was validated."""
        scored = [epoch for epoch in self.epochs if number(epoch, "hmean") is not None]
        return max(scored, key=lambda epoch: epoch["hmean"], default={})

    @property
    def wait_shares(self) -> list[Point]:
        """Epochs trained so far, and the share of the epoch in which the model waited for data."""
        shares = []
        for epoch in self.epochs:
            total, wait = sum(_seconds(epoch).values()), number(part(epoch, "seconds"), WAIT)
            if total > 0 and wait is not None:
                shares.append(((number(epoch, "epoch") or 0.0) + 1, wait / total))
        return shares

    @property
    def wait_share(self) -> float | None:
        """Of a usual epoch."""
        return _median([share for _, share in self.wait_shares])

    @property
    def samples_per_s(self) -> float | None:
        """Of a usual epoch."""
        return _median([speed for _, speed in self.curve("samples_per_s")])

    @property
    def most_bytes(self) -> float | None:
        """The largest memory after an epoch; None if the run did not log it."""
        return max((1e9 * size for _, size in self.curve("memory_gb")), default=None)

    @property
    def seconds(self) -> dict[str, float]:
        """Of each part of an epoch, the mean over all epochs."""
        timed = [seconds for epoch in self.epochs if (seconds := _seconds(epoch))]
        names = dict.fromkeys(name for seconds in timed for name in seconds)
        return {name: sum(seconds.get(name, 0.0) for seconds in timed) / len(timed) for name in names}

    @property
    def total_seconds(self) -> float:
        """Of all epochs."""
        return sum(sum(_seconds(epoch).values()) for epoch in self.epochs)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Every setting under its full name."""
        return part(self.found, "settings")


def _seconds(epoch: Mapping[str, Any]) -> dict[str, float]:
    seconds = part(epoch, "seconds")
    return {name: value for name in seconds if (value := number(seconds, name)) is not None}


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def name_runs(found: Sequence[Mapping[str, Any]]) -> list[Run]:
    """Runs under the names of their folders, or under their paths if some of those are the same."""
    names = [words(one, "name") for one in found]
    if len(set(names)) < len(names):
        names = [words(one, "folder") for one in found]
    return [Run(name, one) for name, one in zip(names, found, strict=True)]


def verdict_of_runs(runs: Sequence[Run]) -> tuple[str, str]:
    """The outcome in a sentence, and whether that is good (ok), bad (wrong) or neither (plain)."""
    scored = [run for run in runs if run.best]
    if not scored:
        trained = max(run.trained for run in runs)
        done = f"{in_count(trained)} epochs" if trained != 1 else "1 epoch"
        return (f"{done} without a validation" if trained else "No epoch has ended yet"), "plain"
    first = max(scored, key=lambda run: run.best["hmean"])
    epochs = int(number(first.best, "epoch") or 0) + 1
    sentence = f"H-mean {score(first.best, 'hmean')} after {epochs} of {first.trained} epochs"
    if len(runs) > 1:
        others = [f"{run.name} {score(run.best, 'hmean')}" for run in scored if run is not first]
        sentence = f"The best run is {first.name}: {sentence}"
        sentence += f" ({', '.join(others)})" if others else ""
    if first.wait_share is not None and first.wait_share > WAIT_WORTH_A_REMEDY:
        return f"{sentence}; the model waited for data for {in_percent(first.wait_share)} of the time", "wrong"
    return sentence, "plain"


def score(found: Mapping[str, Any], figure: str) -> str:
    """An H-mean, precision or recall with three decimals."""
    value = number(found, figure)
    return "–" if value is None else f"{value:.3f}"


def in_loss(value: float | None) -> str:
    """A loss with three digits."""
    return "–" if value is None else in_digits(value)
