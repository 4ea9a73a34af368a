"""`glyphfeed advise`: run the configuration and every change of it for a few seconds, and say what would help."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ocr.advisor import remedies
from ocr.advisor.advice import Advice, Change, Row
from ocr.advisor.measure import (
    ModelStep,
    SleepingStep,
    Step,
    Timing,
    Trial,
    describe_machine,
    find_device,
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
from ocr.system import has_ended, usable_cores

OWN_SETTINGS = ("split", "step_ms", "stages", "all_rows", "compile", "verify", "apply", "html", "json")
"""Those that `glyphfeed train` does not have."""
LONG_STEP = 0.25
"""Seconds; a longer step is not run with every change of the loader."""
SMALL_SHARE = 0.2
"""A loader that takes less than this share of the steps is measured alone."""
NO_SHARE = 0.04
"""Changes of a loader that takes less than this share of the steps cannot be worth it."""
STEP_SECONDS = 3.0
"""For timing the model of the config; changes of it get half of that each."""
VERIFY_SECONDS = 60.0
STAGE_SECONDS = 1.0
PREFIX = "advise-"

Show = Callable[[str], object]


class Advisor:
    """The configuration, and what was measured of it."""

    def __init__(self, config: DictConfig, show: Show) -> None:
        self.split, self.show, self.cores = str(config.split), show, usable_cores()
        self.config = remedies.for_measuring(config, self.split)
        self.device = find_device(str(config.trainer.accelerator))
        self._datasets: dict[str, Any] = {}
        self.step: Step
        self.step_seconds = 0.0
        self._batches: list[dict[str, Any]] = []
        self._failed: dict[str, str] = {}

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

    def measure_step(self) -> float:
        """Seconds of a step of the model alone, by the pixels of the batches that were sampled."""
        self.show("the model's step")
        with model_threads(self.config):
            model = ModelStep(self.config, self.device, self.split == "train")
            self._batches = self._sample_batches(model)
            per_pixel = model.seconds_per_pixel(self._batches, STEP_SECONDS)
        self.step = model
        return per_pixel

    def _sample_batches(self, model: ModelStep) -> list[dict[str, Any]]:
        """Two batches, cut to as many pages as their steps have time for."""
        with closing(iter(self.loader())) as running:  # type: ignore[type-var]
            sampled = [_copied(batch) for batch in islice(running, 2) if batch is not None]
        if not sampled:
            raise ConfigError("the loader gives no batch. Find out why: glyphfeed doctor DATA", setting="datasets")
        few = {name: one[:2] for name, one in sampled[0].items()}
        model(few)
        seconds_of_two = model.seconds_per_pixel([few], 0.0) * float(few["images"][..., 0, :, :].numel())
        pages = max(2, int(2 * STEP_SECONDS / 2 / max(seconds_of_two, 1e-6)))
        return [{name: one[:pages] for name, one in batch.items()} for batch in sampled]

    def measure_stages(self) -> dict[str, float]:
        """Seconds per page of each stage of the path, in this thread."""
        self.show("the stages of the path")
        loader = f"dataloaders.{self.split}_dataloader"
        trial = Trial(self.loader([f"{loader}.num_workers=0", f"{loader}.drop_last=false"]), None, STAGE_SECONDS)
        trial.warm_up()
        with stage_times() as times:
            trial.run_round()
        pages = max(1, sum(one.pages for one in trial.timing.passes))
        return {name: seconds / pages for name, seconds in times.seconds.items()}

    # -- the advice

    def advise(self, folder: Path, compiling: bool = False) -> Advice:
        """Measure the present configuration, then every change."""
        alone = Trial(self.loader(), None)
        run_trials({"the loader alone": alone}, self.show)
        together, per_pixel = True, 0.0
        if self.config.step_ms is None:
            per_pixel = self.measure_step()
            self.step_seconds = per_pixel * alone.timing.pixels_per_batch
            steps = self.step_seconds * alone.timing.batches
            together = self.step_seconds <= LONG_STEP or alone.timing.seconds > SMALL_SHARE * steps
        else:
            self.step_seconds = self.config.step_ms / 1e3
            self.step = SleepingStep(self.step_seconds)
        steps = self.step_seconds * alone.timing.batches
        tried = self._loader_trials(folder, together) if together or alone.timing.seconds > NO_SHARE * steps else {}
        run_trials({name: trial for name, (_, trial) in tried.items()}, self.show, 2 if self._is_short else 1)
        present = tried["present"][1].timing if tried and together else alone.timing
        seconds, wait = present.seconds, present.wait_share
        if not together:
            seconds = self._epoch_of_parts(alone.timing.seconds, steps)
            wait = max(0.0, 1 - steps / seconds) if self.device.type != "cpu" else alone.timing.first_wait / seconds
        advice = Advice(
            _place(alone.loader.dataset),
            alone.timing.pages,
            alone.timing.batches,
            present,
            seconds,
            wait,
            alone.timing.seconds,
            self.step_seconds,
            machine=describe_machine(),
            step_name=self._step_name(alone.timing),
            not_tried=self._failed,
        )
        self._add_rows(advice, tried, together, steps)
        if together and (change := remedies.combined([row for row in advice.useful if row.change.setting])) is not None:
            self._try_again(advice, tried, change, folder)
        if together and advice.best is not None:
            self._confirm(advice, tried)
        if self.config.step_ms is None:
            self._add_model_rows(advice, per_pixel, alone.timing, compiling)
        if not tried:
            share = f"the loader takes {alone.timing.seconds / steps:.0%} of the time of the steps"
            advice.not_tried["changes of the loader"] = share
        if self.config.step_ms is not None:
            advice.not_tried["changes of the model and the batch size"] = "step_ms stands for the model"
        if not compiling and self.config.step_ms is None and not self.config.compile_model:
            advice.not_tried["compiled model"] = "it takes minutes: compile=true"
        self._add_computed(advice, alone.timing, steps)
        advice.stages = self.measure_stages()
        trials = {name: trial.timing for name, (_, trial) in tried.items()} | {"the loader alone": alone.timing}
        advice.noisy = [name for name, timing in trials.items() if timing.is_noisy]
        advice.others = max(timing.others for timing in trials.values())
        return advice

    @property
    def _is_short(self) -> bool:
        return self.step_seconds <= LONG_STEP

    def _epoch_of_parts(self, loader_seconds: float, steps: float) -> float:
        """Loader and steps at the same time: they share the cores if the model is on the CPU."""
        return steps + loader_seconds if self.device.type == "cpu" else max(steps, loader_seconds)

    def _loader_trials(self, folder: Path, together: bool) -> dict[str, tuple[Change | None, Trial]]:
        has_gpu = self.device.type == "cuda"
        changes = remedies.loader_changes(self.config, self.split, self.cores, has_gpu)
        changes += remedies.other_loader_changes(self.config, self.split)
        step = self.step if together else None
        tried: dict[str, tuple[Change | None, Trial]] = {"present": (None, Trial(self.loader(), step))}
        for change in changes:
            if (trial := self._trial(change, folder, step)) is not None:
                tried[change.name] = (change, trial)
        return tried

    def _trial(self, change: Change, folder: Path, step: Step | None) -> Trial | None:
        """The loader of a change; None if it cannot be made, which is told."""
        # A cache that is not there yet is tried in a folder that is removed.
        own = [f"cache.folder={folder}"] if any(one.endswith("cache=auto") for one in change.overrides) else []
        try:
            self.show(change.name)
            return Trial(self.loader([*change.overrides, *own]), step)
        except (GlyphFeedError, ImportError) as error:
            self._failed[change.name] = str(error).split(". ")[0]
            return None

    def _add_rows(
        self, advice: Advice, tried: dict[str, tuple[Change | None, Trial]], together: bool, steps: float
    ) -> None:
        advice.rows, advice.other_rows = [], []
        for change, trial in tried.values():
            if change is None:
                continue
            timing, how = trial.timing, "measured"
            pages_per_second = timing.pages_per_second
            if not together:
                how = "from parts"
                pages_per_second = timing.pages / self._epoch_of_parts(timing.seconds, steps)
            gain = pages_per_second / (advice.pages / advice.seconds)
            fills = change.setting == "cache" and "=auto" in change.overrides[0] and timing.filling is not None
            first = timing.filling.seconds if fills and timing.filling is not None else None
            row = Row(change, advice.seconds / gain, gain, how, first)
            (advice.other_rows if change.hmean else advice.rows).append(row)

    def _try_again(
        self, advice: Advice, tried: dict[str, tuple[Change | None, Trial]], change: Change, folder: Path
    ) -> None:
        """The best changes together."""
        trial = self._trial(change, folder, self.step)
        if trial is None:
            return
        run_trials({change.name: trial}, self.show)
        tried[change.name] = (change, trial)
        self._refresh(advice, tried)

    def _confirm(self, advice: Advice, tried: dict[str, tuple[Change | None, Trial]]) -> None:
        """Once more in turns: what is recommended must not have been lucky."""
        assert advice.best is not None
        for _ in range(2):
            for name in ("present", advice.best.change.name):
                self.show(name)
                tried[name][1].run_round()
        self._refresh(advice, tried)

    def _refresh(self, advice: Advice, tried: dict[str, tuple[Change | None, Trial]]) -> None:
        timing = tried["present"][1].timing
        advice.present, advice.seconds, advice.wait_share = timing, timing.seconds, timing.wait_share
        self._add_rows(advice, tried, True, 0.0)

    def _step_name(self, timing: Timing) -> str:
        if self.config.step_ms is not None:
            return f"the step of {self.config.step_ms:g} ms"
        pages = round(timing.pages_per_batch)
        few = f", with only {pages} page{'s' * (pages > 1)} per step" if pages < remedies.SMALL_BATCH else ""
        return f"a step of {self.config.model.encoder} on {self.device.type}{few}"

    def _add_model_rows(self, advice: Advice, per_pixel: float, timing: Timing, compiling: bool) -> None:
        """Each change of the model, with a few pages: how many times as long a step takes."""
        steps = self.step_seconds * timing.batches
        for change in remedies.model_changes(self.config, self.split, self.cores, self.device, compiling):
            self.show(change.name)
            config = remedies.changed(self.config, change.overrides)
            batches = [_resized(batch, change, self.config) for batch in self._batches]
            try:
                with model_threads(config):
                    model = ModelStep(config, self.device, self.split == "train")
                    spent = model.seconds_per_pixel(batches, STEP_SECONDS / 2)
            except (GlyphFeedError, RuntimeError) as error:
                self._failed[change.name] = str(error).split(". ")[0].splitlines()[0]
                continue
            factor = spent / per_pixel
            if change.setting == "size":
                factor *= batches[0]["images"][0, 0].numel() / self._batches[0]["images"][0, 0].numel()
            own = self._epoch_of_parts(timing.seconds, steps * factor)
            gain = self._epoch_of_parts(timing.seconds, steps) / own
            row = Row(change, advice.seconds / gain, gain, "from parts")
            (advice.other_rows if change.hmean else advice.rows).append(row)
        row_of_start = remedies.shorter_run(self.config, timing.batches, advice.seconds)
        if self.split == "train" and row_of_start is not None:
            advice.other_rows.append(row_of_start)

    def _add_computed(self, advice: Advice, alone: Timing, steps: float) -> None:
        """What cannot be run here."""
        if advice.bottleneck == "loader":
            seconds = max(alone.seconds / 2, steps)
            change = Change("twice the cores", (), f"only {self.cores} cores", "")
            advice.rows.append(Row(change, seconds, advice.seconds / seconds, "computed"))
        elif self.config.step_ms is None and self.device.type == "cpu":
            seconds = alone.seconds
            change = Change("a GPU, at most", (), "the model is on the CPU", "")
            advice.rows.append(Row(change, seconds, advice.seconds / seconds, "computed"))

    def verify(self, advice: Advice, folder: Path) -> None:
        """A whole epoch of the present configuration and of the best change, after one that is not counted."""
        named: dict[str, tuple[tuple[str, ...], float]] = {"present": ((), advice.seconds)}
        if advice.best is not None:
            named[advice.best.change.name] = (advice.best.change.overrides, advice.best.seconds)
        for name, (overrides, predicted) in named.items():
            self.show(f"a whole epoch: {name}")
            own = [f"cache.folder={folder}"] if any(one.endswith("cache=auto") for one in overrides) else []
            trial = Trial(self.loader([*overrides, *own]), self._step_for(overrides), VERIFY_SECONDS)
            trial.warm_up()
            trial.seconds = 0.0
            trial.run_round()
            advice.verified.append((name, predicted, trial.timing.seconds))

    def _step_for(self, overrides: Sequence[str]) -> Step:
        if self.config.step_ms is not None:
            return self.step
        return ModelStep(remedies.changed(self.config, overrides), self.device, self.split == "train")


def _place(dataset: Any) -> str:
    return str(dataset.source.location)


class _Data(OCRDataModule):
    """Loaders that bring their batches to a device, without a trainer."""

    def __init__(self, config: DictConfig, device: torch.device | None) -> None:
        super().__init__(config)
        self._device = device

    def _where(self) -> dict[str, Any]:
        return {} if self._device is None else {"device": self._device}


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
        show = stack.enter_context(progress(console))
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
    best = advice.best
    if best is None:
        told = "nothing to apply: no change makes an epoch faster"
    else:
        running = HydraConfig.get()
        changed = {override.partition("=")[0] for override in best.change.overrides}
        replaced = {
            word.partition("=")[0]: word for word in running.overrides.task if word.partition("=")[0] in changed
        }

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
        path, use = apply_changes(best.change.overrides, choices, composed, command)
        told = f"{best.change.name} is written to {path.resolve()}: use it with {use}"
        told += f", and without {' '.join(replaced.values())}" if replaced else ""
    console.print(told, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def progress(console: Console) -> Iterator[Show]:
    """Shows what is being measured: in a terminal as a bar, into a file as a line for each."""
    if not console.is_terminal:
        seen: set[str] = set()

        def tell(what: str) -> None:
            if what not in seen:
                seen.add(what)
                console.print(f"measuring {what}", highlight=False, markup=False, soft_wrap=True)

        yield tell
        return
    columns = (SpinnerColumn(), TextColumn("measuring {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("")
        yield lambda what: bar.update(task, description=escape(what))


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
    with progress(console) as show:
        stages = Advisor(config, show).measure_stages()
    timing = Timing(0)
    console.print(Advice("", 0, 0, timing, 1.0, 0.0, None, None, stages=stages).stage_table())


def main(job: Callable[[DictConfig, Console], object] = run, *overrides: str) -> None:
    """`glyphfeed advise`, or another job with its settings; these overrides come before those of the command line."""
    sys.argv[1:1] = overrides
    # Before torch computes: its threads would spin while they wait, on the cores of the loader's workers.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    run_job("advise", lambda config, console: (job(config, console), 0)[1])


if __name__ == "__main__":
    main()
