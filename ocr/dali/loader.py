"""DALIDataLoader: the batches of every other loader, with pages that NVIDIA DALI decodes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.dali.graph import OCRPipeline, RefusedError
from ocr.dali.maps import draw_on_device
from ocr.dali.requests import Request
from ocr.errors import ConfigError
from ocr.loader.batch_maker import Pending, SlotBatchMaker, accepts_maps
from ocr.loader.loader import Loader
from ocr.loader.shape_batches import ShapeBatches
from ocr.pipeline.batch import Batch, Item, listed, lists
from ocr.pipeline.padding import rounded_up
from ocr.pipeline.stage import run

FEEDERS = 2
"""Threads that feed batches to DALI: while one waits for its batch, the other prepares the next."""


class DALIDataLoader(Loader):
    """The batches of a pipeline's dataset, with the order, epochs, ranks, last batch and resume of `ocr.Loader`.

    `pipeline` comes from `ocr_pipeline`, `size` is the number of its pages, and `settings` are those of `Loader`.
    `num_workers` threads (default: the pipeline's `num_threads`) read pages and draw maps; DALI decodes in its own.
    """

    def __init__(
        self,
        pipeline: OCRPipeline,
        size: int,
        batch_size: int,
        *,
        num_workers: int | None = None,
        collate_fn: Callable[[list[Item | None]], Batch | None] | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(pipeline, OCRPipeline):
            raise ConfigError(
                f"pipeline={pipeline!r} must come from ocr.dali.graph.ocr_pipeline",
                setting="DALIDataLoader.pipeline",
                value=pipeline,
            )
        if size != len(pipeline.dataset):
            raise ConfigError(
                f"size={size}, but the pipeline has {len(pipeline.dataset)} pages. Give size=len(dataset)",
                setting="DALIDataLoader.size",
                value=size,
            )
        if batch_size > pipeline.batch_size:
            problem = f"batch_size={batch_size} is more than the pipeline's batch_size={pipeline.batch_size}"
            raise ConfigError(problem, setting="DALIDataLoader.batch_size", value=batch_size)
        if settings.get("engine", "threads") != "threads":
            raise ConfigError(
                f"data.engine={settings['engine']}, but use_dali=true needs threads. Set data.engine=threads",
                setting="data.engine",
                value=settings["engine"],
            )
        workers = pipeline.num_threads if num_workers is None else num_workers
        feeders = FEEDERS if workers else 0
        super().__init__(pipeline.dataset, batch_size, feeders, collate_fn=collate_fn, **settings)
        if collate_fn is not None and not accepts_maps(collate_fn, pipeline.dataset.targets):
            raise ConfigError(
                f"use_dali=true draws the maps of {pipeline.dataset.targets!r}, but collate_fn expects others. "
                "Give both the same shrink_ratio, thresh_min and thresh_max",
                setting="DALIDataLoader.collate_fn",
                value=collate_fn,
            )
        if isinstance(self.batch_sampler, ShapeBatches):
            pipeline.batch_size = max(pipeline.batch_size, self.batch_sampler.most_pages)
        self.pipeline = pipeline
        self._maker = DALIMaker(pipeline, workers, self._arrival.bring if self._arrival else None)

    def __repr__(self) -> str:
        return f"DALIDataLoader({len(self)} batches, batch_size={self.batch_size}) of {self.pipeline!r}"


class DALIMaker(SlotBatchMaker):
    """Makes a batch in three steps: read every page, run DALI, then write the maps of every page into its slot."""

    def __init__(self, pipeline: OCRPipeline, workers: int, finish: Callable[[Batch], Batch] | None) -> None:
        super().__init__(pipeline.dataset, finish)
        self.pipeline, self.workers = pipeline, workers

    def _item(self, pending: Pending, position: int) -> Item | None:
        index = pending.indices[position]
        reader = self.pipeline.reader
        return self.pipeline.dataset.guard(index, lambda index: {"request": reader.read(index, pending.epoch)})

    def _assemble(self, pending: Pending) -> None:
        positions, images = self._run(pending)
        if images is None:
            return
        requests = _present(pending)[1]
        made = self._finish_pages(pending, positions, requests, images)
        if pending.outgrown:
            # A stage after DALI made a page larger than its batch: all are read again, with the same random numbers.
            pending.outgrown, pending.buffer = False, None
            for position in positions:
                pending.items[position] = self._item(pending, position)
            self._assemble(pending)
            return
        kept = [number for number, item in enumerate(made) if item is not None]
        if not kept or pending.buffer is None:
            return
        batch = pending.buffer.batch([positions[number] for number in kept])
        if not self.pipeline.plan.rest:
            batch["images"] = images if len(kept) == len(made) else images[kept]
        if self.pipeline.maps == "device":
            samples = [requests[number].sample for number in kept]
            shape = batch["images"].shape[-2:]
            batch |= draw_on_device(self.pipeline.dataset.targets, samples, self.pipeline.device, shape)
        pending.batch = batch | lists([item for item in made if item is not None])
        pending.buffer = None

    def _run(self, pending: Pending) -> tuple[list[int], torch.Tensor | None]:
        """The positions of the pages that could be read, and their images; pages that DALI refuses are decoded here."""
        positions, requests = _present(pending)
        self._pad(pending, requests)
        try:
            return positions, self.pipeline.run(requests) if requests else None
        except RefusedError:
            refused = self.pipeline.find_refused(requests)
            if not refused:
                raise
        self.pipeline.reader.refused.update(refused)
        for position in positions:
            if pending.indices[position] in refused:
                pending.items[position] = self._item(pending, position)
        positions, requests = _present(pending)
        self._pad(pending, requests)
        return positions, self.pipeline.run(requests) if requests else None

    def _pad(self, pending: Pending, requests: list[Request]) -> None:
        """Ask for the size of the batch if pages have their own shapes; it holds also a page that a stage enlarged."""
        if not self.pipeline.plan.keeps_shape or not requests:
            return
        sizes = [request.sample.size[::-1] for request in requests]
        if not self.pipeline.plan.rest:
            sizes.append(pending.shape or (0, 0))
        shape = rounded_up(*(max(sides) for sides in zip(*sizes, strict=True)))
        # Stages after DALI may cut or shrink pages, which are then written into a batch of the planned shape.
        pending.shape = pending.shape if self.pipeline.plan.rest else shape
        for request in requests:
            request.inputs["origin"] = np.zeros(2, dtype=np.int32)
            request.inputs["batch"] = np.array(shape, dtype=np.int32)

    def _finish_pages(
        self, pending: Pending, positions: list[int], requests: list[Request], images: torch.Tensor
    ) -> list[Item | None]:
        pages = images.permute(0, 2, 3, 1).numpy() if self.pipeline.plan.rest else [None] * len(requests)

        def finish(number: int) -> Item | None:
            request, position = requests[number], positions[number]
            return self.pipeline.dataset.guard(
                request.sample.index, lambda _: self._finish_page(pending, position, request, pages[number])
            )

        if self.workers < 2 or len(requests) < 2:
            return [finish(number) for number in range(len(requests))]
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(finish, range(len(requests))))

    def _finish_page(self, pending: Pending, position: int, request: Request, page: NDArray[Any] | None) -> Item:
        """The stages after DALI, then the maps."""
        dataset, sample = self.pipeline.dataset, request.sample
        if page is not None:
            width, height = sample.size
            page = page[:height, :width]
            sample = run(self.pipeline.plan.rest, replace(sample, image=page, reduced_from=None), request.rng)
        slot = self._slot(pending, position, sample)
        draw_maps = dataset.draw_maps if self.pipeline.maps == "host" else None
        sample = slot.write(replace(sample, map_source="drawn"), dataset.transform.host_normalization, draw_maps)
        dataset.ledger.record(sample)
        return listed(sample)


def _present(pending: Pending) -> tuple[list[int], list[Request]]:
    """The positions in the batch of the pages that could be read, and their requests."""
    positions = [position for position, item in enumerate(pending.items) if item is not None]
    return positions, [pending.items[position]["request"] for position in positions]  # type: ignore[index]
