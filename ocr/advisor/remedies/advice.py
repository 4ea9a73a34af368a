"""Remedies: what each change would gain, alone and combined, and the verdict over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from ocr.advisor.measure.timed_batches import Span
from ocr.advisor.model.queueing import START, Consumer, Demand, Pipeline, Prediction
from ocr.advisor.model.training_run import TrainingRun
from ocr.advisor.remedies.candidates import Candidate
from ocr.units import format_bytes

SAME, NOT_KNOWN = "same", "not known"
"""Effects on the H-mean: none, because the model learns the same; and one that was never measured."""
WORTHWHILE = 1.05
NOTICEABLE = 1.02
"""Gains below these are within the noise: of a recommendation, and of a part in a combination."""
FIELDS = {
    "demands": ("demands",),
    "workers": ("workers",),
    "consumer": ("consumer", "batch_size", "pages", "pixels", "start_seconds"),
}
"""What a remedy of each kind changes in a pipeline."""


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
    """How many times as fast as now: the whole run if it is known, else a later epoch."""
    kept_bytes: int = 0
    command: str = ""
    changes: str = ""
    """What it changes in the pipeline: demands, workers or consumer; empty if it replaces the pipeline."""
    combined: bool = False
    candidate: Candidate | None = None
    run: TrainingRun | None = None
    """None if only epochs are predicted."""
    memory_bytes: int = 0
    """Of a step of the model; 0 if it was not measured."""
    free_bytes: float = float("inf")
    hmean: str = SAME
    """What is known of its effect on the H-mean."""

    @property
    def fits(self) -> bool:
        """Whether there is enough memory for a step."""
        return self.memory_bytes <= self.free_bytes

    @property
    def run_seconds(self) -> float | None:
        """Of all epochs and validations."""
        return None if self.run is None else self.run.seconds(self.first, self.later)

    @property
    def seconds(self) -> float:
        """What remedies are compared by: the whole run if it is known, else a later epoch."""
        return self.later.epoch_seconds if self.run is None else self.run.seconds(self.first, self.later)

    @property
    def reason(self) -> str:
        """Why it gains as much as it does, in a sentence."""
        if not self.fits:
            needed, free = format_bytes(self.memory_bytes), format_bytes(self.free_bytes)
            return f"this does not fit into memory: a step needs {needed}, {free} are free"
        if self.name == "present":
            return self.later.sentence()
        about = f"{self.about}; " if self.about else ""
        if self.gain >= NOTICEABLE:
            return f"{about}then {_limited_by(self.later)}"
        if self.gain <= 1 / NOTICEABLE:
            return f"{about}this would be slower"
        what = self.later.stage or ("the model" if self.later.bottleneck == "model" else self.later.bottleneck)
        return f"{about}this changes nothing, because {what} takes as long as before"

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
    memory: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the start of the timeline, and bytes in use."""
    verified: list[tuple[str, float, float]] = field(default_factory=list)
    """Name, predicted and measured seconds of an epoch."""
    unit: str = "page"
    """What a batch has several of."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Remedies that could not be measured here, and why."""

    @property
    def units(self) -> str:
        return f"{self.unit}es" if self.unit.endswith("h") else f"{self.unit}s"

    @property
    def best(self) -> Remedy | None:
        """The worthwhile remedy that gains most without preparation, and after which the model learns the same; the
        simplest if several are close. If the present configuration does not fit into memory, one that does."""
        ready = [remedy for remedy in self.remedies if remedy.fits and not remedy.command]
        if not self.present.fits:
            return max(ready, key=lambda remedy: (remedy.hmean == SAME, remedy.gain), default=None)
        useful = [remedy for remedy in ready if remedy.gain > WORTHWHILE and remedy.hmean == SAME]
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
        best, other, bottleneck = self.best, self.fastest_other, self.present.later.sentence()
        if not self.present.fits:
            needs = f"As configured, training {self.present.reason.removeprefix('this ')}."
            return f"{needs} {best.name} ({' '.join(best.overrides)}) fits." if best else f"{needs} Nothing here fits."
        if best is not None:
            bottleneck += f" With {best.name} ({' '.join(best.overrides)}) {self._faster(best)}."
        if other is not None and (best is None or other.gain > WORTHWHILE * best.gain):
            bottleneck += f" With {other.name} {self._faster(other)}; its effect on the H-mean: {other.hmean}."
        if best is not None or other is not None:
            return bottleneck
        if any(remedy.fits and remedy.gain > WORTHWHILE for remedy in self.remedies):
            return f"{bottleneck} Only remedies that need preparation would help."
        return f"{bottleneck} Nothing here will help."

    @property
    def fastest_other(self) -> Remedy | None:
        """The worthwhile remedy that gains most of those after which the model learns something else."""
        ready = [remedy for remedy in self.remedies if remedy.fits and not remedy.command and remedy.hmean != SAME]
        return max((one for one in ready if one.gain > WORTHWHILE), key=lambda one: one.gain, default=None)

    def _faster(self, remedy: Remedy) -> str:
        what = "epochs would be" if remedy.run is None else "the run would be"
        return f"{what} {remedy.gain:.1f} times as fast"


def _limited_by(prediction: Prediction) -> str:
    if prediction.bottleneck == "model":
        return "the model is the bottleneck"
    if prediction.bottleneck == START:
        return "starting the workers takes most of an epoch"
    resource = {"workers": "the workers", "cores": "the cores"}.get(prediction.bottleneck, prediction.bottleneck)
    return f"{prediction.stage or prediction.bottleneck} takes most of {resource}"


def combine(remedies: Sequence[Remedy], present: Remedy) -> list[Remedy]:
    """The best remedy of each kind together with those of the other kinds, if that gains more than each alone."""
    best: dict[str, Remedy] = {}
    for remedy in sorted(remedies, key=lambda one: one.gain):
        if remedy.changes and remedy.gain > NOTICEABLE and remedy.fits:
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
        fields = {
            name: getattr(line, name) for part, line in zip(parts, own, strict=True) for name in FIELDS[part.changes]
        }
        return replace(pipeline, **fields).predict()

    later = changed(present.later.pipeline, [part.later.pipeline for part in parts])
    first = changed(present.first.pipeline, [part.first.pipeline for part in parts])
    # Only changes of the model's step change what it takes besides the epochs.
    step = next((part for part in parts if part.changes == "consumer"), present)
    joined = Remedy(
        " + ".join(part.name for part in parts),
        tuple(override for part in parts for override in part.overrides),
        "",
        later,
        first,
        1.0,
        next((part.kept_bytes for part in parts if part.changes == "demands"), present.kept_bytes),
        combined=True,
        run=step.run,
        memory_bytes=step.memory_bytes,
        free_bytes=step.free_bytes,
        hmean=step.hmean,
    )
    return replace(joined, gain=present.seconds / joined.seconds), max(part.gain for part in parts)
