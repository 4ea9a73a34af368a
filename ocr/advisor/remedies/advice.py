"""Remedies: what each change would gain, alone and combined, and the verdict over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from ocr.advisor.measure.timed_batches import Span
from ocr.advisor.model.queueing import Consumer, Demand, Pipeline, Prediction
from ocr.advisor.remedies.candidates import Candidate

WORTHWHILE = 1.05
NOTICEABLE = 1.02
"""Gains below these are within the noise: of a recommendation, and of a part in a combination."""


@dataclass(frozen=True)
class Remedy:
    """One change of the config, alone or combined with others, and what it would gain."""

    name: str
    overrides: tuple[str, ...]
    about: str
    later: Prediction
    first: Prediction
    """The first epoch, which may also fill a cache."""
    gain: float
    """How many times as fast as now, in later epochs."""
    kept_bytes: int = 0
    command: str = ""
    changes: str = ""
    """The field of the pipeline that it changes: demands, workers or consumer; empty if it replaces the pipeline."""
    combined: bool = False
    candidate: Candidate | None = None

    @property
    def reason(self) -> str:
        """Why it gains as much as it does, in a sentence."""
        if self.name == "present":
            return self.later.sentence()
        about = f"{self.about}; " if self.about else ""
        if self.gain >= NOTICEABLE:
            return f"{about}then {_limited_by(self.later)}"
        if self.gain <= 1 / NOTICEABLE:
            return f"{about}this would be slower"
        return f"{about}this changes nothing, because {self.later.stage or 'the model'} takes as long as before"

    def payback_epochs(self, present: Prediction) -> float | None:
        """Epochs until a slower first epoch has paid off; None if it never does."""
        saved = present.epoch_seconds - self.later.epoch_seconds
        extra = self.first.epoch_seconds - present.epoch_seconds
        return max(0.0, extra / saved) if saved > 0 else None


@dataclass
class Advice:
    """What was measured and predicted."""

    location: str
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
        """The worthwhile remedy that gains most without preparation; the simplest if several are close."""
        useful = [remedy for remedy in self.remedies if remedy.gain > WORTHWHILE and not remedy.command]
        largest = max((remedy.gain for remedy in useful), default=0.0)
        close = [remedy for remedy in useful if remedy.gain >= 0.95 * largest]
        return min(close, key=lambda remedy: len(remedy.overrides), default=None)

    @property
    def mean_error(self) -> float | None:
        """Mean absolute error of the verified predictions."""
        errors = [abs(predicted - measured) / measured for _, predicted, measured in self.verified]
        return fmean(errors) if errors else None

    @property
    def sentence(self) -> str:
        """The verdict."""
        bottleneck = self.present.later.sentence()
        if self.best is not None:
            change = " ".join(self.best.overrides)
            return f"{bottleneck} With {self.best.name} ({change}) epochs would be {self.best.gain:.1f} times as fast."
        if any(remedy.gain > WORTHWHILE for remedy in self.remedies):
            return f"{bottleneck} Only remedies that need preparation would help."
        return f"{bottleneck} Nothing here will help."


def _limited_by(prediction: Prediction) -> str:
    if prediction.bottleneck == "model":
        return "the model is the bottleneck"
    resource = {"workers": "the workers", "cores": "the cores"}.get(prediction.bottleneck, prediction.bottleneck)
    return f"{prediction.stage or prediction.bottleneck} takes most of {resource}"


def combine(remedies: Sequence[Remedy], present: Remedy) -> list[Remedy]:
    """The best remedy of each kind together with those of the other kinds, if that gains more than each alone."""
    best: dict[str, Remedy] = {}
    for remedy in sorted(remedies, key=lambda one: one.gain):
        if remedy.changes and remedy.gain > NOTICEABLE:
            best[remedy.changes] = remedy
    groups = (
        ("demands", "consumer"),
        ("demands", "workers"),
        ("demands", "workers", "consumer"),
        ("workers", "consumer"),
    )
    together = [_join([best[kind] for kind in kinds], present) for kinds in groups if best.keys() >= set(kinds)]
    return [joined for joined, alone in together if joined.gain >= NOTICEABLE * alone]


def _join(parts: Sequence[Remedy], present: Remedy) -> tuple[Remedy, float]:
    """All parts at once, and the gain of the best of them alone."""

    def changed(pipeline: Pipeline, own: Sequence[Pipeline]) -> Prediction:
        fields = {part.changes: getattr(line, part.changes) for part, line in zip(parts, own, strict=True)}
        return replace(pipeline, **fields).predict()

    later = changed(present.later.pipeline, [part.later.pipeline for part in parts])
    first = changed(present.first.pipeline, [part.first.pipeline for part in parts])
    joined = Remedy(
        " + ".join(part.name for part in parts),
        tuple(override for part in parts for override in part.overrides),
        "",
        later,
        first,
        present.later.epoch_seconds / later.epoch_seconds,
        next((part.kept_bytes for part in parts if part.changes == "demands"), present.kept_bytes),
        combined=True,
    )
    return joined, max(part.gain for part in parts)
