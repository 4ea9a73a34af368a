"""Advise: measure the pipeline of a config, predict what each remedy would bring, and check the predictions."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from ocr.advisor.measure.data_path import find_device
from ocr.advisor.measure.loader_trials import EngineTrial, dali_loader, try_dali, try_processes
from ocr.advisor.measure.model_step import ModelStep, SleepingStep
from ocr.advisor.measure.stage_demands import Measured, choose_pages, measure_demands, size_of
from ocr.advisor.measure.stage_timing import one_opencv_thread
from ocr.advisor.measure.throughput import measure_rates
from ocr.advisor.measure.timed_batches import Span, Trial, run_epoch, time_batches
from ocr.advisor.model.queueing import DISK, Consumer, Demand, Pipeline, Prediction, scaled
from ocr.advisor.remedies.advice import Advice, Remedy, combine
from ocr.advisor.remedies.candidates import Candidate, Compose, Tried, Workshop
from ocr.errors import ConfigError
from ocr.loader.loader import Loader
from ocr.pipeline.device import Arrival

Tick = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is measured, and for whom."""

    split: str = "train"
    pages: int = 64
    step_ms: float | None = None
    """Of the consumer; None: the real model is measured."""
    rounds: int = 3

    def __post_init__(self) -> None:
        if self.pages < 1:
            raise ConfigError(f"pages={self.pages} (--pages) must be at least 1")
        if self.step_ms is not None and not 0 <= self.step_ms < float("inf"):
            raise ConfigError(f"step_ms={self.step_ms} (--step-ms) is no time of a step: 0 or more milliseconds")


class Advisor:
    """Measures one split of a config on a few pages, and predicts epochs of all."""

    def __init__(
        self, compose: Compose, settings: Settings, cores: int, free_memory_bytes: float = float("inf")
    ) -> None:
        self.settings, self.cores, self.free_memory_bytes = settings, cores, free_memory_bytes
        self.shop = Workshop(compose, settings.split)
        config = self.shop.config
        loader = config.dataloaders[f"{settings.split}_dataloader"]
        self.batch_size, self.workers = int(loader.batch_size), int(loader.num_workers)
        self.shuffle, self.drop_last = bool(loader.shuffle), bool(loader.drop_last)
        self.processes = config.data.engine == "processes"
        self.device = find_device(config.trainer.accelerator)
        if config.get("use_dali"):
            raise ConfigError("use_dali=true: DALI is tried beside the default loader anyway. Leave it out")
        plain = self.shop.plain
        if not hasattr(plain, "source"):
            raise ConfigError(f"datasets.{settings.split}_dataset is streamed: advise needs shards with an index")
        count = min(len(plain), max(self.batch_size, settings.pages // self.batch_size * self.batch_size))
        self.indices = choose_pages(plain, count)
        self.rates = measure_rates(plain)
        self.file_bytes = fmean(size_of(plain, index) for index in self.indices)
        self.pages = len(plain) // self.batch_size * self.batch_size if self.drop_last else len(plain)
        self.step: SleepingStep | ModelStep | None = None

    def advise(self, folder: Path, tick: Tick) -> Advice:
        """Measure, predict and rank."""
        with one_opencv_thread():
            tick("stages")
            fresh = measure_demands(self.shop.plain, self.indices, self.workers, self.cores)
            if self.settings.step_ms is not None:
                # The device of a model that is elsewhere normalises there.
                fresh = fresh._replace(demands=tuple(one for one in fresh.demands if one.name != "device"))
            tick("the consumer")
            consumer = self._measure_consumer()
            candidate, *others = [self.shop.present(), *self.shop.others()]
            trials = self._try([candidate, *others], folder, tick)
            present = self._remedy(candidate, *trials[candidate.name], consumer, fresh, None)
            remedies = [self._remedy(other, *trials[other.name], consumer, fresh, present.later) for other in others]
        remedies += self._analytic(present)
        tick("processes and DALI")
        remedies += self._engines(present, folder)
        if isinstance(self.step, ModelStep):
            tick("bf16")
            remedies += self._in_bf16(present)
        remedies += combine([remedy for remedy in remedies if not remedy.command], present)
        remedies.sort(key=lambda remedy: (-round(remedy.gain, 2), len(remedy.overrides)))
        advice = Advice(
            str(self.shop.plain.source.location),
            self.pages,
            self.batch_size,
            self.workers,
            fresh.demands,
            consumer,
            present,
            remedies,
        )
        tick("a timeline")
        advice.timeline = self._timeline(candidate, folder, consumer)
        return advice

    def verify(self, advice: Advice, folder: Path, tick: Tick) -> None:
        """Run whole epochs of the present configuration and of every remedy that can be built, and compare."""
        remedies = [one for one in [advice.present, *advice.remedies] if not one.combined and one.name != "bf16"]
        # DALI's own threads would be in the way of the others.
        for group in ([one for one in remedies if one.name != "DALI"], [one for one in remedies if one.name == "DALI"]):
            self._verify_together(group, advice, folder, tick)
            gc.collect()

    def _verify_together(self, remedies: Sequence[Remedy], advice: Advice, folder: Path, tick: Tick) -> None:
        """Whole epochs of all, in turns; the fastest counts."""
        loaders = {}
        for remedy in remedies:
            tick(f"{remedy.name}: all pages")
            loaders[remedy.name] = remedy, self._whole(remedy, remedy.candidate or advice.present.candidate, folder)
        seconds: dict[str, list[float]] = {name: [] for name in loaders}
        with one_opencv_thread():
            for turn in range(1 + self.settings.rounds):
                for name, (_, loader) in loaders.items():
                    tick(f"{name}: epoch {turn + 1}")
                    seconds[name].append(run_epoch(loader, self.step)[0])
        advice.verified += [
            (name, remedy.later.epoch_seconds, min(seconds[name][1:])) for name, (remedy, _) in loaders.items()
        ]

    def _whole(self, remedy: Remedy, candidate: Candidate | None, folder: Path) -> Loader:
        assert candidate is not None
        pipeline = remedy.later.pipeline
        device = None if self.settings.step_ms is not None else self.device
        settings: dict[str, Any] = {"shuffle": self.shuffle, "drop_last": self.drop_last, "device": device}
        if remedy.name == "DALI":
            loader: Loader = dali_loader(self.shop.plain, self.batch_size, max(1, self.workers), **settings)
            return loader
        dataset = candidate.build(range(len(self.shop.plain)), folder).dataset
        engine = "processes" if remedy.name == "processes" else "threads"
        return Loader(dataset, self.batch_size, pipeline.workers, engine, **settings)

    def _measure_consumer(self) -> Consumer:
        if self.settings.step_ms is not None:
            self.step = SleepingStep(self.settings.step_ms / 1e3)
            return self.step.consumer
        training = self.settings.split == "train"
        self.step = ModelStep(self.shop.config, self.device, training)
        return self.step.measure(self._some_batch(), self.batch_size)

    def _some_batch(self) -> dict[str, Any]:
        arrival = Arrival(self.shop.plain.transform.normalization, self.device)
        loader = Loader(self.shop.plain, min(2, len(self.shop.plain)), 0)
        batch = next(iter(loader))
        assert batch is not None
        return arrival.receive(arrival.bring(batch))

    def _try(self, candidates: Sequence[Candidate], folder: Path, tick: Tick) -> dict[str, tuple[Trial, Trial]]:
        """The sampled pages of each for the first time, and the fastest of a few rounds in which all take turns."""
        cold: dict[str, Trial] = {}
        warm: dict[str, Trial] = {}
        makers = {}
        for candidate in candidates:
            tick(candidate.name)
            tried = candidate.build(self.indices, folder)
            plan = self._plan(tried)
            makers[candidate.name] = partial(
                time_batches, tried.dataset, plan, max(1, self.workers), self._finish(tried.dataset), rounds=1
            )
            cold[candidate.name] = makers[candidate.name]()
        for _ in range(self.settings.rounds):
            for name, make in makers.items():
                tick(name)
                trial = make()
                warm[name] = min(trial, warm.get(name, trial), key=lambda one: one.seconds)
        makers.clear()
        gc.collect()
        keeps = {candidate.name for candidate in candidates if candidate.keeps}
        return {name: (cold[name] if name in keeps else again, again) for name, again in warm.items()}

    def _plan(self, tried: Tried) -> list[list[int]]:
        """Batches of the sampled pages: neighbours, where batches are handed out as they lie."""
        indices = tried.indices if self.shuffle else sorted(tried.indices)
        if not self.shuffle and len(indices) < len(tried.dataset):
            first = np.linspace(0, len(tried.dataset) - self.batch_size, len(indices) // self.batch_size).astype(int)
            return [list(range(start, start + self.batch_size)) for start in first.tolist()]
        return [indices[start : start + self.batch_size] for start in range(0, len(indices), self.batch_size)]

    def _finish(self, dataset: Any) -> Any:
        if self.settings.step_ms is not None:
            return None
        return Arrival(dataset.transform.normalization, self.device).bring

    def _remedy(
        self,
        candidate: Candidate,
        cold: Trial,
        warm: Trial,
        consumer: Consumer,
        fresh: Measured,
        present: Prediction | None,
    ) -> Remedy:
        workers = self.workers
        later = self._pipeline(self._demands(candidate, warm, fresh), consumer, workers).predict()
        first = self._pipeline(self._demands(candidate, cold, fresh, cold=True), consumer, workers).predict()
        gain = 1.0 if present is None else present.epoch_seconds / later.epoch_seconds
        kept = candidate.kept_bytes * len(self.shop.plain)
        head = (candidate.name, candidate.overrides, candidate.why)
        return Remedy(*head, later, first, gain, kept, candidate.command, candidate=candidate)

    def _demands(self, candidate: Candidate, trial: Trial, fresh: Measured, cold: bool = False) -> tuple[Demand, ...]:
        """The stages of a candidate, made to agree with what its batches took here."""
        at_work = max(1, min(self.workers, self.cores))
        seconds = trial.seconds * at_work / trial.pages
        cpu = fresh.busy(seconds, trial.cpu_seconds / trial.pages)
        spared = frozenset() if candidate.keeps and cold else candidate.spares
        stages = tuple(one for one in fresh.demands if one.kind not in spared)
        if spared:
            rest = max(0.0, seconds - sum(demand.seconds for demand in stages))
            rest_cpu = max(0.0, cpu - sum(demand.cpu_seconds for demand in stages))
            stages = (Demand(candidate.by, rest, rest_cpu), *stages)
        factor = seconds / max(1e-9, sum(demand.seconds for demand in stages))
        return (*scaled(stages, factor), *self._disk(candidate, spared))

    def _disk(self, candidate: Candidate, spared: frozenset[str]) -> list[Demand]:
        """Reading what does not fit into memory: one disk, whoever asks."""
        size = (candidate.kept_bytes if "source" in spared else 0) or self.file_bytes
        rate = self.rates["disk_bytes_per_s"]
        if size * len(self.shop.plain) <= self.free_memory_bytes or not rate:
            return []
        return [Demand("disk", 0.0, 0.0, size / rate, DISK)]

    def _pipeline(self, demands: tuple[Demand, ...], consumer: Consumer, workers: int) -> Pipeline:
        return Pipeline(demands, consumer, self.pages, self.batch_size, workers, self.cores, self.processes)

    def _analytic(self, present: Remedy) -> list[Remedy]:
        """Other numbers of workers: the model alone tells."""
        found = []
        pipeline = present.later.pipeline
        for workers in sorted({1, self.cores, 2 * self.cores} - {self.workers}):
            later = replace(pipeline, workers=workers).predict()
            first = replace(present.first.pipeline, workers=workers).predict()
            gain = present.later.epoch_seconds / later.epoch_seconds
            name = f"{workers} worker{'s' * (workers != 1)}"
            why = "more pages are made at a time" if workers > self.workers else "fewer pages are made at a time"
            found.append(Remedy(name, (f"data.num_workers={workers}",), why, later, first, gain))
        return found

    def _engines(self, present: Remedy, folder: Path) -> list[Remedy]:
        """Other makers of batches; what is not installed, or cannot do these stages, is left out."""
        found, plain, shape = [], self.shop.plain, (self.batch_size, max(1, self.workers))
        if not self.processes and self.workers:
            assert present.candidate is not None
            tried = present.candidate.build(self.indices, folder)
            time_batches(tried.dataset, self._plan(tried), self.workers, rounds=1)
            trial = try_processes(tried.dataset, self._plan(tried), self.workers)
            why = "every worker has an interpreter of its own, and sends its batches over"
            found.append(self._engine("processes", "data.engine=processes", why, trial, present))
        dali = dali_loader(plain, *shape)
        if dali is not None:
            why = "decoding and resizing in DALI, on the CPU" if self.device.type == "cpu" else "decoding on the GPU"
            found.append(self._engine("DALI", "use_dali=true", why, try_dali(dali), present))
        return found

    def _engine(self, name: str, override: str, why: str, trial: EngineTrial, present: Remedy) -> Remedy:
        workers = max(1, min(self.workers, self.cores))
        seconds = trial.batch_seconds * workers / self.batch_size
        pipeline = self._pipeline((Demand(name, seconds, seconds),), present.later.pipeline.consumer, self.workers)
        # Started anew in every epoch.
        predicted = replace(pipeline, start_seconds=trial.start_seconds).predict()
        gain = present.later.epoch_seconds / predicted.epoch_seconds
        return Remedy(name, (override,), why, predicted, predicted, gain)

    def _in_bf16(self, present: Remedy) -> list[Remedy]:
        if "bf16" in str(self.shop.config.trainer.precision):
            return []
        step = ModelStep(self.shop.config, self.device, self.settings.split == "train", "bf16-mixed")
        consumer = step.measure(self._some_batch(), self.batch_size)
        later = replace(present.later.pipeline, consumer=consumer).predict()
        first = replace(present.first.pipeline, consumer=consumer).predict()
        gain = present.later.epoch_seconds / later.epoch_seconds
        why = f"a step takes {1e3 * consumer.step_seconds:.0f} ms instead of {1e3 * present.later.limits['model']:.0f}"
        return [Remedy("bf16", ("trainer.precision=bf16-mixed",), why, later, first, gain)]

    def _timeline(self, candidate: Candidate, folder: Path, consumer: Consumer) -> list[Span]:
        if consumer.step_seconds > 2:
            return []
        tried = candidate.build(self.indices, folder)
        plan = self._plan(tried)
        time_batches(tried.dataset, plan, max(1, self.workers), self._finish(tried.dataset), rounds=1)
        loader = Loader(tried.dataset, self.batch_size, self.workers)
        return run_epoch(loader, SleepingStep(consumer.step_seconds))[1]
