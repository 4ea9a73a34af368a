"""The model's side: its step as configured and with each change, measured here, as epochs and as a whole run."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf

from ocr.advisor.catalogue import Configuration
from ocr.advisor.measure.model_step import ModelStep, model_threads
from ocr.advisor.measure.step_costs import StepCosts, measure_step, page_counts
from ocr.advisor.measure.typical_batch import TypicalBatch
from ocr.advisor.model.training_run import TrainingRun
from ocr.advisor.remedies.advice import NOT_KNOWN, NOTICEABLE, SAME, Remedy
from ocr.advisor.remedies.candidates import Compose
from ocr.advisor.remedies.model_candidates import ModelCandidate, model_candidates
from ocr.advisor.remedies.predictor import Predictor, StepOutlook, Workload
from ocr.errors import GlyphFeedError

PRESENT_SECONDS = 5.0
"""For the step as configured, with 1, 2, 4, ... pages."""
PAGES_ON_CPU = 16
USABLE = 0.9
"""Share of the free memory that a step may take: batches that are made ahead take some, too."""
VALIDATION_PAGES = 2
VALIDATIONS = 15
"""As many as recipes have."""
WORTH_LESS = 0.05
"""Validations that take a smaller share of the run are left alone."""
COMBINED = "several"
MOST_TIMES = 16
"""Larger batches than so many times the present one are not advised."""


class Trial(NamedTuple):
    """A configuration whose step was measured."""

    costs: StepCosts
    validation_seconds: float


class ModelSide:
    """Measures and predicts changes of the model's step."""

    def __init__(self, compose: Compose, workload: Workload, device: torch.device) -> None:
        self._compose, self._workload, self._device = compose, workload, device
        self._split, self._training = workload.split, workload.split == "train"
        self.config = compose(())
        self.free_bytes = USABLE * _free_bytes(device, workload.free_memory_bytes)
        self._typical: dict[tuple[str, ...], TypicalBatch] = {}
        self._configs: dict[str, DictConfig] = {}
        self.left_out: dict[str, str] = {}
        """Changes that could not be measured, and why."""
        self.overrides: dict[str, tuple[str, ...]] = {}
        """Of each remedy that changes epochs."""
        with model_threads(self.config):
            self.step = ModelStep(self.config, device, self._training)
        self._now = self._measure_present()

    @property
    def outlook(self) -> StepOutlook:
        """The present configuration."""
        return self._outlook(self.config, self._now)

    def remedies(self, predictor: Predictor, tick: Callable[[str], None], skip: Sequence[str] = ()) -> list[Remedy]:
        """Every change alone, and those that help together; each is measured unless its name has a word of `skip`."""
        listed = model_candidates(self.config, self._split, self._workload.cores, self._device, self._steps)
        listed = [one for one in listed if not any(word in one.name for word in skip)]
        found: list[tuple[ModelCandidate, Remedy]] = []
        begin = time.monotonic()
        for number, candidate in enumerate(listed):
            left = (time.monotonic() - begin) / number * (len(listed) - number) if number else 0.0
            shown = f", about {left:.0f} s left" if number else ""
            tick(f"the model: {candidate.name} ({number + 1} of {len(listed)}{shown})")
            trial = self._try(candidate)
            if trial is not None:
                found.append((candidate, self._remedy(predictor, candidate, trial)))
        found += [(one, self._remedy(predictor, one, self._now)) for one in (*self._batches(), *self._validations())]
        for together in _combinations(found):
            tick(f"the model: {together.name}")
            trial = self._try(together)
            if trial is not None:
                found.append((together, self._remedy(predictor, together, trial)))
        return [remedy for _, remedy in found]

    def _measure_present(self) -> Trial:
        pages = self._pages(self.config, self._split)
        with model_threads(self.config):
            counts = page_counts(len(pages.batch["images"]))
            costs = measure_step(self.step, pages.batch, counts, PRESENT_SECONDS, not self._training)
            return Trial(costs, self._validate(self.config, self.step))

    def _try(self, candidate: ModelCandidate) -> Trial | None:
        """Measure a change; what cannot be built or run here is left out, with the reason."""
        gc.collect()
        try:
            config = self._config(candidate)
            with model_threads(config):
                return self._measure(config)
        except (GlyphFeedError, RuntimeError) as error:  # Torch's own errors: no memory, no compiler.
            self.left_out[candidate.name] = (str(error).splitlines() or [type(error).__name__])[0]
            return None

    def _config(self, candidate: ModelCandidate) -> DictConfig:
        """Composed once: Hydra takes a third of a second."""
        if candidate.name not in self._configs:
            self._configs[candidate.name] = self._compose(candidate.configuration.overrides_for(self._split))
        return self._configs[candidate.name]

    def _measure(self, config: DictConfig) -> Trial:
        pages = self._pages(config, self._split)
        step = ModelStep(config, self._device, self._training)
        most = min(self._now.costs.pages, len(pages.batch["images"]))
        # A compiled model would be compiled again for a second number of pages, and for validation.
        counts = [most] if config.compile_model else sorted({max(1, most // 2), most})
        shapes = pages.shapes if config.compile_model else 1
        costs = measure_step(step, pages.batch, counts, validating=not self._training, shapes=shapes)
        compiled = config.compile_model and not self.config.compile_model
        return Trial(costs, self._now.validation_seconds if compiled else self._validate(config, step))

    def _validate(self, config: DictConfig, step: ModelStep) -> float:
        """Seconds of the model in a validation; boxes are found beside it."""
        if not self._training or (config.get("datasets") or {}).get("val_dataset") is None:
            return 0.0
        pages = self._pages(config, "val")
        counts = [min(VALIDATION_PAGES, len(pages.batch["images"]))]
        costs = measure_step(step, pages.batch, counts, validating=True)
        batches, limit = pages.all_pages / pages.batch_size, config.trainer.limit_val_batches
        batches = min(batches, limit) if isinstance(limit, int) else batches * limit
        return batches * costs.consumer(pages.batch_size, pages.mean_pixels).step_seconds

    def _pages(self, config: DictConfig, split: str) -> TypicalBatch:
        # No other change of the model changes pages.
        settings = ("transforms.size", "transforms.letterbox.shape")
        key = (split, *(str(OmegaConf.select(config, setting)) for setting in settings))
        if key not in self._typical:
            batch_size = 2 * int(config.dataloaders[f"{split}_dataloader"].batch_size)
            most = batch_size if self._device.type == "cuda" else min(PAGES_ON_CPU, batch_size)
            most = most if split == self._split else VALIDATION_PAGES
            self._typical[key] = TypicalBatch(config, split, self._device, most)
        return self._typical[key]

    def _remedy(self, predictor: Predictor, candidate: ModelCandidate, trial: Trial) -> Remedy:
        config = self._config(candidate)
        if candidate.setting != "validations":
            self.overrides[candidate.name] = candidate.configuration.overrides
        remedy = predictor.step(candidate.configuration, self._outlook(config, trial), candidate.hmean)
        return replace(remedy, combined=candidate.setting == COMBINED)

    def _outlook(self, config: DictConfig, trial: Trial) -> StepOutlook:
        pages, now = self._pages(config, self._split), self._pages(self.config, self._split)
        batch_size = int(config.dataloaders[f"{self._split}_dataloader"].batch_size)
        return StepOutlook(
            trial.costs.consumer(batch_size, pages.mean_pixels),
            batch_size,
            pages.mean_pixels / now.mean_pixels,
            trial.costs.first_seconds if config.compile_model else 0.0,
            self._run(config, batch_size, trial.validation_seconds),
            trial.costs.memory_bytes(batch_size, pages.largest_pixels),
            self.free_bytes,
        )

    @property
    def _steps(self) -> int:
        """Batches per epoch, as configured."""
        return max(1, ceil(self._workload.pages / self._workload.batch_size))

    def _run(self, config: DictConfig, batch_size: int, validation_seconds: float) -> TrainingRun | None:
        """All epochs of a training; None if the config does not say how many."""
        trainer, steps = config.trainer, max(1, ceil(self._workload.pages_in(batch_size) / batch_size))
        epochs, most = trainer.max_epochs, trainer.get("max_steps") or -1
        if most > 0:
            by_steps = ceil(most * trainer.accumulate_grad_batches / steps)
            epochs = by_steps if epochs in (None, -1) else min(epochs, by_steps)
        if not self._training or epochs in (None, -1):
            return None
        validations = epochs // (trainer.check_val_every_n_epoch or epochs) if validation_seconds else 0
        return TrainingRun(epochs, validations, validation_seconds)

    def _batches(self) -> Iterator[ModelCandidate]:
        """Other numbers of pages per batch: the largest that fits, the fastest per page, the same in parts."""
        key, now = f"dataloaders.{self._split}_dataloader.batch_size", self._workload.batch_size
        costs, pages = self._now.costs, self._pages(self.config, self._split)
        room = costs.most_pages(self.free_bytes, pages.largest_pixels)
        # A batch of a quarter of all pages leaves an epoch with few steps.
        most = int(min(room, self._workload.all_pages / 4, MOST_TIMES * now))
        largest = now << max(0, (most // now).bit_length() - 1)
        fastest = min(costs.times, key=lambda count: costs.times[count][0] / count)
        sizes = {2 * now, largest, *([fastest] if fastest < now else [])} - {now}
        for size in sorted(sizes):
            if size <= max(largest, self._workload.all_pages / 4):
                about = f"there is memory for {room:.0f} pages" if room < inf else "other steps of the optimizer"
                configuration = Configuration(f"batches of {size}", about, (f"{key}={size}",), "model")
                yield ModelCandidate(configuration, "batch", NOT_KNOWN if self._training else SAME)
        if self._training and now > 1:
            parts = 2 * int(self.config.trainer.accumulate_grad_batches)
            overrides = (f"{key}={now // 2}", f"trainer.accumulate_grad_batches={parts}")
            about = "as many pages per step of the optimizer in half the memory; norms see half of them"
            name = f"batches of {now // 2}, {parts} per step"
            yield ModelCandidate(Configuration(name, about, overrides, "model"), "batch")

    def _validations(self) -> Iterator[ModelCandidate]:
        """Fewer validations, if they take a noticeable part of the run."""
        run, steps = self.outlook.run, self._steps
        if run is None or not run.validations:
            return
        validating = run.validations * run.validation_seconds
        training = run.epochs * steps * self.outlook.consumer.step_seconds
        every = max(2 * (run.epochs // run.validations), run.epochs // VALIDATIONS)
        if validating < WORTH_LESS * (training + validating) or every > run.epochs:
            return
        about = f"the best epoch is chosen among {run.epochs // every} instead of {run.validations}"
        overrides = (f"trainer.check_val_every_n_epoch={every}",)
        yield ModelCandidate(Configuration("fewer validations", about, overrides, "model"), "validations", SAME)


def _combinations(found: Sequence[tuple[ModelCandidate, Remedy]]) -> list[ModelCandidate]:
    """The best change of each setting together: those after which the model learns the same, and all."""
    best: dict[str, tuple[ModelCandidate, Remedy]] = {}
    for candidate, remedy in sorted(found, key=lambda each: each[1].gain):
        if remedy.gain > NOTICEABLE and remedy.fits:
            best[candidate.setting] = candidate, remedy
    every = [candidate for candidate, _ in best.values()]
    if any("weights=" in override for one in every for override in one.configuration.overrides):
        # Weights have a decoder of their own, and so few epochs that all validations are needed.
        every = [one for one in every if one.setting not in ("decoder", "validations")]
    exact = [candidate for candidate in every if candidate.hmean == SAME]
    sets = [exact, every] if len(exact) < len(every) else [exact]
    return [_together(parts) for parts in sets if len(parts) > 1]


def _together(parts: Sequence[ModelCandidate]) -> ModelCandidate:
    overrides = tuple(override for part in parts for override in part.configuration.overrides)
    effects = [f"{part.name}: {part.hmean}" for part in parts if part.hmean != SAME]
    name = " + ".join(part.name for part in parts)
    configuration = Configuration(name, "measured together", overrides, "model")
    return ModelCandidate(configuration, COMBINED, "; ".join(effects) or SAME)


def _free_bytes(device: torch.device, of_machine: float) -> float:
    """Where the model is."""
    return float(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else of_machine
