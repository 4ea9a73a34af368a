"""ConditionalNormalize: an Albumentations `Normalize` that skips pages which are normalised already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ocr.optional import require

if TYPE_CHECKING:
    Base = Any
else:
    Base = require("albumentations", "ConditionalNormalize").Normalize


class ConditionalNormalize(Base):  # type: ignore[misc]
    """Normalise uint8 images, and leave float images as they are: those were normalised when they were preloaded."""

    def apply(self, img: NDArray[Any], **params: Any) -> NDArray[Any]:
        if np.issubdtype(img.dtype, np.floating):
            return img
        normalized: NDArray[Any] = super().apply(img, **params)
        return normalized
