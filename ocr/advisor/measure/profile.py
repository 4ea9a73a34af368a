"""Profile: what every stage of the data path takes by itself on real pages, and which is the slowest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig

from ocr.advisor.measure.data_path import DataPath
from ocr.advisor.measure.epoch_trace import Trace, TracedLoader, trace_later_epoch
from ocr.advisor.measure.model_profile import profile_model
from ocr.advisor.measure.model_step import ModelStep, find_device, wait_for
from ocr.advisor.measure.pages import open_uncached, spread
from ocr.advisor.measure.stage_timing import DATA_KINDS, Clock, StageTimes, Step, one_opencv_thread
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import DataError

WHOLE = {"with polygons": True, "without polygons": False}
Compose = Callable[[Sequence[str]], DictConfig]
Tick = Callable[[str], None]
"""Called before each piece of work, with what it is."""


class ProfileSettings(NamedTuple):
    """How much is measured."""

    split: str = "train"
    pages: int = 32
    repeats: int = 6
    """How often every page is made, each time in another epoch with other random numbers."""
    sizes: tuple[int, ...] = ()
    with_model: bool = False

    @property
    def rounds(self) -> int:
        """How often `tick` is called: for the warm-up, every repeat, every size, the model, and the timeline."""
        return 2 + self.repeats + len(self.sizes) + self.with_model


class Profile(NamedTuple):
    """What was measured."""

    location: str
    pages: int
    stages: list[StageTimes]
    whole: dict[str, StageTimes]
    sizes: dict[int, list[StageTimes]]
    trace: Trace = Trace([], [])

    @property
    def slowest(self) -> StageTimes:
        """The stage of the data path that takes longest."""
        return max(self.data_stages, key=lambda stage: stage.mean_ms)

    @property
    def data_stages(self) -> list[StageTimes]:
        """The stages before the model."""
        return [stage for stage in self.stages if stage.kind in DATA_KINDS]

    @property
    def total_ms(self) -> float:
        """Of the data path, per page, in one thread."""
        return sum(stage.mean_ms for stage in self.data_stages)

    @property
    def sentence(self) -> str:
        """What matters about the slowest stage."""
        stage, total = self.slowest, self.total_ms
        said = (
            f"{stage.name} takes {stage.mean_ms / total:.0%} of the data path: {stage.mean_ms:.2f} of {total:.2f} ms "
            f"per page in one thread. Without it, a thread would make {1e3 / (total - stage.mean_ms):.0f} pages/s "
            f"instead of {1e3 / total:.0f}."
        )
        if stage.idle_ms > stage.mean_ms / 2:
            return f"{said} Most of that time it waits and does not compute: more workers hide it."
        return said

    @property
    def queued(self) -> float:
        """Share of the time that this thread waited for a core used by other processes."""
        return sum(stage.queued_ms for stage in self.data_stages) / self.total_ms

    def to_figures(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "stages": [stage.to_dict() for stage in self.stages],
            "whole": {name: figures.summary for name, figures in self.whole.items()},
            "sizes": [
                {
                    "size": size,
                    "total_ms": sum(stage.mean_ms for stage in stages),
                    "stages": {stage.name: stage.mean_ms for stage in stages},
                }
                for size, stages in self.sizes.items()
            ],
            "slowest": self.slowest.name,
            "sentence": self.sentence,
            **self.trace.to_figures(),
        }


def profile(compose: Compose, settings: ProfileSettings, tick: Tick = lambda what: None) -> Profile:
    """Measure a split of a config; `compose` returns the config with additional overrides."""
    config = compose(())
    dataset, device = open_uncached(config, settings.split), find_device(config.trainer.accelerator)
    engine = str(config.data.engine)
    model = ModelStep(config, device, training=True) if settings.with_model else None
    with one_opencv_thread():
        tick("warming up")
        batches = _warm_up(dataset, device, engine, _batch_size(config, settings), settings.pages)
        stages, whole = measure_stages(dataset, device, engine, batches, settings.repeats, tick)
        sizes = {}
        for size in settings.sizes:
            tick(f"size {size}")
            other = open_uncached(compose([f"transforms.size={size}"]), settings.split)
            sizes[size] = measure_stages(other, device, engine, batches, max(1, settings.repeats // 2), whole=False)[0]
    if model is not None:
        tick("model")
        path = DataPath(dataset, device, engine)
        stages += profile_model(model, [path.run_batch(batch, 0) for batch in batches[:2]])
    tick("a timeline")
    trace = _trace(config, settings, dataset, device, model, stages)
    return Profile(str(dataset.source.location), sum(map(len, batches)), stages, whole, sizes, trace)


def _trace(
    config: DictConfig,
    settings: ProfileSettings,
    dataset: PageDataset,
    device: torch.device,
    model: ModelStep | None,
    stages: Sequence[StageTimes],
) -> Trace:
    """Some batches of the configured loader, for the model if it is measured."""
    loading = config.dataloaders[f"{settings.split}_dataloader"]
    size, workers, shuffle = int(loading.batch_size), int(loading.num_workers), bool(loading.shuffle)
    step_ms = size * sum(stage.mean_ms for stage in stages if stage.name in ("forward", "backward"))
    with one_opencv_thread():
        loader = TracedLoader(dataset, size, workers, str(config.data.engine), shuffle=shuffle, device=device)
        return trace_later_epoch(loader, model, step_ms / 1e3)


def measure_stages(
    dataset: PageDataset,
    device: torch.device,
    engine: str,
    batches: Sequence[Sequence[int]],
    repeats: int,
    tick: Tick = lambda what: None,
    whole: bool = True,
) -> tuple[list[StageTimes], dict[str, StageTimes]]:
    """Every stage by itself, alternating with the whole path with and without polygons."""
    apart, together = DataPath(dataset, device, engine), DataPath(dataset, device, engine, take_apart=False)
    wait = partial(wait_for, device)
    clock, wholes = Clock(wait=wait), {name: Clock(wait=wait) for name in WHOLE if whole}
    for path in (apart, together):
        path.run_batch(batches[0], 0)  # Later batches reuse the memory of this one.
    for epoch in range(repeats):
        tick(f"epoch {epoch + 1} of {repeats}")
        for batch in batches:
            apart.run_batch(batch, epoch, clock.measure)
            for name, one in wholes.items():
                run = partial(together.run_batch, with_polygons=WHOLE[name])
                one.measure(Step("whole", name, "whole", run), batch, epoch, pages=len(batch))
    return clock.stage_times(), {name: one.stage_times()[0] for name, one in wholes.items()}


def _batch_size(config: DictConfig, settings: ProfileSettings) -> int:
    return min(int(config.dataloaders[f"{settings.split}_dataloader"].batch_size), settings.pages)


def _warm_up(dataset: PageDataset, device: torch.device, engine: str, batch_size: int, count: int) -> list[list[int]]:
    """Batches of pages from all over the split, each made once: files are in memory, kernels are compiled."""
    path, readable = DataPath(dataset, device, engine), []
    for index in spread(len(dataset), count):
        try:
            path.run_batch([index], 0)
            readable.append(index)
        except DataError:
            if dataset.on_bad_sample == "raise":
                raise
    if not readable:
        raise DataError(
            f"{dataset.source.location}: none of {count} pages can be read. Examine them with `ocr doctor`",
            path=str(dataset.source.location),
        )
    return [readable[first : first + batch_size] for first in range(0, len(readable), batch_size)]
