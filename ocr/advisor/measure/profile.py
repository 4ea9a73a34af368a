"""Profile: what every stage of the data path takes by itself, on real pages, and which of them is the slowest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from omegaconf import DictConfig

from ocr.advisor.catalogue import NOTHING_KEPT
from ocr.advisor.measure.data_path import DataPath, find_device
from ocr.advisor.measure.model_profile import Model
from ocr.advisor.measure.stage_timing import DATA_KINDS, Clock, Figures, Step, one_opencv_thread
from ocr.advisor.report.number_format import in_percent
from ocr.datasets.build import build_dataset
from ocr.errors import ConfigError, DataError

WHOLE = {"with polygons": True, "without polygons": False}
Compose = Callable[[Sequence[str]], DictConfig]
Tick = Callable[[str], None]
"""Called before each piece of work, with what it is."""


class Settings(NamedTuple):
    """How much is measured."""

    split: str = "train"
    pages: int = 32
    repeats: int = 6
    """Every page goes its path so often, each time in another epoch: random stages draw anew."""
    sizes: tuple[int, ...] = ()
    with_model: bool = False

    @property
    def rounds(self) -> int:
        """How often `tick` is called: to warm up and to measure, and once each for every size and the model."""
        return 1 + self.repeats + len(self.sizes) + self.with_model


class Profile(NamedTuple):
    """What was measured."""

    place: str
    pages: int
    stages: list[Figures]
    whole: dict[str, Figures]
    sizes: dict[int, list[Figures]]

    @property
    def slowest(self) -> Figures:
        """The stage of the data path that takes the longest."""
        return max(self.data_stages, key=lambda stage: stage.mean_ms)

    @property
    def data_stages(self) -> list[Figures]:
        """Those in front of the model."""
        return [stage for stage in self.stages if stage.kind in DATA_KINDS]

    @property
    def total_ms(self) -> float:
        """Of the data path, for a page, in one thread."""
        return sum(stage.mean_ms for stage in self.data_stages)

    @property
    def sentence(self) -> str:
        """What to know of the slowest stage."""
        stage, total = self.slowest, self.total_ms
        said = (
            f"{stage.name} takes {in_percent(stage.share)} of the data path: {stage.mean_ms:.2f} of {total:.2f} ms a "
            f"page in one thread. Without it, a thread would make {1e3 / (total - stage.mean_ms):.0f} pages/s instead "
            f"of {1e3 / total:.0f}."
        )
        if stage.idle_ms > stage.mean_ms / 2:
            return f"{said} Most of its time it waits, and computes nothing: more workers hide that."
        return said

    @property
    def queued(self) -> float:
        """Share of the time that this thread waited for a core which others had."""
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
        }


def profile(
    compose: Callable[[Sequence[str]], DictConfig], settings: Settings, tick: Tick = lambda what: None
) -> Profile:
    """Measure a split of a config; `compose` gives it, with some overrides more."""
    config = compose(())
    dataset, device = _open(config, settings.split), find_device(config.trainer.accelerator)
    engine = str(config.data.engine)
    model = Model(config, device) if settings.with_model else None
    with one_opencv_thread():
        tick("warming up")
        batches = _warm_up(dataset, device, engine, _batch_size(config, settings), settings.pages)
        stages, whole = measure_stages(dataset, device, engine, batches, settings.repeats, tick)
        sizes = {}
        for size in settings.sizes:
            tick(f"size {size}")
            other = _open(compose([f"transforms.size={size}"]), settings.split)
            sizes[size] = measure_stages(other, device, engine, batches, max(1, settings.repeats // 2), whole=False)[0]
    if model is not None:
        tick("model")
        path = DataPath(dataset, device, engine)
        stages += model.measure([path.run_batch(batch, 0) for batch in batches[:2]])
    return Profile(str(dataset.source.location), sum(map(len, batches)), stages, whole, sizes)


def measure_stages(
    dataset: Any,
    device: torch.device,
    engine: str,
    batches: Sequence[Sequence[int]],
    repeats: int,
    tick: Tick = lambda what: None,
    whole: bool = True,
) -> tuple[list[Figures], dict[str, Figures]]:
    """Every stage by itself, and in turns with it the whole path with and without polygons."""
    apart, together = DataPath(dataset, device, engine), DataPath(dataset, device, engine, take_apart=False)
    wait = torch.cuda.synchronize if device.type == "cuda" else None
    clock, wholes = Clock(wait=wait), {name: Clock(wait=wait) for name in WHOLE if whole}
    for path in (apart, together):
        path.run_batch(batches[0], 0)  # Batches are written into the memory of earlier ones.
    for epoch in range(repeats):
        tick(f"epoch {epoch + 1} of {repeats}")
        for batch in batches:
            apart.run_batch(batch, epoch, clock.measure)
            for name, one in wholes.items():
                run = partial(together.run_batch, with_polygons=WHOLE[name])
                one.measure(Step("whole", name, "whole", run), batch, epoch, pages=len(batch))
    return clock.figures(), {name: one.figures()[0] for name, one in wholes.items()}


def _open(config: DictConfig, split: str) -> Any:
    """The dataset, with nothing kept: every stage is to be run."""
    node = (config.get("datasets") or {}).get(f"{split}_dataset")
    if node is not None:
        node.update({name: value for name, value in NOTHING_KEPT.items() if name in node})
    dataset = build_dataset(config, split)
    if not hasattr(dataset, "source") or hasattr(dataset, "handles"):
        raise ConfigError(
            f"datasets.{split}_dataset has no pages that can be read one by one. Give shards with their index, as "
            "`ocr convert` writes them, or a folder: data=base"
        )
    return dataset


def _batch_size(config: DictConfig, settings: Settings) -> int:
    return min(int(config.dataloaders[f"{settings.split}_dataloader"].batch_size), settings.pages)


def _warm_up(dataset: Any, device: torch.device, engine: str, batch_size: int, count: int) -> list[list[int]]:
    """Batches of pages from all over the split, each read and made once: files are in memory, kernels compiled."""
    path, readable = DataPath(dataset, device, engine), []
    for index in np.unique(np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int)).tolist():
        try:
            path.run_batch([index], 0)
            readable.append(index)
        except DataError:
            if dataset.on_bad_sample == "raise":
                raise
    if not readable:
        raise DataError(f"{dataset.source.location}: none of {count} pages can be read. Look at them with `ocr doctor`")
    return [readable[first : first + batch_size] for first in range(0, len(readable), batch_size)]
