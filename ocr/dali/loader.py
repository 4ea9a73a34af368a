"""DALIDataLoader: the batches of every other loader, with pages that NVIDIA DALI decodes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch

from ocr.dali.graph import OCRPipeline, RefusedError
from ocr.dali.requests import Request
from ocr.errors import ConfigError
from ocr.loader.buffers import Collate, Finish, PageBatches, Pending
from ocr.loader.loader import Loader, accepts_maps
from ocr.loader.shapes import ShapeBatches
from ocr.pipeline.batch import Item, listed
from ocr.pipeline.sample import Array, rounded_up

FEEDERS = 2
"""Threads that feed batches to DALI: while one waits for its batch, the other prepares the next."""


class DALIDataLoader(Loader):
    """The batches of a pipeline's dataset, with the order, epochs, ranks, last batch and resume of `ocr.Loader`.

    `pipeline` comes from `ocr_pipeline`, `size` is the number of its pages, and `settings` go to `Loader`.
    `num_workers` threads (default: the pipeline's `num_threads`) read pages and draw maps; DALI decodes in its own.
    """

    def __init__(
        self,
        pipeline: OCRPipeline,
        size: int,
        batch_size: int,
        *,
        num_workers: int | None = None,
        collate_fn: Collate | None = None,
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
                f"size={size}, but the pipeline has {len(pipeline.dataset)} pages. Set size=len(dataset)",
                setting="DALIDataLoader.size",
                value=size,
            )
        if batch_size > pipeline.batch_size:
            raise ConfigError(
                f"batch_size={batch_size} is more than the pipeline's batch_size={pipeline.batch_size}. Set both to "
                "the same number",
                setting="DALIDataLoader.batch_size",
                value=batch_size,
            )
        if settings.get("engine", "threads") != "threads":
            raise ConfigError(
                f"data.engine={settings['engine']}, but use_dali=true needs threads. Set data.engine=threads",
                setting="data.engine",
                value=settings["engine"],
            )
        if collate_fn is not None and not accepts_maps(collate_fn, pipeline.path.drawn):
            raise ConfigError(
                f"use_dali=true draws the maps of {pipeline.path.drawn!r}, but collate_fn expects others. Set the same "
                "shrink_ratio, thresh_min and thresh_max for both",
                setting="DALIDataLoader.collate_fn",
                value=collate_fn,
            )
        workers = pipeline.num_threads if num_workers is None else num_workers
        super().__init__(pipeline.dataset, batch_size, FEEDERS if workers else 0, collate_fn=collate_fn, **settings)
        if isinstance(self.batch_sampler, ShapeBatches):
            pipeline.batch_size = max(pipeline.batch_size, self.batch_sampler.most_pages)
        self.pipeline = pipeline
        self._maker = DALIBatches(pipeline, workers, self._arrival.bring if self._arrival else None)

    def __repr__(self) -> str:
        return f"DALIDataLoader({len(self)} batches, batch_size={self.batch_size}) of {self.pipeline!r}"


class DALIBatches(PageBatches):
    """Makes a batch in three steps: read every page, run DALI, then write the maps of every page into its slot."""

    def __init__(self, pipeline: OCRPipeline, workers: int, finish: Finish | None) -> None:
        super().__init__(pipeline.path, finish)
        self.pipeline, self.workers = pipeline, workers

    def make_sample(self, pending: Pending, position: int) -> None:
        index = pending.indices[position]
        pending.items[position] = None
        with self.path.guard(index):
            pending.items[position] = {"request": self.pipeline.reader.read(index, pending.epoch)}

    def assemble(self, pending: Pending) -> None:
        images = self._decode(pending)
        if images is None:
            return
        requests = _requests(pending)
        made = self._finish_pages(pending, requests, images)
        while pending.outgrown:
            # A stage after DALI made a page larger than its batch.
            pending.buffer, pending.outgrown = None, False
            made = self._finish_pages(pending, requests, images)
        present = [(position, item) for position, item in zip(requests, made, strict=True) if item is not None]
        if present and pending.buffer is not None:
            batch = self.batch_of(pending, present)
            if not self.pipeline.plan.rest:
                kept = [number for number, item in enumerate(made) if item is not None]
                batch["images"] = images if len(kept) == len(made) else images[kept]
            pending.batch = batch
        pending.buffer = None

    def _decode(self, pending: Pending) -> torch.Tensor | None:
        """The images of the pages that could be read; pages that DALI refuses are decoded here."""
        while requests := _requests(pending):
            asked = list(requests.values())
            shape = self._shape(pending, asked)
            try:
                return self.pipeline.run(asked, shape)
            except RefusedError:
                refused = self.pipeline.find_refused(asked, shape) - self.pipeline.reader.refused
                if not refused:
                    raise
            self.pipeline.reader.refused |= refused
            for position in requests:
                if pending.indices[position] in refused:
                    self.make_sample(pending, position)
        return None

    def _shape(self, pending: Pending, requests: list[Request]) -> tuple[int, int] | None:
        """The (height, width) that DALI pads pages to if they have their own shapes: it holds enlarged ones, too."""
        if not self.pipeline.plan.keeps_shape:
            return None
        sizes = [request.sample.size[::-1] for request in requests]
        if self.pipeline.plan.rest:
            # These stages can cut or shrink pages, which are then written into a batch of the planned shape.
            return rounded_up(*map(max, zip(*sizes, strict=True)))
        pending.shape = rounded_up(*map(max, zip(*sizes, pending.shape or (0, 0), strict=True)))
        return pending.shape

    def _finish_pages(self, pending: Pending, requests: dict[int, Request], images: torch.Tensor) -> list[Item | None]:
        """What is left to do for each page: the stages after DALI, then the maps."""
        pages = images.permute(0, 2, 3, 1).numpy() if self.pipeline.plan.rest else [None] * len(requests)

        def finish(position: int, request: Request, page: Array | None) -> Item | None:
            made = None
            with self.path.guard(request.sample.index):
                made = self._finish_page(pending, position, request, page)
            return made

        if self.workers < 2 or len(requests) < 2:
            return list(map(finish, requests, requests.values(), pages))
        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(finish, requests, requests.values(), pages))

    def _finish_page(self, pending: Pending, position: int, request: Request, page: Array | None) -> Item:
        path, sample = self.path, request.sample
        if page is not None:
            width, height = sample.size
            sample = replace(sample, image=page[:height, :width], reduced_from=None)
            # A copy: pages that outgrow their batch are finished twice, with the same random numbers.
            rng = deepcopy(request.rng)
            for stage in self.pipeline.plan.rest:
                sample = stage.run(sample, rng)
        slot = self.slot(pending, position, sample, path.normalize)
        sample = slot.write(sample, path.normalize, path.targets)
        path.ledger.record(sample)
        return listed(sample)


def _requests(pending: Pending) -> dict[int, Request]:
    """The requests of the pages that could be read, by their position in the batch."""
    return {position: item["request"] for position, item in enumerate(pending.items) if item is not None}
