"""From measurements on a few pages to epochs of all of them, with each remedy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ocr.advisor.catalogue import CATALOGUE, Configuration, with_workers
from ocr.advisor.measure.stage_demands import Measured
from ocr.advisor.measure.timed_batches import LoaderTimes, Pass
from ocr.advisor.model.queueing import DISK, Consumer, Demand, Pipeline, scaled
from ocr.advisor.remedies.advice import Remedy
from ocr.advisor.remedies.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Workload:
    """The epoch that is predicted, and the resources for it."""

    split: str
    pages: int
    """Per epoch: without the last batch if it is dropped."""
    all_pages: int
    file_bytes: float
    """Mean per page."""
    batch_size: int
    workers: int
    processes: bool
    cores: int
    free_memory_bytes: float
    disk_bytes_per_s: float


class Predictor:
    """Predicts remedies for one workload and one consumer; all are compared with `present`."""

    def __init__(self, workload: Workload, measured: Measured, consumer: Consumer) -> None:
        self._workload, self._measured, self._consumer = workload, measured, consumer
        self._busy_workers = max(1, min(workload.workers, workload.cores))
        self.present: Remedy | None = None

    def candidate(self, candidate: Candidate, cold: Pass, warm: Pass) -> Remedy:
        """A dataset that was tried; the first to be predicted is the present configuration."""
        remedy = self._remedy(
            candidate.configuration,
            self._pipeline(self._demands(candidate, warm)),
            self._pipeline(self._demands(candidate, cold, is_cold=True)),
            "demands",
        )
        kept = candidate.kept_bytes * self._workload.all_pages
        remedy = replace(remedy, kept_bytes=kept, command=candidate.command, candidate=candidate)
        self.present = self.present or remedy
        return remedy

    def other_workers(self) -> list[Remedy]:
        """Other numbers of workers: the queueing model needs no trial for them."""
        now, later, first = self._workload, self._now.later.pipeline, self._now.first.pipeline
        return [
            self._remedy(
                with_workers(_engine(now), count),
                replace(later, workers=count),
                replace(first, workers=count),
                "workers",
            )
            for count in sorted({1, now.cores, 2 * now.cores} - {now.workers})
        ]

    def loader(self, configuration: Configuration, times: LoaderTimes, processes: bool = False) -> Remedy:
        """Another maker of batches, which starts again in every epoch."""
        seconds = times.batch_seconds * self._busy_workers / self._workload.batch_size
        pipeline = self._pipeline((Demand(configuration.name, seconds, seconds),))
        pipeline = replace(pipeline, start_seconds=times.start_seconds, processes=processes)
        return self._remedy(configuration, pipeline, pipeline)

    def bf16(self, consumer: Consumer) -> Remedy:
        """A faster step of the model."""
        before, after = (1e3 * one.step_seconds for one in (self._consumer, consumer))
        remedy = self._remedy(
            CATALOGUE["bf16"],
            replace(self._now.later.pipeline, consumer=consumer),
            replace(self._now.first.pipeline, consumer=consumer),
            "consumer",
        )
        return replace(remedy, about=f"a step takes {after:.0f} ms instead of {before:.0f} ms")

    @property
    def _now(self) -> Remedy:
        assert self.present is not None, "predict the present configuration first"
        return self.present

    def _remedy(self, configuration: Configuration, later: Pipeline, first: Pipeline, changes: str = "") -> Remedy:
        predicted, name, about = later.predict(), configuration.name, configuration.about
        gain = self.present.later.epoch_seconds / predicted.epoch_seconds if self.present else 1.0
        now = self._workload
        unchanged = (f"data.engine={_engine(now)}", f"data.num_workers={now.workers}")
        overrides = tuple(one for one in configuration.overrides_for(now.split) if one not in unchanged)
        return Remedy(name, overrides, about, predicted, first.predict(), gain, changes=changes)

    def _pipeline(self, demands: tuple[Demand, ...]) -> Pipeline:
        now = self._workload
        return Pipeline(demands, self._consumer, now.pages, now.batch_size, now.workers, now.cores, now.processes)

    def _demands(self, candidate: Candidate, trial: Pass, is_cold: bool = False) -> tuple[Demand, ...]:
        """The stages of a candidate, scaled to what its batches took."""
        seconds = trial.seconds * self._busy_workers / trial.pages
        cpu = self._measured.busy(seconds, trial.cpu_seconds / trial.pages)
        skipped = frozenset() if candidate.fills_cache and is_cold else candidate.skips
        stages = tuple(one for one in self._measured.demands if one.kind not in skipped)
        if skipped:
            rest = max(0.0, seconds - sum(demand.seconds for demand in stages))
            rest_cpu = max(0.0, cpu - sum(demand.cpu_seconds for demand in stages))
            stages = (Demand(candidate.read_stage, rest, rest_cpu), *stages)
        factor = seconds / max(1e-9, sum(demand.seconds for demand in stages))
        return (*scaled(stages, factor), *self._disk(candidate, skipped))

    def _disk(self, candidate: Candidate, skipped: frozenset[str]) -> list[Demand]:
        """Reading what does not fit into memory: all workers share one disk."""
        now = self._workload
        size = (candidate.kept_bytes if "source" in skipped else 0) or now.file_bytes
        if size * now.all_pages <= now.free_memory_bytes or not now.disk_bytes_per_s:
            return []
        return [Demand("disk", 0.0, 0.0, size / now.disk_bytes_per_s, DISK)]


def _engine(workload: Workload) -> str:
    return "processes" if workload.processes else "threads"
