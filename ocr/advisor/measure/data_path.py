"""The path of a dataset's pages to the model's device, stage by stage, as the loader goes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ocr.advisor.measure.stage_timing import Step, run_named
from ocr.loader.buffers import BatchBuffer, BufferPool
from ocr.pipeline.batch import Batch, Slot, collate, listed, lists, to_item
from ocr.pipeline.device import Arrival
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.sample import Sample
from ocr.pipeline.source import NO_POLYGONS
from ocr.pipeline.stage import FixedStage, Stage

Measure = Callable[..., Any]


def find_device(accelerator: str) -> torch.device:
    """Where the trainer of the config would put the model."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


class DataPath:
    """All stages of a dataset, each to be called by itself with what the one before gave."""

    def __init__(self, dataset: Any, device: torch.device, engine: str = "threads", take_apart: bool = True) -> None:
        """`take_apart`: a run of Albumentations transforms is one stage a transform, not one for all."""
        self.dataset = dataset
        self._buffers = BufferPool()
        rows = _Rows()
        self._source = rows.step("source", type(dataset.source).__name__, "source", dataset.source.read)
        self._stages = [rows.stage(*each) for each in _stages(dataset, take_apart)]
        self._targets = rows.step("targets", repr(dataset.draw_maps), "targets", self._draw)
        self._in_slots = engine == "threads"
        if self._in_slots:
            self._write = rows.step("slot", "the page into its slot of the batch", "batch", self._write_slot)
            self._join = rows.step("batch", "slots as tensors, and lists", "batch", self._join_slots)
        else:
            self._write = rows.step("item", "tensors of the page", "batch", self._to_item)
            self._join = rows.step("collate", "tensors of all pages stacked", "batch", self._collate)
        arrival = Arrival(dataset.transform.normalization, device)
        self._device = rows.step("device", f"{dataset.transform.normalization!r} on {device}", "device", arrival.bring)

    def run_batch(
        self, indices: Sequence[int], epoch: int, measure: Measure = run_named, with_polygons: bool = True
    ) -> Batch:
        """All pages of a batch through all stages; `measure` calls each of them."""
        buffer: BatchBuffer | None = None
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
                buffer = buffer or self._buffers.take(len(indices), sample, normalize)
                buffer.check_size(sample)
                slot = buffer.slot(position)
            sample = measure(self._targets, sample, slot)
            items.append(measure(self._write, sample, slot))
        batch = measure(self._join, items, buffer, pages=len(indices))
        arrived: Batch = measure(self._device, batch, pages=len(indices))
        return arrived

    def _draw(self, sample: Sample, slot: Slot | None) -> Sample:
        draw_maps = self.dataset.draw_maps
        if slot is not None:
            return slot.write_maps(sample, draw_maps)
        made: Sample = draw_maps(sample) if sample.maps is None else sample
        return made

    def _write_slot(self, sample: Sample, slot: Slot) -> tuple[dict[str, Any], Slot]:
        slot.write_page(sample.image, self.dataset.transform.host_normalization)
        return listed(sample), slot

    def _join_slots(self, written: list[tuple[dict[str, Any], Slot]], buffer: BatchBuffer) -> Batch:
        return buffer.batch(list(range(len(written)))) | lists([item for item, _ in written])

    def _to_item(self, sample: Sample, slot: None) -> dict[str, Any]:
        return to_item(sample, self.dataset.transform.host_normalization, self.dataset.targets)

    def _collate(self, items: list[dict[str, Any]], buffer: None) -> Batch:
        batch = collate(items, self.dataset.targets)
        assert batch is not None
        return batch


class _Rows:
    """Gives every row a name of its own."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()

    def step(self, name: str, label: str, kind: str, run: Callable[..., Any]) -> Step:
        self._names[name] += 1
        number = self._names[name]
        return Step(name if number == 1 else f"{name} {number}", " ".join(label.split()), kind, run)

    def stage(self, stage: Stage, kind: str) -> Step:
        run = partial(_run_fixed, stage) if isinstance(stage, FixedStage) else stage
        return self.step(_name(stage), repr(stage), kind, run)


def _run_fixed(stage: FixedStage, sample: Sample, rng: np.random.Generator) -> Sample:
    return stage(sample)


def _name(stage: Stage) -> str:
    members = getattr(stage, "transforms", ())
    names = [type(member).__name__ for member in members] or [type(stage).__name__]
    return "decode" if names == ["Decode"] else " + ".join(names)


def _stages(dataset: Any, take_apart: bool) -> Iterator[tuple[Stage, str]]:
    """Every stage between source and maps with its kind: "random" is all that is made anew in every epoch."""
    fixed = () if dataset.source.is_ready else (dataset.decode, *dataset.transform.fixed)
    for kind, stages in (("fixed", fixed), ("random", dataset.transform.random)):
        for stage in stages:
            members = getattr(stage, "transforms", ()) if take_apart else ()
            # Each samples pixels by itself, unlike our own geometry, which is one warp and stays one row.
            parts = [type(stage)((member,)) for member in members] or [stage]
            yield from ((part, kind) for part in parts)
