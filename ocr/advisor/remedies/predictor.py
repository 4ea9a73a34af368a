"""From measurements on a few pages to epochs of all of them, with each remedy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ocr.advisor.catalogue import Configuration, with_workers
from ocr.advisor.measure.stage_demands import Measured
from ocr.advisor.measure.timed_batches import LoaderTimes, Pass
from ocr.advisor.model.queueing import DISK, Consumer, Demand, Pipeline, scaled
from ocr.advisor.model.training_run import TrainingRun
from ocr.advisor.remedies.advice import SAME, Remedy
from ocr.advisor.remedies.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Workload:
    """The epoch that is predicted, and the resources for it."""

    split: str
    all_pages: int
    file_bytes: float
    """Mean per page."""
    batch_size: int
    workers: int
    processes: bool
    cores: int
    free_memory_bytes: float
    disk_bytes_per_s: float
    drop_last: bool = False
    max_batches: int | float = 1.0
    """Per epoch, as trainer.limit_train_batches has it: a number, or a share."""
    workers_setting: str = "data.num_workers"
    """The setting that counts: an experiment may give each loader a number of its own."""

    @property
    def pages(self) -> int:
        """Per epoch, as configured."""
        return self.pages_in(self.batch_size)

    def pages_in(self, batch_size: int) -> int:
        """Per epoch in batches of this size: without the last one if it is dropped.

        >>> Workload("train", 100, 0.0, 16, 2, False, 2, 0.0, 0.0, drop_last=True, max_batches=0.5).pages_in(16)
        48
        """
        pages = self.all_pages // batch_size * batch_size if self.drop_last else self.all_pages
        if isinstance(self.max_batches, int):
            return min(pages, self.max_batches * batch_size)
        return pages if self.max_batches == 1 else int(self.max_batches * pages / batch_size) * batch_size


class StepOutlook(NamedTuple):
    """What the model of a configuration takes."""

    consumer: Consumer
    batch_size: int
    pixels: float = 1.0
    """Of a page, relative to the present configuration."""
    first_seconds: float = 0.0
    """Once, before the first step: compiling."""
    run: TrainingRun | None = None
    memory_bytes: int = 0
    free_bytes: float = float("inf")


class Predictor:
    """Predicts remedies for one workload and one model; all are compared with `present`."""

    def __init__(self, workload: Workload, measured: Measured, outlook: StepOutlook) -> None:
        self._workload, self._measured, self._outlook = workload, measured, outlook
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

    def step(self, configuration: Configuration, outlook: StepOutlook, hmean: str = SAME) -> Remedy:
        """Another step of the model."""
        changed: dict[str, Any] = {
            "consumer": outlook.consumer,
            "batch_size": outlook.batch_size,
            "pages": self._workload.pages_in(outlook.batch_size),
            "pixels": outlook.pixels,
        }
        later = replace(self._now.later.pipeline, **changed)
        first = replace(self._now.first.pipeline, **changed, start_seconds=outlook.first_seconds)
        remedy = replace(self._remedy(configuration, later, first, "consumer", outlook), hmean=hmean)
        return replace(remedy, about=f"{remedy.about}; {self._step_times(outlook)}")

    def _step_times(self, outlook: StepOutlook) -> str:
        now, then = (1e3 * one.consumer.step_seconds / one.batch_size for one in (self._outlook, outlook))
        compiling = f", after {outlook.first_seconds:.0f} s of compiling" if outlook.first_seconds > 1 else ""
        return f"the model needs {then:.3g} ms per page instead of {now:.3g}{compiling}"

    @property
    def _now(self) -> Remedy:
        assert self.present is not None, "predict the present configuration first"
        return self.present

    def _remedy(
        self,
        configuration: Configuration,
        later: Pipeline,
        first: Pipeline,
        changes: str = "",
        outlook: StepOutlook | None = None,
    ) -> Remedy:
        now, model = self._workload, outlook or self._outlook
        unchanged = (f"data.engine={_engine(now)}", f"data.num_workers={now.workers}")
        overrides = tuple(
            one.replace("data.num_workers", now.workers_setting)
            for one in configuration.overrides_for(now.split)
            if one not in unchanged
        )
        remedy = Remedy(
            configuration.name,
            overrides,
            configuration.about,
            later.predict(),
            first.predict(),
            1.0,
            changes=changes,
            run=model.run,
            memory_bytes=model.memory_bytes,
            free_bytes=model.free_bytes,
        )
        return remedy if self.present is None else replace(remedy, gain=self.present.seconds / remedy.seconds)

    def _pipeline(self, demands: tuple[Demand, ...]) -> Pipeline:
        now = self._workload
        consumer = self._outlook.consumer
        return Pipeline(demands, consumer, now.pages, now.batch_size, now.workers, now.cores, now.processes)

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
