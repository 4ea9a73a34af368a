"""Batches and steps on the clock: passes of a loader with a step for each batch, and the machine they ran on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch
from omegaconf import DictConfig

from ocr.errors import ConfigError
from ocr.system import usable_cores

Step = Callable[[Any], object]
SECONDS = 2.0
"""On the clock, per configuration; half of it in each of two rounds."""
MIN_BATCHES = 3
"""Of a pass that is cut, however long they take."""
BUSY = 0.1
"""Share of the cores that other programs can use before a measurement is repeated."""
REPEATS = 2
"""More rounds at most, if others used the cores."""
_HALVES = {"bf16": torch.bfloat16, "16": torch.float16}


# -- the machine


class OtherPrograms:
    """The share of the cores that programs other than this one and its workers use, from when this was made."""

    def __init__(self) -> None:
        self._started, self._busy, self._own = time.perf_counter(), _busy_seconds(), _own_seconds()

    def share(self) -> float:
        """So far; 0 if the system does not report it."""
        spent = time.perf_counter() - self._started
        others = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return max(0.0, others / (max(spent, 1e-9) * usable_cores()))


def _busy_seconds() -> float:
    """CPU seconds of all programs, on the cores that this process can use."""
    cores = psutil.cpu_times(percpu=True)
    if hasattr(os, "sched_getaffinity"):
        cores = [cores[core] for core in os.sched_getaffinity(0) if core < len(cores)]
    idle = ("idle", "iowait", "guest", "guest_nice")  # Guests are part of user.
    return float(sum(value for core in cores for name, value in core._asdict().items() if name not in idle))


def _own_seconds() -> float:
    """CPU seconds of this process and of its workers, those that have ended included."""
    here = psutil.Process()
    own = here.cpu_times()
    total = float(own.user + own.system + own.children_user + own.children_system)
    for child in here.children(recursive=True):
        try:
            spent = child.cpu_times()
            total += spent.user + spent.system
        except psutil.Error:
            continue
    return total


def describe_machine() -> dict[str, str]:
    """What the figures depend on besides the code."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": str(usable_cores()),
        "memory": f"{psutil.virtual_memory().total / 1e9:.0f} GB",
        "model on": device,
        "system": f"{platform.system()} {platform.release()}",
        "versions": f"Python {platform.python_version()}, torch {torch.__version__}",
    }


# -- passes


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over some batches of an epoch."""

    seconds: float
    """Of an epoch: of all its batches if they were run, else as fast as those that were."""
    first_wait: float
    """Until the first batch."""
    waited: float
    """Share of the pass."""
    done: int
    pages: int
    pixels: float
    """Of the batches that were run."""


@dataclass(frozen=True, slots=True)
class Round:
    """Passes right after each other, and the share of the cores that other programs used meanwhile."""

    passes: tuple[Pass, ...]
    others: float


@dataclass
class Timing:
    """All rounds of one configuration."""

    batches: int
    """Of an epoch."""
    rounds: list[Round] = field(default_factory=list)
    filling: Pass | None = None
    """The first pass, which is not counted: it fills caches."""

    @property
    def others(self) -> float:
        """Share of the cores that other programs used in the quietest round."""
        return min((one.others for one in self.rounds), default=float("inf"))

    @property
    def is_noisy(self) -> bool:
        """Whether no round was quiet."""
        return self.others > BUSY

    @property
    def passes(self) -> list[Pass]:
        """Of the rounds that were about as quiet as the quietest: all of them, if the load never ends."""
        most = self.others + BUSY
        return [one for round_ in self.rounds if round_.others <= most for one in round_.passes]

    @property
    def seconds(self) -> float:
        """Of a later epoch."""
        return median(one.seconds for one in self.passes)

    @property
    def wait_share(self) -> float:
        return median(one.waited for one in self.passes)

    @property
    def first_wait(self) -> float:
        return median(one.first_wait for one in self.passes)

    @property
    def pages_per_batch(self) -> float:
        return sum(one.pages for one in self.passes) / max(1, sum(one.done for one in self.passes))

    @property
    def pixels_per_batch(self) -> float:
        return sum(one.pixels for one in self.passes) / max(1, sum(one.done for one in self.passes))

    @property
    def pages(self) -> float:
        """Of an epoch."""
        return self.pages_per_batch * self.batches

    @property
    def pages_per_second(self) -> float:
        """What configurations are compared by: batches can have other sizes."""
        return self.pages / self.seconds


def run_pass(loader: Iterable[Any], step: Step | None, batches: int, most: int, max_seconds: float) -> Pass:
    """Run at most so many batches, or seconds, of an epoch that has `batches`."""
    # Worker processes make a batch each; the threads of a Loader share them.
    is_shared = getattr(loader, "engine", "") == "threads"
    workers = 1 if is_shared else max(1, getattr(loader, "num_workers", None) or 0)
    arrivals: list[float] = []
    waited, pages, pixels = 0.0, 0, 0.0
    began = asked = time.perf_counter()
    running = iter(loader)
    try:
        for batch in running:
            arrived = time.perf_counter()
            arrivals.append(arrived - began)
            waited += arrived - asked
            size, area = _pages_and_pixels(batch)
            pages, pixels = pages + size, pixels + area
            if step is not None and batch is not None:
                step(batch)
            asked = time.perf_counter()
            if len(arrivals) == most or _is_enough(len(arrivals), asked - began, max_seconds, workers):
                break
        ended = time.perf_counter() - began
    finally:
        if isinstance(running, Generator):
            running.close()
    if not arrivals:
        raise ConfigError(
            "the loader gives no batch. Pass pages, or set on_bad_sample=raise to see why", setting="loader"
        )
    seconds = ended if len(arrivals) == batches else _whole_epoch(arrivals, ended, batches, workers)
    return Pass(seconds, arrivals[0], waited / ended, len(arrivals), pages, pixels)


def _is_enough(done: int, spent: float, max_seconds: float, workers: int) -> bool:
    """Two batches of each worker, unless they take too long."""
    return spent > max_seconds and (done >= 2 * workers + 1 or (spent > 2 * max_seconds and done >= MIN_BATCHES))


def _whole_epoch(arrivals: Sequence[float], ended: float, batches: int, workers: int) -> float:
    """Seconds of an epoch, as fast as from one batch to another: workers start, and end their batches, together.

    >>> _whole_epoch([1.0, 1.0, 2.0, 2.0, 3.0], 3.5, 10, 2)
    5.5
    """
    first = min(workers, len(arrivals) - 1)
    last = first + max(1, (len(arrivals) - first) // workers * workers)
    if last > len(arrivals) or first == 0:
        return ended * batches / len(arrivals)
    each = (arrivals[last - 1] - arrivals[first - 1]) / (last - first)
    return arrivals[first - 1] + each * (batches - first) + ended - arrivals[-1]


def _pages_and_pixels(batch: Any) -> tuple[int, float]:
    """Of a batch of anything: items of its first part that has a length."""
    if isinstance(batch, dict):
        images = batch.get("images")
        batch = images if images is not None else next(iter(batch.values()), None)
    elif isinstance(batch, list | tuple) and batch and hasattr(batch[0], "__len__") and not isinstance(batch[0], str):
        batch = batch[0]
    pages = len(batch) if hasattr(batch, "__len__") and getattr(batch, "ndim", True) else 1
    shape: tuple[int, ...] = tuple(getattr(batch, "shape", None) or ())
    return pages, float(pages * shape[-1] * shape[-2]) if len(shape) >= 3 else float(pages)


class Trial:
    """A loader and a step, run in rounds that alternate with other trials."""

    def __init__(
        self,
        loader: Any,
        step: Step | None,
        seconds: float = SECONDS,
        batches: int | None = None,
        prepare: Callable[[], object] = lambda: None,
        may_fail: bool = False,
    ) -> None:
        self.loader, self.step, self.seconds, self.prepare = loader, step, seconds, prepare
        self.may_fail, self.error = may_fail, ""
        self.timing = Timing(len(loader) if batches is None else batches)
        self._most = self.timing.batches

    def warm_up(self) -> None:
        """The pass that is not counted: caches are filled with the batches that are counted later."""
        # A step that takes long would only wait here.
        filling = self._run(None, self._most, self.seconds)
        self.timing.filling, self._most = filling, filling.done

    def run_round(self) -> None:
        """Passes for half of the seconds, at least one."""
        others, began = OtherPrograms(), time.perf_counter()
        passes: list[Pass] = []
        while not passes or time.perf_counter() - began < self.seconds / 2:
            passes.append(self._run(self.step, self._most, self.seconds))
        self.timing.rounds.append(Round(tuple(passes), others.share()))

    def run_epoch(self) -> float:
        """Seconds of a whole epoch with the step, after one without it that is not counted."""
        self._run(None, self.timing.batches, float("inf"))
        return self._run(self.step, self.timing.batches, float("inf")).seconds

    def _run(self, step: Step | None, most: int, seconds: float) -> Pass:
        self.prepare()
        # The same pages in every pass, so that those that are counted are in the cache.
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(0)
        return run_pass(self.loader, step, self.timing.batches, most, seconds)


def run_trials(
    trials: dict[str, Trial],
    show: Callable[[str], object],
    rounds: int = 2,
    *,
    repeats: int | None = None,
    until: float = float("inf"),
) -> None:
    """Warm up each trial, then all of them in turns: what changes on the machine meanwhile hits each of them.

    After the moment `until` nothing is started any more. On a busy machine all trials have more rounds. What is wrong
    with a trial that can fail is kept in its `error`.
    """
    for name, trial in trials.items():
        if time.perf_counter() < until and trial.timing.filling is None:
            show(name)
            try:
                trial.warm_up()
            except Exception as error:  # Workers that cannot start, items that do not pickle, code of others.
                if not trial.may_fail:
                    raise
                trial.error = first_sentence(error)
    warm = {name: trial for name, trial in trials.items() if trial.timing.filling is not None}
    for turn in range(rounds + (REPEATS if repeats is None else repeats)):
        if turn >= rounds and not any(trial.timing.is_noisy for trial in warm.values()):
            return
        for name, trial in warm.items():
            if time.perf_counter() < until:
                show(name)
                trial.run_round()


def first_sentence(error: Exception) -> str:
    """What is wrong, without what could be done about it; torch puts the traceback of a worker in front."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[-1 if "Traceback" in str(error) else 0].split(". ")[0]


# -- steps


@dataclass(frozen=True)
class SleepingStep:
    """A step of so many seconds that leaves the CPU alone, as one on a GPU does."""

    seconds: float

    def __call__(self, batch: Any) -> None:
        time.sleep(self.seconds)


class ModelStep:
    """The model of a config: a call is one step of training, or the inference of a validation."""

    def __init__(self, config: DictConfig, device: torch.device, training: bool) -> None:
        from ocr.jobs.stored_settings import read_chosen
        from ocr.jobs.train import build_module

        self._precision = _precision(str(config.trainer.precision), device)
        self.module = build_module(config)
        if (stored := read_chosen(config)) is not None:
            stored.load_into(self.module.model)
        self.module.model.to(device).train(training)
        if config.compile_model:
            self.module.model.compile()
        self._optimizer = self.module.build_optimizer()
        self._training, self.device = training, device

    def __call__(self, batch: dict[str, Any]) -> None:
        held = {name: one.to(self.device) if isinstance(one, torch.Tensor) else one for name, one in batch.items()}
        images = self.module.normalization.on_device(held["images"])
        if self._training:
            self._optimizer.zero_grad()
            with self._precision():
                loss = self.module.loss(self.module.model(images), held)[0]
            loss.backward()
            self._optimizer.step()
        else:
            with torch.inference_mode(), self._precision():
                self.module.model(images, with_threshold=False).prob_map.cpu()
        wait_for(self.device)

    def seconds_per_pixel(self, batches: Sequence[dict[str, Any]], max_seconds: float) -> float:
        """Of steps with these batches, after one that is not counted: until the time is up, at least one."""
        self(batches[0])
        began, pixels = time.perf_counter(), 0.0
        for batch in batches:
            self(batch)
            pixels += _pages_and_pixels(batch)[1]
            if time.perf_counter() - began > max_seconds:
                break
        return (time.perf_counter() - began) / pixels


def find_device(accelerator: str) -> torch.device:
    """Where the trainer of the config would put the model."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


@contextmanager
def model_threads(config: DictConfig) -> Iterator[None]:
    """As many threads of torch as `threads.model` of the config says."""
    before, wanted = torch.get_num_threads(), config.threads.model
    if wanted != "auto":
        torch.set_num_threads(int(wanted))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wait_for(device: torch.device) -> None:
    """Return when a device has done everything that was queued on it."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


def _precision(name: str, device: torch.device) -> Callable[[], Any]:
    bits = name.split("-")[0]
    if bits == "32":
        return nullcontext
    if bits not in _HALVES:
        raise ConfigError(
            f"trainer.precision={name} cannot be measured. Set 32-true, bf16-mixed or 16-mixed",
            setting="trainer.precision",
            value=name,
        )
    return lambda: torch.autocast(device.type, _HALVES[bits])
