"""The pipeline as a queueing model: what each resource needs per batch, and from that how long an epoch takes.

Per batch, each resource needs

    workers    seconds that its pages spend in a worker / workers
    cores      (CPU seconds of loading + CPU seconds of the step) / cores
    GIL, disk  seconds in a resource that only one worker can use at a time
    model      seconds of the step

Loading and the step overlap, so a batch takes as long as the largest of these; the first batch also waits for its
loading.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil

GIL, DISK, START = "the GIL", "the disk", "starting the workers"
MAIN = "the main process"
"""What only one worker at a time can use, and not while a step runs: batches are received between steps."""
OF_THE_FILE = ("source", "fixed")
"""Kinds of stages that take as long for a smaller page: they work on the file."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What one stage needs per page."""

    name: str
    seconds: float
    """In a worker, while all workers are busy."""
    cpu_seconds: float
    """The part of `seconds` in which it uses a core, or waits for one."""
    serial_seconds: float = 0.0
    """The part of `seconds` in which no other worker can run the same stage."""
    resource: str = ""
    """What only one worker at a time can use: GIL, DISK or MAIN."""
    contention: float = 1.0
    """How many times as long it takes as with a single worker."""
    kind: str = ""
    """The part of the path: source, fixed, random, targets, batch or device."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """What takes the batches: seconds and CPU seconds of a step."""

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
    """Per epoch, before the first page is made."""
    pixels: float = 1.0
    """Of a page, relative to the pages that `demands` were measured with."""

    @property
    def sized_demands(self) -> tuple[Demand, ...]:
        """The demands of pages of this size."""
        if self.pixels == 1:
            return self.demands
        factors = (1.0 if demand.kind in OF_THE_FILE else self.pixels for demand in self.demands)
        return tuple(one for each, factor in zip(self.demands, factors, strict=True) for one in scaled([each], factor))

    @property
    def steps(self) -> int:
        """Per epoch; a last batch with fewer pages is a step too."""
        return ceil(self.pages / self.batch_size)

    def without(self, name: str) -> Pipeline:
        """The same pipeline without one stage."""
        return replace(self, demands=tuple(demand for demand in self.demands if demand.name != name))

    def limits(self) -> dict[str, float]:
        """Seconds that each resource needs per batch."""
        size, consumer, demands = self.batch_size, self.consumer, self.sized_demands
        in_worker = size * sum(demand.seconds / (demand.contention if self.workers < 2 else 1.0) for demand in demands)
        cpu = size * sum(demand.cpu_seconds for demand in demands)
        limits = {"model": consumer.step_seconds}
        if self.workers:
            # More workers than cores do not compute faster, but they can wait at the same time.
            limits["workers"] = in_worker / self.workers
            limits["cores"] = (cpu + consumer.step_cpu_seconds) / self.cores
        else:
            limits["workers"] = in_worker
        for resource in {demand.resource for demand in demands if demand.serial_seconds}:
            serial = size * sum(demand.serial_seconds for demand in demands if demand.resource == resource)
            # Every process has its own GIL; they share the disk.
            shares = max(1, self.workers) if self.processes and resource == GIL else 1
            limits[resource] = serial / shares + self._of_the_step(resource)
        return limits

    def _of_the_step(self, resource: str) -> float:
        """Seconds of a step in which no worker can use a resource."""
        if resource == MAIN:
            return self.consumer.step_seconds
        # A step asks for the GIL with every operation, and gets it only when a thread that holds it lets go.
        shares = resource == GIL and self.workers and not self.processes
        return min(self.consumer.step_seconds, self.consumer.step_cpu_seconds) if shares else 0.0

    def predict(self) -> Prediction:
        """Predict an epoch."""
        limits = self.limits()
        busy = limits.get(MAIN, limits["model"])
        loading = max(seconds for name, seconds in limits.items() if name not in ("model", MAIN))
        made, steps = loading * self.pages / self.batch_size, self.steps * busy
        if not self.workers:
            seconds, waiting = made + steps, made
        else:
            # The model waits for the first batch, and the last step overlaps with nothing.
            seconds = max(made, steps) + min(busy, loading)
            waiting = max(loading, seconds - self.steps * limits["model"])
        total = self.start_seconds + seconds
        bottleneck = START if self.start_seconds > seconds else self._bottleneck(limits)
        return Prediction(limits, bottleneck, total, min(1.0, (waiting + self.start_seconds) / total), self)

    def _bottleneck(self, limits: dict[str, float]) -> str:
        largest = max(limits, key=lambda name: limits[name])
        if self._of_the_step(largest) > limits[largest] / 2:
            return "model"
        # If the workers keep the cores busy, more workers would not help.
        is_tie = largest == "workers" and limits.get("cores", 0.0) > 0.85 * limits[largest]
        return "cores" if is_tie else largest


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model predicts for an epoch."""

    limits: dict[str, float]
    bottleneck: str
    """The slowest resource: model, workers, cores, GIL, DISK or MAIN; START if that takes longer than all batches."""
    epoch_seconds: float
    wait_share: float
    """Share of the epoch in which the model waits for data."""
    pipeline: Pipeline

    @property
    def samples_per_second(self) -> float:
        return self.pipeline.pages / self.epoch_seconds

    @property
    def batch_seconds(self) -> float:
        """Between two batches, after the first."""
        slowest = max(self.limits.values())
        return slowest if self.pipeline.workers else slowest + self.limits["model"]

    @property
    def stage(self) -> str:
        """The stage that uses the bottleneck most; empty if that is the model, or starting."""
        if self.bottleneck in ("model", START):
            return ""
        demands = self.pipeline.sized_demands
        serial = [demand for demand in demands if demand.resource == self.bottleneck]
        key = "serial_seconds" if serial else "cpu_seconds" if self.bottleneck == "cores" else "seconds"
        among = serial or demands
        return max(among, key=lambda demand: float(getattr(demand, key))).name if among else ""

    def sentence(self) -> str:
        """The bottleneck in words."""
        pipeline = self.pipeline
        if self.bottleneck == "model":
            return (
                f"The model is the bottleneck: a step takes {1e3 * self.limits['model']:.0f} ms, loading "
                f"the next batch at the same time {1e3 * self.loading_seconds:.0f} ms."
            )
        if self.bottleneck == START:
            return (
                f"Starting the workers takes {pipeline.start_seconds:.2f} s of an epoch of {self.epoch_seconds:.2f} s."
            )
        if self.bottleneck == "workers" and not pipeline.workers:
            return f"Nothing overlaps: without a worker the model waits for every batch, mostly for {self.stage}."
        if self.bottleneck == "workers":
            workers = "worker is" if pipeline.workers == 1 else f"{pipeline.workers} workers are"
            return f"The {workers} the bottleneck, and {self.stage} takes most of their time."
        if self.bottleneck == "cores":
            return f"The {pipeline.cores} cores are the bottleneck, and {self.stage} takes most of their time."
        return f"T{self.bottleneck.removeprefix('t')} is the bottleneck: {self.stage} uses it, one worker at a time."

    @property
    def loading_seconds(self) -> float:
        """Per batch, while a step runs."""
        return max(seconds for name, seconds in self.limits.items() if name not in ("model", MAIN))


def scaled(demands: Iterable[Demand], factor: float) -> tuple[Demand, ...]:
    """The same stages, `factor` times as expensive."""
    return tuple(
        replace(
            demand,
            seconds=demand.seconds * factor,
            cpu_seconds=demand.cpu_seconds * factor,
            serial_seconds=demand.serial_seconds * factor,
        )
        for demand in demands
    )


def contended(demand: Demand, contention: float) -> Demand:
    """The same stage, so many times as slow as alone if all cores are busy, and no longer as was measured."""
    (changed,) = scaled([demand], contention / demand.contention)
    return replace(changed, contention=contention)


def beside_workers(pipeline: Pipeline, contention: float) -> Consumer:
    """The step while workers compute: cores that share something slow it down for as long as they are both busy."""
    consumer, step = pipeline.consumer, pipeline.consumer.step_seconds
    if not pipeline.workers or not step:
        return consumer
    cpu = pipeline.batch_size * sum(demand.cpu_seconds for demand in pipeline.demands)
    shared = min(1.0, cpu / step) * min(1.0, consumer.step_cpu_seconds / step)
    factor = 1.0 + (contention - 1.0) * shared
    return Consumer(step * factor, consumer.step_cpu_seconds * factor)
