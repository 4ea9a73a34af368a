"""The pipeline as queueing stages: what each resource needs for a batch, and so how long an epoch takes.

For a batch, with D = demand of a page times the pages of a batch:

    workers   sum of the seconds that a page is in a worker / workers
    cores     (sum of CPU seconds of loading + CPU seconds of the step) / cores
    one at a time   seconds in a resource that only one can have: the interpreter's lock, a disk
    model     seconds of the step

Loading and the step overlap, so a batch takes as long as the largest of these, and the first batch its loading besides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil

GIL, DISK = "the interpreter's lock", "the disk"


@dataclass(frozen=True, slots=True)
class Demand:
    """What one stage asks for, for one page."""

    name: str
    seconds: float
    """In a worker, while as many work as are to work."""
    cpu_seconds: float
    """Of these, the seconds in which it has a core, or waits for one."""
    serial_seconds: float = 0.0
    """Of these, the seconds in which no other worker can do the same."""
    resource: str = ""
    """What it is that only one can have."""
    contention: float = 1.0
    """How many times as long it takes as with one worker alone."""
    kind: str = ""
    """Which part of the path it is: source, fixed, random, targets, batch or device."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """What takes the batches: seconds of a step, and of the CPU for it."""

    step_seconds: float = 0.0
    step_cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything between the disk and the end of a step."""

    demands: tuple[Demand, ...]
    consumer: Consumer
    pages: int
    batch_size: int
    workers: int
    cores: int
    processes: bool = False
    start_seconds: float = 0.0
    """Of an epoch, before anything is made."""

    @property
    def steps(self) -> int:
        """Of an epoch; the last may have fewer pages, and still is a step."""
        return ceil(self.pages / self.batch_size)

    def without(self, name: str) -> Pipeline:
        """The same, where one stage takes nothing."""
        return replace(self, demands=tuple(demand for demand in self.demands if demand.name != name))

    def limits(self) -> dict[str, float]:
        """Seconds that each resource needs for a batch."""
        size, consumer = self.batch_size, self.consumer
        in_worker = size * sum(
            demand.seconds / (demand.contention if self.workers < 2 else 1.0) for demand in self.demands
        )
        cpu = size * sum(demand.cpu_seconds for demand in self.demands)
        limits = {"model": consumer.step_seconds}
        if self.workers:
            # More workers than cores do not compute faster, but they can wait at the same time.
            limits["workers"] = in_worker / self.workers
            limits["cores"] = (cpu + consumer.step_cpu_seconds) / self.cores
        else:
            limits["workers"] = in_worker
        for resource in {demand.resource for demand in self.demands if demand.serial_seconds}:
            serial = size * sum(demand.serial_seconds for demand in self.demands if demand.resource == resource)
            # Every process has an interpreter of its own; a disk they share.
            shares = max(1, self.workers) if self.processes and resource == GIL else 1
            limits[resource] = serial / shares
        return limits

    def predict(self) -> Prediction:
        """How an epoch goes."""
        limits = self.limits()
        step = limits["model"]
        loading = max(seconds for name, seconds in limits.items() if name != "model")
        made, steps = loading * self.pages / self.batch_size, self.steps * step
        if not self.workers:
            seconds, waiting = made + steps, made
        else:
            # The first batch is waited for, and the last step has nothing to overlap with.
            seconds = max(made + min(step, loading), steps + min(step, loading))
            waiting = max(loading, seconds - steps)
        total = self.start_seconds + seconds
        return Prediction(
            limits, self._bottleneck(limits), total, min(1.0, (waiting + self.start_seconds) / total), self
        )

    def _bottleneck(self, limits: dict[str, float]) -> str:
        largest = max(limits, key=lambda name: limits[name])
        # As many workers as cores, all of them computing: more of them would not help.
        is_tie = largest == "workers" and limits.get("cores", 0.0) > 0.85 * limits[largest]
        return "cores" if is_tie else largest


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says of an epoch."""

    limits: dict[str, float]
    bottleneck: str
    """The resource: model, workers, cores, or what only one can have."""
    epoch_seconds: float
    wait_share: float
    """Of the epoch, in which the model waits for data."""
    pipeline: Pipeline

    @property
    def samples_per_second(self) -> float:
        return self.pipeline.pages / self.epoch_seconds

    @property
    def stage(self) -> str:
        """The stage that asks most of the bottleneck; empty where it is the model."""
        if self.bottleneck == "model":
            return ""
        serial = [demand for demand in self.pipeline.demands if demand.resource == self.bottleneck]
        key = "serial_seconds" if serial else "cpu_seconds" if self.bottleneck == "cores" else "seconds"
        among = serial or self.pipeline.demands
        return max(among, key=lambda demand: float(getattr(demand, key))).name if among else ""

    def sentence(self) -> str:
        """What holds the pipeline up, in words."""
        pipeline = self.pipeline
        if self.bottleneck == "model":
            return (
                f"The model is the bottleneck: a step takes {1e3 * self.limits['model']:.0f} ms and its batch "
                f"{1e3 * self.loading_seconds:.0f} ms, made meanwhile."
            )
        if self.bottleneck == "workers" and not pipeline.workers:
            return f"Nothing overlaps: with num_workers=0 the step waits for every batch, longest for {self.stage}."
        if self.bottleneck == "workers":
            return (
                f"The {pipeline.workers} workers are the bottleneck: each is busy or waiting, longest in {self.stage}."
            )
        if self.bottleneck == "cores":
            return f"The {pipeline.cores} cores are the bottleneck, and {self.stage} takes most of them."
        return f"{self.bottleneck.capitalize()} is the bottleneck: {self.stage} holds it, one worker at a time."

    @property
    def loading_seconds(self) -> float:
        """Of a batch, while the step goes on."""
        return max(seconds for name, seconds in self.limits.items() if name != "model")


def scaled(demands: Iterable[Demand], factor: float) -> tuple[Demand, ...]:
    """The same stages, so many times as expensive."""
    return tuple(
        replace(
            demand,
            seconds=demand.seconds * factor,
            cpu_seconds=demand.cpu_seconds * factor,
            serial_seconds=demand.serial_seconds * factor,
        )
        for demand in demands
    )
