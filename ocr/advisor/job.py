"""`glyphfeed advise`: run the configuration and every change of it for a few seconds, and say what would help."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from ocr.advisor import remedies
from ocr.advisor.advice import PRESENT, Advice, Change, Row, Show, progress
from ocr.advisor.measure import (
    SECONDS,
    ModelStep,
    SleepingStep,
    Step,
    Timing,
    Trial,
    describe_machine,
    find_device,
    first_sentence,
    model_threads,
    run_trials,
)
from ocr.advisor.tuned import apply_changes
from ocr.datasets.build import build_dataset
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError, GlyphFeedError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.jobs.compose import compose_training
from ocr.jobs.run import run_job
from ocr.jobs.threads import share_cores
from ocr.loader.loader import Loader
from ocr.pipeline.timing import stage_times
from ocr.report.numbers import in_percent
from ocr.system import has_ended, usable_cores

OWN_SETTINGS = ("split", "step_ms", "stages", "all_rows", "compile", "alter", "verify", "apply", "html", "json")
"""Those that `glyphfeed train` does not have."""
LIMIT = 52.0
"""Seconds for measuring; starting the command takes some more. Whole epochs and compilation come on top."""
RESERVED = 10.0
"""Of the limit, for confirming what the first rounds found."""
LONG_STEP = 0.25
"""Seconds; a longer step is not run with every change of the loader."""
TOO_LONG_STEP = 2.5
"""Seconds; a longer step is not even run with the present loader."""
SMALL_SHARE = 0.2
"""A loader that takes less than this share of the steps is measured alone."""
NO_SHARE = 0.04
"""Changes of a loader that takes less than this share of the steps cannot be worth it."""
MIN_STEPS = 3
"""Of the present model and of a changed one, in turns."""
CONFIRMED = 2
"""More rounds of the present configuration and of what seems best; of at most so many changes."""
PREFIX = "advise-"

Tried = dict[str, tuple[Change | None, Trial]]


class Advisor:
    """The configuration, and what was measured of it."""

    def __init__(self, config: DictConfig, show: Show, seconds: float | None = None, limit: float = LIMIT) -> None:
        """`seconds`: on the clock, per configuration. `limit`: of all measurements."""
        self.seconds = SECONDS if seconds is None else seconds
        self.split, self.show, self.cores = str(config.split), show, usable_cores()
        self.config = remedies.for_measuring(config, self.split)
        self._until = time.perf_counter() + limit
        self.device = find_device(str(config.trainer.accelerator))
        self._datasets: dict[str, Any] = {}
        self.step: Step
        self.step_seconds = self._steps = self._loader_seconds = 0.0
        self._batches: list[dict[str, Any]] = []

    # -- parts

    def loader(self, overrides: Sequence[str] = ()) -> Loader:
        """The loader of the config with these changes; datasets that are the same are opened once."""
        config = remedies.changed(self.config, overrides)
        share_cores(config)
        data = _Data(config, self.device if self.device.type != "cpu" else None)
        node = OmegaConf.to_yaml(config.datasets[f"{self.split}_dataset"], resolve=True)
        if not config.use_dali:
            if node not in self._datasets:
                self._datasets[node] = build_dataset(config, self.split)
            data.datasets[self.split] = self._datasets[node]
        return data.loader(self.split)

    def trial(self, overrides: Sequence[str] = (), step: Step | None = None, may_fail: bool = False) -> Trial:
        """The loader with these changes, which is run with the threads that they leave it."""
        config = remedies.changed(self.config, overrides)
        loader = self.loader(overrides)
        return Trial(loader, step, self.seconds, prepare=lambda: share_cores(config), may_fail=may_fail)

    def measure_step(self) -> float:
        """Seconds of a step of the model alone, by the pixels of the batches that were sampled."""
        self.show("the model's step")
        with model_threads(self.config):
            model = ModelStep(self.config, self.device, self.split == "train")
            self._batches = self._sample_batches(model)
            per_pixel = model.seconds_per_pixel(self._batches, 1.5 * self.seconds)
        self.step = model
        return per_pixel

    def _sample_batches(self, model: ModelStep) -> list[dict[str, Any]]:
        """Two batches, cut to as many pages as their steps have time for."""
        with closing(iter(self.loader())) as running:  # type: ignore[type-var]
            sampled = [_copied(batch) for batch in islice(running, 2) if batch is not None]
        if not sampled:
            raise ConfigError("the loader gives no batch. Check the data: glyphfeed doctor DATA", setting="datasets")
        few = {name: one[:2] for name, one in sampled[0].items()}
        model(few)
        seconds_of_two = model.seconds_per_pixel([few], 0.0) * float(few["images"][..., 0, :, :].numel())
        pages = max(2, int(self.seconds / 2 / max(seconds_of_two, 1e-6)))  # A quarter of the time for a step.
        return [{name: one[:pages] for name, one in batch.items()} for batch in sampled]

    def measure_stages(self) -> dict[str, float]:
        """Seconds per page of each stage of the path, in this thread."""
        self.show("the stages of the path")
        loader = f"dataloaders.{self.split}_dataloader"
        trial = self.trial([f"{loader}.num_workers=0", f"{loader}.drop_last=false"])
        trial.seconds = self.seconds / 2
        trial.warm_up()
        with stage_times() as times:
            trial.run_round()
        pages = max(1, sum(one.pages for one in trial.timing.passes))
        return {name: seconds / pages for name, seconds in times.seconds.items()}

    # -- the advice

    def advise(self, folder: Path, compiling: bool = False) -> Advice:
        """Measure the present configuration, then every change, for as long as there is time."""
        alone = self.trial()
        run_trials({"the loader alone": alone}, self.show, 1, repeats=0)
        self._loader_seconds, per_pixel = alone.timing.seconds, 0.0
        stages = self.measure_stages()
        if self.config.step_ms is None:
            per_pixel = self.measure_step()
            self.step_seconds = per_pixel * alone.timing.pixels_per_batch
        else:
            self.step_seconds = self.config.step_ms / 1e3
            self.step = SleepingStep(self.step_seconds)
        self._steps = self.step_seconds * alone.timing.batches
        tried, not_tried = self._trials(folder)
        if self.step_seconds <= TOO_LONG_STEP:
            rounds = 2 if self.step_seconds <= LONG_STEP else 1
            trials = {name: trial for name, (_, trial) in tried.items()}
            trials[PRESENT].warm_as(alone)
            run_trials({PRESENT: trials[PRESENT]}, self.show, 1, repeats=0)
            run_trials(trials, self.show, rounds, until=self._until - RESERVED)
            present = tried[PRESENT][1].timing
            seconds, wait = present.seconds, present.wait_share
        else:
            present = alone.timing
            seconds = self._epoch_of_parts(present.seconds)
            wait = max(present.first_wait, 0.0 if self._shares_cores else seconds - self._steps) / seconds
        advice = Advice(
            str(alone.loader.dataset.source.location),
            alone.timing.pages,
            alone.timing.batches,
            present,
            seconds,
            wait,
            alone.timing.seconds,
            self.step_seconds,
            machine=describe_machine(),
            step_name=self._step_name,
            step_cause=remedies.step_cause(alone.timing.pages_per_batch) if self.config.step_ms is None else "",
            not_tried=not_tried,
            stages=stages,
            may_alter=self.config.alter,
        )
        self._refresh(advice, tried)
        self._confirm(advice, tried, folder)
        if self.config.step_ms is None:
            self._add_model_rows(advice, per_pixel, alone.timing, compiling)
        else:
            not_tried["changes of the model and the batch size"] = "step_ms stands for the model"
        self._add_computed(advice, alone.timing)
        timings = {name: trial.timing for name, (_, trial) in tried.items() if trial.timing.rounds}
        timings["the loader alone"] = alone.timing
        advice.noisy = [name for name, timing in timings.items() if timing.is_noisy]
        advice.others = max(timing.others for timing in timings.values())
        return advice

    @property
    def _shares_cores(self) -> bool:
        """Whether the model computes on the cores of the loader."""
        return self.device.type == "cpu" and self.config.step_ms is None

    def _epoch_of_parts(self, loader_seconds: float, steps: float | None = None) -> float:
        """Loader and steps at the same time: what both take if they share the cores, else the longer of them."""
        steps = self._steps if steps is None else steps
        return steps + loader_seconds if self._shares_cores else max(steps, loader_seconds)

    def _trials(self, folder: Path) -> tuple[Tried, dict[str, str]]:
        """The present configuration and every change of its loader; and changes that cannot be tried."""
        tried: Tried = {PRESENT: (None, self.trial((), self.step))}
        not_tried: dict[str, str] = {}
        share = self._loader_seconds / max(self._steps, 1e-9)
        if self.step_seconds > LONG_STEP and share < NO_SHARE:
            not_tried["changes of the loader"] = f"the loader takes {in_percent(share)} of the time of the steps"
            return tried, not_tried
        together = self.step_seconds <= LONG_STEP or share > SMALL_SHARE
        changes = remedies.loader_changes(self.config, self.split, self.cores, self.device.type == "cuda")
        for change in [*changes, *remedies.other_loader_changes(self.config, self.split)]:
            try:
                self.show(change.name)
                trial = self.trial(_with_cache_in(folder, change), self.step if together else None, may_fail=True)
                tried[change.name] = (change, trial)
            except (GlyphFeedError, ImportError) as error:
                not_tried[change.name] = first_sentence(error)
        return tried, not_tried

    def _refresh(self, advice: Advice, tried: Tried) -> None:
        """Present time and rows, by all rounds up to now."""
        if tried[PRESENT][1].timing.rounds:
            advice.present = timing = tried[PRESENT][1].timing
            advice.seconds, advice.wait_share = timing.seconds, timing.wait_share
        advice.rows, advice.other_rows = [], []
        for name, (change, trial) in tried.items():
            if change is None:
                continue
            if not trial.timing.rounds:
                advice.not_tried[name] = trial.error or "no time left"
                continue
            timing, how = trial.timing, "measured"
            gain = timing.pages_per_second * advice.seconds / advice.pages
            if trial.step is None:
                how, scale = "from parts", advice.pages / timing.pages
                gain = self._epoch_of_parts(self._loader_seconds) / self._epoch_of_parts(timing.seconds * scale)
            fills = change.setting == "cache" and "=auto" in change.overrides[0] and timing.filling is not None
            first = timing.filling.seconds if fills and timing.filling is not None else None
            row = Row(change, advice.seconds / gain, gain, how, first)
            (advice.other_rows if change.hmean else advice.rows).append(row)

    def _confirm(self, advice: Advice, tried: Tried, folder: Path) -> None:
        """The best changes together; then more rounds of what is best: it must not have been lucky."""
        useful = [row for row in advice.useful if row.change.setting and row.how == "measured"]
        if (change := remedies.combined(useful)) is not None:
            try:
                trial = self.trial(_with_cache_in(folder, change), self.step, may_fail=True)
                run_trials({change.name: trial}, self.show, repeats=0, until=self._until)
                tried[change.name] = (change, trial)
            except (GlyphFeedError, ImportError) as error:
                advice.not_tried[change.name] = first_sentence(error)
            self._refresh(advice, tried)
        confirmed: set[str] = set()
        while len(confirmed) < CONFIRMED:
            names = {row.change.name for row in (advice.best, advice.best_single) if row and row.how == "measured"}
            if not (names := names - confirmed):
                return
            trials = {name: trial for name, (_, trial) in tried.items() if name in (PRESENT, *names)}
            run_trials(trials, self.show, CONFIRMED, repeats=0, until=self._until)
            confirmed |= names
            self._refresh(advice, tried)

    @property
    def _step_name(self) -> str:
        if self.config.step_ms is not None:
            return f"the step of {self.config.step_ms:g} ms"
        return f"a step of {self.config.model.encoder} on {self.device.type}"

    def _add_model_rows(self, advice: Advice, per_pixel: float, timing: Timing, compiling: bool) -> None:
        """Each change of the model, with a few pages: how many times as long a step takes."""
        if not compiling and not self.config.compile_model:
            advice.not_tried["compiled model"] = "it takes minutes: compile=true"
        for change in remedies.model_changes(self.config, self.split, self.cores, self.device, compiling):
            if time.perf_counter() > self._until and change.name != "compiled model":
                advice.not_tried[change.name] = "no time left"
                continue
            self.show(change.name)
            try:
                factor = self._step_factor(change)
            except (GlyphFeedError, RuntimeError) as error:
                advice.not_tried[change.name] = first_sentence(error)
                continue
            then = self._epoch_of_parts(timing.seconds, self._steps * factor)
            gain = self._epoch_of_parts(timing.seconds) / then
            row = Row(change, advice.seconds / gain, gain, "from parts")
            (advice.other_rows if change.hmean else advice.rows).append(row)
        row_of_start = remedies.shorter_run(self.config, timing.batches, advice.seconds)
        if self.split == "train" and row_of_start is not None:
            advice.other_rows.append(row_of_start)

    def _step_factor(self, change: Change) -> float:
        """How many times as long a step takes per page; both models take turns, and the fastest step of each counts."""
        config = remedies.changed(self.config, change.overrides)
        changed = [_resized(batch, change, self.config) for batch in self._batches]
        with model_threads(config):
            model = ModelStep(config, self.device, self.split == "train")
            model(changed[0])
        present: list[float] = []
        then: list[float] = []
        ended = time.perf_counter() + self.seconds
        for before, after in cycle(zip(self._batches, changed, strict=True)):
            for step, settings, batch, spent in (
                (self.step, self.config, before, present),
                (model, config, after, then),
            ):
                with model_threads(settings):
                    began = time.perf_counter()
                    step(batch)
                    spent.append((time.perf_counter() - began) / len(batch["images"]))
            if len(then) >= MIN_STEPS and time.perf_counter() > ended:
                return min(then) / min(present)
        raise AssertionError("there is always a batch")

    def _add_computed(self, advice: Advice, alone: Timing) -> None:
        """What cannot be run here."""
        if advice.bottleneck == "loader":
            change = Change("twice the cores", (), f"only {self.cores} cores", "")
            seconds = max(alone.seconds / 2, self._steps)
        elif self._shares_cores:
            change, seconds = Change("a GPU, at most", (), "the model is on the CPU", ""), alone.seconds
        else:
            return
        if seconds < advice.seconds:
            advice.rows.append(Row(change, seconds, advice.seconds / seconds, "computed"))

    def verify(self, advice: Advice, folder: Path) -> None:
        """A whole epoch of the present configuration and of the best change, after one that is not counted."""
        named: dict[str, tuple[tuple[str, ...], float]] = {PRESENT: ((), advice.seconds)}
        if advice.best is not None:
            named[advice.best.change.name] = (_with_cache_in(folder, advice.best.change), advice.best.seconds)
        for name, (overrides, predicted) in named.items():
            self.show(f"a whole epoch: {name}")
            step = self.step
            if isinstance(step, ModelStep) and overrides:
                step = ModelStep(remedies.changed(self.config, overrides), self.device, self.split == "train")
            advice.verified.append((name, predicted, self.trial(overrides, step).run_epoch()))


class _Data(OCRDataModule):
    """Loaders that bring their batches to a device, without a trainer."""

    def __init__(self, config: DictConfig, device: torch.device | None) -> None:
        super().__init__(config)
        self._device = device

    def _where(self) -> dict[str, Any]:
        return {} if self._device is None else {"device": self._device}


def _with_cache_in(folder: Path, change: Change) -> tuple[str, ...]:
    """The overrides; a cache that is not there yet is tried in a folder that is removed."""
    own = (f"cache.folder={folder}",) if any(one.endswith("cache=auto") for one in change.overrides) else ()
    return (*change.overrides, *own)


def _copied(batch: dict[str, Any]) -> dict[str, Any]:
    """The tensors of a batch, whose memory the loader uses again."""
    return {name: one.clone() for name, one in batch.items() if isinstance(one, torch.Tensor)}


def _resized(batch: dict[str, Any], change: Change, config: DictConfig) -> dict[str, Any]:
    """The batch as a change makes it: other sides, or another number of pages."""
    value = change.overrides[0].partition("=")[2]
    if change.setting == "size":
        factor = int(value) / int(config.transforms.size)
        height, width = (max(32, int(side * factor) // 32 * 32) for side in batch["images"].shape[-2:])
        return {name: one[..., :height, :width] if one.ndim > 2 else one for name, one in batch.items()}
    if change.setting == "batch":
        pages = int(value) if len(batch["images"]) < remedies.SMALL_BATCH else 2 * len(batch["images"])
        times = -(-pages // len(batch["images"]))
        return {name: one.repeat(times, *[1] * (one.ndim - 1))[:pages] for name, one in batch.items()}
    return batch


# -- the job


def run(config: DictConfig, console: Console) -> Advice:
    """Measure, show, and write what the config asks for."""
    _check(config)
    command = shlex.join(["glyphfeed", "advise", *HydraConfig.get().overrides.task])
    warm_up()
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message=".*worker processes in total")  # That is what is tried.
        show = stack.enter_context(progress(console, LIMIT))
        folder = stack.enter_context(_temporary_folder(config))
        advisor = Advisor(config, show)
        advice = advisor.advise(folder, config.compile)
        if config.verify:
            advisor.verify(advice, folder)
    advice.command, advice.show_all, advice.show_stages = command, config.all_rows, config.stages
    advice.show(console)
    for path in filter(None, (config.html, config.json)):
        advice.write(path)
        console.print(f"written: {path}", highlight=False, soft_wrap=True, markup=False)
    if config.apply:
        _apply(advice, console, command)
    return advice


def _check(config: DictConfig) -> None:
    if config.json is not None and not str(config.json).endswith(".json"):
        raise ConfigError(f"json={config.json} must end with .json", setting="json", value=config.json)


def _apply(advice: Advice, console: Console, command: str) -> None:
    running = HydraConfig.get()
    overrides = advice.best.change.overrides if advice.best is not None else ()
    changed = {override.partition("=")[0] for override in overrides}
    replaced = {word.partition("=")[0]: word for word in running.overrides.task if word.partition("=")[0] in changed}

    def composed(more: list[str]) -> DictConfig:
        # As `glyphfeed train` would, which finds what was written just now.
        left_out = {*OWN_SETTINGS, *replaced, *(word.partition("=")[0] for word in more)}
        typed = [word for word in running.overrides.task if word.partition("=")[0] not in left_out]
        of_job = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            return compose_training([*typed, *more])
        finally:
            GlobalHydra.instance().initialize(of_job)  # type: ignore[arg-type]

    choices = {name: running.runtime.choices.get(name) for name in ("data", "experiment")}
    path, use = apply_changes(overrides, choices, composed, command)
    text = f"no change makes an epoch faster, so {path.resolve()} changes nothing"
    if advice.best is not None:
        text = f"{advice.best.change.name} is written to {path.resolve()}. Use it with {use}"
    text += f", and without {' '.join(replaced.values())}" if replaced else ""
    console.print(text, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def _temporary_folder(config: DictConfig) -> Iterator[Path]:
    """A folder next to the caches for those that are only tried; folders of killed commands are removed too."""
    from ocr.cache.store import cache_root

    root = cache_root(config.cache.folder)
    root.mkdir(parents=True, exist_ok=True)
    for left in root.glob(f"{PREFIX}*-*"):
        if has_ended(left.name.removeprefix(PREFIX).split("-")[0]):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def show_stages(config: DictConfig, console: Console) -> None:
    """Only the stages of the path: the table of `scripts/profile_transforms.py`."""
    _check(config)
    warm_up()
    with progress(console, LIMIT) as show:
        stages = Advisor(config, show).measure_stages()
    timing = Timing(0)
    console.print(Advice("", 0, 0, timing, 1.0, 0.0, None, None, stages=stages).stage_table())


def main(job: Callable[[DictConfig, Console], object] = run, *overrides: str) -> None:
    """`glyphfeed advise`, or another job with its settings; these overrides come before the command line's."""
    sys.argv[1:1] = overrides
    run_job("advise", lambda config, console: (job(config, console), 0)[1])


if __name__ == "__main__":
    main()
