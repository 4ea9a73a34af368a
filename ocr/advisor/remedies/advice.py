"""Remedies: what each change would bring, alone and combined, and the verdict over all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from ocr.advisor.measure.timed_batches import Span
from ocr.advisor.model.queueing import Consumer, Demand, Prediction
from ocr.advisor.remedies.candidates import Candidate


@dataclass(frozen=True)
class Remedy:
    """One change, alone or with others, and what it would bring."""

    name: str
    overrides: tuple[str, ...]
    why: str
    later: Prediction
    first: Prediction
    gain: float
    """Times the present speed, in later epochs."""
    kept_bytes: int = 0
    command: str = ""
    combined: bool = False
    candidate: Candidate | None = None

    @property
    def reason(self) -> str:
        """In a sentence: why it helps as much as it does."""
        if self.name == "present":
            return self.later.sentence()
        change = f"{self.why}; " if self.why else ""
        if self.gain < 1.02:
            held = {"model": "the model takes as long as before"}.get(
                self.later.bottleneck, f"{self.later.stage or 'the rest'} takes as long as before"
            )
            return f"{change}it changes nothing, for {held}" if self.gain > 0.98 else f"{change}it would be slower"
        return f"{change}then {_held_up_by(self.later)}"

    def payback_epochs(self, present: Prediction) -> float | None:
        """Epochs until what the first one took longer is made up for; None where that never happens."""
        saved = present.epoch_seconds - self.later.epoch_seconds
        extra = self.first.epoch_seconds - present.epoch_seconds
        if saved <= 0:
            return None
        return max(0.0, extra / saved)


@dataclass
class Advice:
    """What was found."""

    place: str
    pages: int
    batch_size: int
    workers: int
    demands: tuple[Demand, ...]
    consumer: Consumer
    present: Remedy
    remedies: list[Remedy]
    timeline: list[Span] = field(default_factory=list)
    verified: list[tuple[str, float, float]] = field(default_factory=list)
    """Name, predicted and measured seconds of an epoch."""

    @property
    def best(self) -> Remedy | None:
        """The remedy that brings most, where any brings anything; the simpler one where two bring the same."""
        useful = [remedy for remedy in self.remedies if remedy.gain > 1.05 and not remedy.command]
        most = max((remedy.gain for remedy in useful), default=0.0)
        enough = [remedy for remedy in useful if remedy.gain >= 0.95 * most]
        return min(enough, key=lambda remedy: len(remedy.overrides), default=None)

    @property
    def mean_error(self) -> float | None:
        """Mean absolute error of the predictions that were checked."""
        errors = [abs(predicted - measured) / measured for _, predicted, measured in self.verified]
        return fmean(errors) if errors else None

    @property
    def sentence(self) -> str:
        """The verdict."""
        told = self.present.later.sentence()
        if self.best is None:
            helps = any(remedy.gain > 1.05 for remedy in self.remedies)
            more = " Only what has to be prepared first would help." if helps else " Nothing here will help."
            return told + more
        change = " ".join(self.best.overrides)
        return f"{told} Most would bring {self.best.name} ({change}): {self.best.gain:.1f} times as fast."


def _held_up_by(prediction: Prediction) -> str:
    if prediction.bottleneck == "model":
        return "the model is the bottleneck"
    return f"{prediction.stage or prediction.bottleneck} takes most of {_named(prediction)}"


def _named(prediction: Prediction) -> str:
    return {"workers": "the workers", "cores": "the cores"}.get(prediction.bottleneck, prediction.bottleneck)


def combine(remedies: Sequence[Remedy], present: Remedy) -> list[Remedy]:
    """The best way to have the pages, with the best number of workers, and with the faster step."""
    useful = [remedy for remedy in remedies if remedy.gain > 1.02]
    pages = max((r for r in useful if r.candidate is not None), key=lambda r: r.gain, default=None)
    steps = next((r for r in useful if r.name == "bf16"), None)
    workers = max(
        (r for r in useful if r.overrides[0].startswith("data.num_workers")), key=lambda r: r.gain, default=None
    )
    found = []
    for group in ((pages, steps), (pages, workers), (pages, workers, steps), (workers, steps)):
        parts = [part for part in group if part is not None]
        if len(parts) < max(2, len(group)):
            continue
        base = pages if pages is not None and pages in parts else present
        later, first = base.later.pipeline, base.first.pipeline
        for part in parts:
            if part is workers:
                later, first = (replace(p, workers=part.later.pipeline.workers) for p in (later, first))
            if part is steps:
                later, first = (replace(p, consumer=part.later.pipeline.consumer) for p in (later, first))
        predicted = later.predict()
        gain = present.later.epoch_seconds / predicted.epoch_seconds
        if gain < 1.02 * max(part.gain for part in parts):
            continue
        overrides = tuple(override for part in parts for override in part.overrides)
        kept = base.kept_bytes
        names = " + ".join(part.name for part in parts)
        found.append(Remedy(names, overrides, "", predicted, first.predict(), gain, kept, combined=True))
    return found
