"""The path of a dataset's pages to the model's device, stage by stage, as the loader runs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from ocr.advisor.measure.stage_timing import Step, run_named
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.loader.buffers import BatchBuffer, BufferPool
from ocr.pipeline.batch import Batch, Item, Slot, collate, listed, lists, to_item
from ocr.pipeline.device import Arrival
from ocr.pipeline.padding import rounded_up
from ocr.pipeline.page_rows import NO_POLYGONS
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage, Sizes, Stage

Measure = Callable[..., Any]


class DataPath:
    """All stages of a dataset, each called by itself with the output of the one before."""

    def __init__(
        self, dataset: PageDataset, device: torch.device, engine: str = "threads", take_apart: bool = True
    ) -> None:
        """`take_apart`: each Albumentations transform is a stage, instead of one stage for all in a row."""
        warm_up()
        self.dataset = dataset
        self._buffers = BufferPool(dataset.padding)
        steps = _StepNames()
        self._source = steps.add("source", type(dataset.source).__name__, "source", self._read)
        self._stages = [steps.add_stage(*each) for each in _stages(dataset, take_apart)]
        self._targets = steps.add("targets", repr(dataset.draw_maps), "targets", self._draw)
        self._in_slots = engine == "threads"
        if self._in_slots:
            self._write = steps.add("slot", "writes the page into its slot of the batch", "batch", self._write_slot)
            self._join = steps.add("batch", "slots as tensors, and lists", "batch", self._join_slots)
        else:
            self._write = steps.add("item", "tensors of the page", "batch", self._to_item)
            self._join = steps.add("collate", "stacks the tensors of all pages", "batch", self._collate)
        arrival = Arrival(dataset.transform.normalization, device)
        self._device = steps.add("device", f"{dataset.transform.normalization!r} on {device}", "device", arrival.bring)

    def run_batch(
        self, indices: Sequence[int], epoch: int, measure: Measure = run_named, with_polygons: bool = True
    ) -> Batch:
        """Run all pages of a batch through all stages; `measure` calls each of them."""
        buffer: BatchBuffer | None = None
        shape = self._shape(indices)
        items = []
        for position, index in enumerate(indices):
            sample = measure(self._source, index)
            sample = sample if with_polygons else replace(sample, polygons=NO_POLYGONS)
            rng = sample_generator(self.dataset.seed, epoch, self.dataset.source.number(index))
            for step in self._stages:
                sample = measure(step, sample, rng)
            slot = None
            if self._in_slots:
                normalize = self.dataset.transform.host_normalization
                buffer = buffer or self._buffers.take(len(indices), sample, normalize, shape)
                if not buffer.holds(sample):
                    raise ConfigError(
                        f"{sample.filename} is larger than its batch: a stage changes the size of pages",
                        value=sample.size,
                        path=sample.path,
                    )
                slot = buffer.slot(position).inside(*sample.size)
            sample = measure(self._targets, sample, slot)
            items.append(measure(self._write, sample, slot))
        batch = measure(self._join, items, buffer, pages=len(indices))
        arrived: Batch = measure(self._device, batch, pages=len(indices))
        return arrived

    def _shape(self, indices: Sequence[int]) -> tuple[int, int] | None:
        """The (height, width) of a batch of pages that keep their own shape."""
        if self.dataset.padding is None:
            return None
        width, height = self._sizes[list(indices)].max(axis=0).tolist()
        return rounded_up(height, width)

    @cached_property
    def _sizes(self) -> Sizes:
        return self.dataset.planned_sizes()

    def _read(self, index: int) -> Sample:
        source = self.dataset.source
        # The dataset refuses a ready page that is too large: a few bytes may declare one of any size.
        return self.dataset.page(index).unpacked() if source.is_ready else source.read(index)

    def _draw(self, sample: Sample, slot: Slot | None) -> Sample:
        draw_maps = self.dataset.draw_maps
        if slot is not None:
            return slot.write_maps(sample, draw_maps)
        return draw_maps(sample) if sample.maps is None else sample

    def _write_slot(self, sample: Sample, slot: Slot) -> Item:
        slot.write_page(sample.image, self.dataset.transform.host_normalization)
        return listed(sample)

    def _join_slots(self, written: list[Item], buffer: BatchBuffer) -> Batch:
        return buffer.batch(list(range(len(written)))) | lists(written)

    def _to_item(self, sample: Sample, slot: None) -> Item:
        return to_item(sample, self.dataset.transform.host_normalization, self.dataset.targets, self.dataset.padding)

    def _collate(self, items: list[Item], buffer: None) -> Batch:
        batch = collate(items, self.dataset.targets)
        assert batch is not None
        return batch


class _StepNames:
    """Makes steps with unique names: a second stage of the same name gets a number."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()

    def add(self, name: str, label: str, kind: str, run: Callable[..., Any]) -> Step:
        self._names[name] += 1
        number = self._names[name]
        return Step(name if number == 1 else f"{name} {number}", " ".join(label.split()), kind, run)

    def add_stage(self, stage: Stage, kind: str) -> Step:
        run = partial(_run_fixed, stage) if isinstance(stage, FixedStage) else stage
        return self.add(_name(stage), repr(stage), kind, run)


def _run_fixed(stage: FixedStage, sample: Sample, rng: np.random.Generator) -> Sample:
    return stage(sample)


def _name(stage: Stage) -> str:
    members = getattr(stage, "transforms", ())
    names = [type(member).__name__ for member in members] or [type(stage).__name__]
    return "decode" if names == ["Decode"] else " + ".join(names)


def _stages(dataset: PageDataset, take_apart: bool) -> Iterator[tuple[Stage, str]]:
    """Every stage between source and maps with its kind: "fixed", or "random" if it runs in every epoch."""
    part = dataset.fixed_part
    fixed = () if dataset.source.is_ready else (part.decode, *part.stages)
    for kind, stages in (("fixed", fixed), ("random", dataset.transform.random)):
        for stage in stages:
            members = getattr(stage, "transforms", ()) if take_apart else ()
            # Each of them samples pixels; our own geometry is one warp, and stays one stage.
            rebuild: Callable[..., Stage] = type(stage)
            parts = [rebuild((member,)) for member in members] or [stage]
            yield from ((single, kind) for single in parts)
