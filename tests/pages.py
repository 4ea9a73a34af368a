"""The synthetic pages as small datasets, with fixed and with random transforms; pages through stages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import Stage
from ocr.pipeline.suffix import ColourJitter, JpegNoise, RandomFlip, RandomRotate, TextAwareCrop

SIZE = 96


def transforms(random: bool, normalize: str = "host") -> DBTransforms:
    steps = [TextAwareCrop(), RandomFlip(), RandomRotate(), ColourJitter(), JpegNoise()] if random else []
    return DBTransforms([Letterbox(SIZE), *steps, Normalize()], normalize=normalize)


def open_split(data: Path, split: str, transform: DBTransforms | None = None, **settings: Any) -> OCRDataset:
    """A split of a folder; the training pages are augmented."""
    chosen = transform or transforms(split == "train")
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", chosen, **settings)


def plain(dataset: Any, batch_size: int = 3) -> list[Any]:
    """What torch's own loader makes, in the main process."""
    return list(DataLoader(dataset, batch_size, collate_fn=DBCollateFN()))


def without_paths(batches: Any) -> list[Any]:
    """Batches of one split from several places differ in the paths of their pages only."""
    return [{name: value for name, value in batch.items() if name != "image_path"} for batch in batches]


def names(batches: Any) -> list[tuple[str, ...]]:
    """The file names of each batch."""
    return [tuple(batch["image_filename"]) for batch in batches]


def images_by_name(batches: Any) -> dict[str, torch.Tensor]:
    """A copy of each page of some batches; no page comes twice."""
    pages = [pair for batch in batches for pair in zip(batch["image_filename"], batch["images"].clone(), strict=True)]
    assert len(dict(pages)) == len(pages)
    return dict(pages)


def run(stages: Sequence[Stage], page: Sample, rng: np.random.Generator) -> Sample:
    """A page after some stages, with its pixels."""
    for stage in stages:
        page = stage.run(page, rng)
    return page.unpacked()


def run_one_by_one(stages: Sequence[Stage], page: Sample, rng: np.random.Generator) -> Sample:
    """A page after some stages, its pixels made after each of them."""
    for stage in stages:
        page = stage.run(page, rng).unpacked()
    return page
