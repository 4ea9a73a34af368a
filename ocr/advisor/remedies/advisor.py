"""Advise: measure the pipeline and the model of a config, predict what each remedy would gain, and verify that."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import OmegaConf

from ocr.advisor.catalogue import CATALOGUE, with_workers
from ocr.advisor.measure.epoch_trace import Trace, TracedLoader, trace_later_epoch
from ocr.advisor.measure.model_epoch import time_model_epoch
from ocr.advisor.measure.model_step import ModelStep, SleepingStep, find_device, model_threads
from ocr.advisor.measure.pages import choose_pages, file_bytes, spread
from ocr.advisor.measure.stage_demands import Measured, measure_demands
from ocr.advisor.measure.stage_timing import one_opencv_thread
from ocr.advisor.measure.throughput import measure_throughput
from ocr.advisor.measure.timed_batches import (
    Pass,
    open_dali,
    run_part,
    time_batches,
    time_dali,
    time_processes,
)
from ocr.advisor.model.queueing import Consumer
from ocr.advisor.remedies.advice import SAME, Advice, Remedy, combine
from ocr.advisor.remedies.candidates import Candidate, Candidates, Compose, TrialDataset
from ocr.advisor.remedies.model_side import ModelSide
from ocr.advisor.remedies.predictor import Predictor, StepOutlook, Workload
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError, DataError
from ocr.loader.loader import Loader
from ocr.pipeline.batch import Batch
from ocr.pipeline.device import Arrival

VERIFY_SECONDS = 20.0
"""Of a longer epoch with the model only so much is run."""
Tick = Callable[[str], None]
"""Called before each piece of work, with what it is."""


@dataclass(frozen=True, slots=True)
class AdviseSettings:
    """How much is measured, and for which consumer."""

    split: str = "train"
    pages: int = 64
    step_ms: float | None = None
    """Of the consumer; None: the real model is measured."""
    rounds: int = 3
    skip: tuple[str, ...] = ()
    """Words in the names of changes of the model that are left out."""

    def __post_init__(self) -> None:
        if self.pages < 1:
            raise ConfigError(f"--pages {self.pages} must be an integer >= 1", setting="--pages", value=self.pages)
        if self.step_ms is not None and not 0 <= self.step_ms < float("inf"):
            raise ConfigError(
                f"--step-ms {self.step_ms} must be a number of milliseconds >= 0",
                setting="--step-ms",
                value=self.step_ms,
            )


class Advisor:
    """Measures one split of a config on a few pages, and predicts epochs of all of them."""

    def __init__(
        self, compose: Compose, settings: AdviseSettings, cores: int, free_memory_bytes: float = float("inf")
    ) -> None:
        self.settings, self.cores, self.free_memory_bytes = settings, cores, free_memory_bytes
        self._compose = compose
        self._candidates = Candidates(compose, settings.split)
        config, uncached = self._candidates.config, self._candidates.uncached
        if config.get("use_dali"):
            raise ConfigError(
                "use_dali=true: DALI is tried beside the default loader in any case. Leave it out",
                setting="use_dali",
                value=True,
            )
        loader = config.dataloaders[f"{settings.split}_dataloader"]
        self.batch_size, self.workers = int(loader.batch_size), int(loader.num_workers)
        self._shuffle, self._drop_last = bool(loader.shuffle), bool(loader.drop_last)
        # With --step-ms the model is on another machine, and so is the normalisation of its batches.
        self._device = find_device(config.trainer.accelerator) if settings.step_ms is None else None
        count = max(self.batch_size, settings.pages // self.batch_size * self.batch_size)
        self._indices = choose_pages(uncached, count)
        if not self._indices:
            raise DataError(
                f"none of {count} pages of {uncached.source.location} can be read. Find out why: ocr doctor",
                path=str(uncached.source.location),
            )
        self.throughput = measure_throughput(uncached)
        self.file_bytes = fmean(file_bytes(uncached, index) for index in self._indices)
        self._model: ModelSide | None = None

    @property
    def workload(self) -> Workload:
        """What is predicted."""
        config, split = self._candidates.config, self.settings.split
        node = f"dataloaders.{split}_dataloader"
        follows = OmegaConf.is_interpolation(OmegaConf.select(config, node), "num_workers")
        return Workload(
            split,
            len(self._candidates.uncached),
            self.file_bytes,
            self.batch_size,
            self.workers,
            config.data.engine == "processes",
            self.cores,
            self.free_memory_bytes,
            self.throughput["disk_bytes_per_s"],
            self._drop_last,
            config.trainer[f"limit_{split}_batches"] if split in ("train", "val") else 1.0,
            "data.num_workers" if follows else f"{node}.num_workers",
        )

    def advise(self, folder: Path, tick: Tick) -> Advice:
        """Measure, predict and rank."""
        with one_opencv_thread():
            tick("stages")
            measured = self._measure_stages()
            tick("the step of the model, as configured")
            outlook = self._measure_model()
            candidates = [self._candidates.present(), *self._candidates.others()]
            trials = self._try(candidates, folder, tick)
            predictor = Predictor(self.workload, measured, outlook)
            present, *remedies = [predictor.candidate(one, *trials[one.name]) for one in candidates]
        remedies += predictor.other_workers()
        tick("worker processes and DALI")
        remedies += self._other_loaders(predictor, candidates[0], folder)
        if self._model is not None:
            remedies += self._model.remedies(predictor, tick, self.settings.skip)
        remedies += _combined([remedy for remedy in remedies if not remedy.command], present)
        remedies.sort(key=lambda remedy: (not remedy.fits, -round(remedy.gain, 2), len(remedy.overrides)))
        location = str(self._candidates.uncached.source.location)
        shape = (self.workload.pages, self.batch_size, self.workers)
        advice = Advice(location, *shape, measured.demands, outlook.consumer, present, remedies)
        advice.left_out = self._model.left_out if self._model is not None else {}
        tick("a timeline")
        advice.timeline, advice.memory = self._timeline(candidates[0], folder, outlook.consumer)
        return advice

    def verify(self, advice: Advice, folder: Path, tick: Tick) -> None:
        """Run epochs of the present configuration and of every remedy that can be built, and compare."""
        remedies = [one for one in [advice.present, *advice.remedies] if not one.combined and one.changes != "consumer"]
        # DALI's threads would disturb the others.
        for group in ([one for one in remedies if one.name != "DALI"], [one for one in remedies if one.name == "DALI"]):
            self._verify_together(group, advice, folder, tick)
            gc.collect()
        if self._model is None:
            return
        for remedy in advice.remedies:
            overrides = self._model.overrides.get(remedy.name)
            if overrides is not None and remedy.fits:
                tick(f"{remedy.name}: at most {VERIFY_SECONDS:.0f} s of an epoch")
                config = self._compose((*overrides, f"cache.folder={folder}", "cache.max_bytes=1TB"))
                seconds = time_model_epoch(config, self.settings.split, VERIFY_SECONDS)
                advice.verified.append((remedy.name, remedy.later.epoch_seconds, seconds))

    def _verify_together(self, remedies: Sequence[Remedy], advice: Advice, folder: Path, tick: Tick) -> None:
        """Epochs of all, in turns; the fastest counts, after a pass without the model."""
        loaders = {}
        for remedy in remedies:
            tick(f"{remedy.name}: all pages")
            loaders[remedy.name] = self._open_loader(remedy, remedy.candidate or advice.present.candidate, folder)
        seconds: dict[str, list[float]] = {name: [] for name in loaders}
        step = self._step(advice.consumer)
        rounds = 1 if self._model is not None else self.settings.rounds
        with one_opencv_thread(), model_threads(self._candidates.config):
            for turn in range(1 + rounds):
                for name, loader in loaders.items():
                    tick(f"{name}: epoch {turn + 1}")
                    seconds[name].append(run_part(loader, step if turn else None, VERIFY_SECONDS if turn else inf))
        advice.verified += [(one.name, one.later.epoch_seconds, min(seconds[one.name][1:])) for one in remedies]

    def _open_loader(self, remedy: Remedy, candidate: Candidate | None, folder: Path) -> Loader:
        assert candidate is not None
        pipeline, uncached = remedy.later.pipeline, self._candidates.uncached
        settings: dict[str, Any] = {"shuffle": self._shuffle, "drop_last": self._drop_last, "device": self._device}
        if remedy.name == "DALI":
            dali = open_dali(uncached, self.batch_size, max(1, self.workers), **settings)
            assert dali is not None
            return dali
        dataset = candidate.build(range(len(uncached)), folder).dataset
        engine = "processes" if pipeline.processes else "threads"
        return Loader(dataset, self.batch_size, pipeline.workers, engine, **settings)

    def _measure_stages(self) -> Measured:
        measured = measure_demands(self._candidates.uncached, self._indices, self.workers, self.cores)
        if self._device is not None:
            return measured
        return measured._replace(demands=tuple(one for one in measured.demands if one.name != "device"))

    def _measure_model(self) -> StepOutlook:
        if self._device is None:
            return StepOutlook(Consumer((self.settings.step_ms or 0.0) / 1e3), self.batch_size)
        self._model = ModelSide(self._compose, self.workload, self._device)
        return self._model.outlook

    def _try(self, candidates: Sequence[Candidate], folder: Path, tick: Tick) -> dict[str, tuple[Pass, Pass]]:
        """The first pass of each over the chosen pages, and the fastest of a few more in which all take turns."""
        cold: dict[str, Pass] = {}
        warm: dict[str, Pass] = {}
        passes = {}
        for candidate in candidates:
            tick(candidate.name)
            run = passes[candidate.name] = self._pass(candidate.build(self._indices, folder))
            cold[candidate.name] = run()
        for _ in range(self.settings.rounds):
            for name, run in passes.items():
                tick(name)
                trial = run()
                warm[name] = min(trial, warm.get(name, trial), key=lambda one: one.seconds)
        passes.clear()
        gc.collect()
        filling = {candidate.name for candidate in candidates if candidate.fills_cache}
        return {name: (cold[name] if name in filling else again, again) for name, again in warm.items()}

    def _pass(self, tried: TrialDataset) -> Callable[[], Pass]:
        """One pass over the batches of a trial, as far as the device."""
        return partial(time_batches, tried.dataset, self._plan(tried), self.workers, self._finish(tried.dataset))

    def _plan(self, tried: TrialDataset) -> list[list[int]]:
        """Batches of the chosen pages; of neighbours if nothing is shuffled, because those can be views of a cache."""
        size, indices = self.batch_size, tried.indices if self._shuffle else sorted(tried.indices)
        if not self._shuffle and max(size, len(indices) + 1) <= len(tried.dataset):
            starts = spread(len(tried.dataset) - size + 1, max(1, len(indices) // size))
            return [list(range(start, start + size)) for start in starts]
        return [indices[start : start + size] for start in range(0, len(indices), size)]

    def _finish(self, dataset: PageDataset) -> Callable[[Batch], Batch] | None:
        return None if self._device is None else Arrival(dataset.transform.normalization, self._device).bring

    def _other_loaders(self, predictor: Predictor, present: Candidate, folder: Path) -> list[Remedy]:
        """Worker processes and DALI; what is not installed, or cannot run these stages, is left out."""
        found = []
        if not self.workload.processes and self.workers:
            tried = present.build(self._indices, folder)
            self._pass(tried)()
            times = time_processes(tried.dataset, self._plan(tried), self.workers)
            found.append(predictor.loader(with_workers("processes", self.workers), times, processes=True))
        dali = open_dali(self._candidates.uncached, self.batch_size, max(1, self.workers))
        if dali is not None:
            found.append(predictor.loader(CATALOGUE["DALI"], time_dali(dali)))
        return found

    def _step(self, consumer: Consumer) -> ModelStep | SleepingStep:
        return self._model.step if self._model is not None else SleepingStep(consumer.step_seconds)

    def _timeline(self, candidate: Candidate, folder: Path, consumer: Consumer) -> Trace:
        dataset = candidate.build(self._indices, folder).dataset
        engine = "processes" if self.workload.processes else "threads"
        settings: dict[str, Any] = {"shuffle": self._shuffle, "drop_last": self._drop_last, "device": self._device}
        loader = TracedLoader(dataset, self.batch_size, self.workers, engine, **settings)
        return trace_later_epoch(loader, self._step(consumer), consumer.step_seconds)


def _combined(remedies: Sequence[Remedy], present: Remedy) -> list[Remedy]:
    """Combinations after which the model learns the same, and those of all; each once."""
    exact = [remedy for remedy in remedies if remedy.hmean == SAME]
    found = {one.overrides: one for one in (*combine(exact, present), *combine(remedies, present))}
    return list(found.values())
