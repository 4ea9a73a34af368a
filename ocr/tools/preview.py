"""Draw samples as the model receives them: page and polygons, maps, masks."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.atomic import replacing
from ocr.checks import check_integer
from ocr.datasets import DBTransforms, OCRDataset
from ocr.errors import DataError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.suffix import ColourJitter, RandomFlip, RandomRotate, RandomScale, TextAwareCrop

LEARNT, IGNORED, MASKED = (40, 180, 60), (220, 50, 40), (90, 90, 90)


def draw_preview(
    data: Path, out: Path, *, split: str = "val", pages: int = 3, size: int = 640, seed: int = 0
) -> list[str]:
    """Write one row per page: polygons (green, or red if ignored), probability map, threshold map.

    Gray in the probability map is what the loss leaves out. Training pages are augmented. Pages that cannot be read
    are left out, and returned with the reason.
    """
    check_integer("pages", pages, 1)
    suffix = [TextAwareCrop(), RandomFlip(), RandomRotate(), RandomScale(), ColourJitter()] if split == "train" else []
    dataset = OCRDataset(
        data / "images" / split,
        data / "jsons" / f"{split}.json",
        DBTransforms([Letterbox(size), *suffix]),
        on_bad_sample="skip",
        seed=seed,
    )
    warm_up()
    left_out = list(dataset.source.skipped.values())
    rows: list[NDArray[np.uint8]] = []
    for index in np.unique(np.linspace(0, len(dataset) - 1, min(pages, len(dataset))).astype(int)):
        try:
            rows.append(_row(dataset.sample(int(index))))
        except DataError as error:
            left_out.append(str(error))
    if not rows:
        raise DataError(f"none of the {split} pages can be read. The last: {left_out[-1]}", value=split, path=data)
    encoded = cv2.imencode(".png", np.concatenate(rows)[:, :, ::-1])[1]
    with replacing(out) as stream:
        stream.write(encoded.tobytes())
    return left_out


def _row(sample: Sample) -> NDArray[np.uint8]:
    page = sample.image.copy()
    for polygon, ignored in zip(sample.polygons, sample.polygons.ignore, strict=True):
        outline = [np.round(polygon).astype(np.int32)]
        cv2.polylines(page, outline, True, IGNORED if ignored else LEARNT, 1, cv2.LINE_AA)
    maps = sample.maps
    assert maps is not None
    prob = np.repeat((maps["prob_map"] * 255).astype(np.uint8)[:, :, None], 3, axis=2)
    prob[~maps["prob_mask"]] = MASKED
    thresh = cv2.applyColorMap((maps["thresh_map"] * 255).astype(np.uint8), cv2.COLORMAP_VIRIDIS)[:, :, ::-1]
    border = np.full((page.shape[0], 4, 3), 255, dtype=np.uint8)
    row: NDArray[np.uint8] = np.concatenate([page, border, prob, border, thresh], axis=1)
    return row
