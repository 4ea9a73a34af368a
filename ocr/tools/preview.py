"""Draw samples as the model receives them: page and polygons, maps, masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.atomic import replacing
from ocr.checks import check_integer
from ocr.datasets.build import build_dataset
from ocr.errors import DataError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.jobs.compose import compose_training
from ocr.jobs.run import quoted_override
from ocr.pipeline.sample import Sample

LEARNT, IGNORED, MASKED = (40, 180, 60), (220, 50, 40), (90, 90, 90)


def draw_preview(
    data: Path, out: Path, *, split: str = "val", limit: int = 3, settings: Sequence[str] = ()
) -> list[str]:
    """Write one row per page: polygons (green, or red if ignored), probability map, threshold map.

    Pages are made as `glyphfeed train` makes them with these KEY=VALUE. Gray in the probability map is what the loss
    leaves out. Pages that cannot be read are left out, and returned with the reason.
    """
    check_integer("--limit", limit, 1)
    # What is set later wins; floats could not be drawn.
    given = ["data.cache=off", "on_bad_sample=skip", *settings]
    config = compose_training([quoted_override("dataset_base_path", str(data)), *given, "transforms.normalize=device"])
    dataset = build_dataset(config, split)
    warm_up()
    left_out = list(dataset.source.skipped.values())
    rows: list[NDArray[np.uint8]] = []
    for index in np.unique(np.linspace(0, len(dataset) - 1, min(limit, len(dataset))).astype(int)):
        try:
            rows.append(_row(dataset.sample(int(index))))
        except DataError as error:
            left_out.append(str(error))
    if not rows:
        raise DataError(f"none of the {split} pages can be read. The last: {left_out[-1]}", value=split, path=data)
    width = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 4), (0, width - row.shape[1]), (0, 0)), constant_values=255) for row in rows]
    encoded = cv2.imencode(".png", np.concatenate(padded)[:-4, :, ::-1])[1]
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
