"""A batch for measuring the model: pages of a usual shape, and how many pixels the batches of an epoch have."""

from __future__ import annotations

import torch
from omegaconf import DictConfig

from ocr.advisor.measure.pages import open_uncached
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import DataError
from ocr.loader.loader import Loader
from ocr.pipeline.batch import Batch
from ocr.pipeline.device import Arrival

MAX_PAGES = 32


class TypicalBatch:
    """Pages of a split on the model's device, in a batch of the shape that is nearest to the mean of an epoch."""

    def __init__(self, config: DictConfig, split: str, device: torch.device, max_pages: int = MAX_PAGES) -> None:
        self.dataset = open_uncached(config, split)
        settings = config.dataloaders[f"{split}_dataloader"]
        self.all_pages, self.batch_size = len(self.dataset), int(settings.batch_size)
        shapes = int(config.data.batch_shapes)
        pages = min(max_pages, self.all_pages)
        areas = _areas(Loader(self.dataset, min(self.batch_size, self.all_pages), 0, batch_shapes=shapes))
        loader = Loader(self.dataset, pages, 0, batch_shapes=shapes)
        mean = sum(count * area for count, area in areas) / max(1, sum(count for count, _ in areas))
        position = _nearest(_areas(loader), mean)
        self.batch = _bring(loader, position, self.dataset, device)
        own = float(self.batch["images"].shape[-1] * self.batch["images"].shape[-2])
        self.mean_pixels = mean or own
        """Of a page in the batches of an epoch, padding included."""
        self.largest_pixels = max((area for _, area in areas), default=0) or own
        """Of a page in the largest batch."""
        self.shapes = len(set(areas))
        """Of the batches of an epoch, with the number of their pages."""


def _areas(loader: Loader) -> list[tuple[int, int]]:
    """Pages and pixels per page of each batch of an epoch; no pixels if all pages have one size."""
    batches = loader.batch_sampler.batches(0, 0)
    shapes = ((len(indices), getattr(indices, "shape", None) or (0, 0)) for indices in batches)
    return [(count, height * width) for count, (height, width) in shapes]


def _nearest(areas: list[tuple[int, int]], mean: float) -> int:
    """The batch with the most pages whose pixels are nearest to the mean."""
    most = max((count for count, _ in areas), default=0)
    full = [number for number, (count, _) in enumerate(areas) if count == most]
    return min(full, key=lambda number: abs(areas[number][1] - mean), default=0)


def _bring(loader: Loader, position: int, dataset: PageDataset, device: torch.device) -> Batch:
    loader.load_state_dict({"epoch": 0, "batches": position})
    batch = next(iter(loader), None)
    if batch is None:
        raise DataError(
            f"no page of a batch of {dataset.source.location} can be read. Find out why: ocr doctor",
            path=str(dataset.source.location),
        )
    arrival = Arrival(dataset.transform.normalization, device)
    received: Batch = arrival.receive(arrival.bring(batch))
    return received
