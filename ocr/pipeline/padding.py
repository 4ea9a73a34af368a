"""padding: a page with its own shape inside a batch of a larger one, on the right and at the bottom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # Ray workers do without torch.
    from ocr.pipeline.device import Normalize

STRIDE = 32
"""Sides of a batch are multiples of this: the detector's coarsest features have one pixel for so many."""


@dataclass(frozen=True, slots=True)
class Padding:
    """What is around a page in its batch: `fill` in the image, nothing to find in the maps, and no loss."""

    fill: int
    thresh_min: float
    normalize: Normalize | None = None
    """How pages are normalised on the host; None if they stay bytes."""

    def of_image(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """The pixel around a page, (3, 1, 1)."""
        pixel = np.full((1, 1, 3), self.fill, dtype=np.uint8)
        if dtype == np.uint8 or self.normalize is None:
            return pixel.transpose(2, 0, 1).astype(dtype)
        return self.normalize.on_host(pixel)

    @property
    def of_maps(self) -> Mapping[str, float]:
        """The value around each map."""
        return {"prob_map": 0.0, "thresh_map": self.thresh_min, "prob_mask": False, "thresh_mask": False}


def rounded_up(height: int, width: int) -> tuple[int, int]:
    """The size of the smallest batch that holds a page.

    >>> rounded_up(640, 321)
    (640, 352)
    """
    return -(-height // STRIDE) * STRIDE, -(-width // STRIDE) * STRIDE


def fill_around(array: NDArray[Any], height: int, width: int, value: Any) -> None:
    """Fill all of a (..., H, W) array but the first `height` rows and `width` columns."""
    array[..., height:, :] = value
    array[..., :height, width:] = value
