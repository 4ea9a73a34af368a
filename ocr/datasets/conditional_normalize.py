"""ConditionalNormalize: an Albumentations `Normalize` that skips pages which are normalised already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import MissingExtraError
from ocr.optional import require

if TYPE_CHECKING:
    Base = Any
else:
    try:
        Base = require("albumentations", "ConditionalNormalize").Normalize
    except MissingExtraError:

        class Base:
            """`help(ocr)` and completion look at every name: only making one needs the extra."""

            def __init__(self, *arguments: object, **options: object) -> None:
                require("albumentations", "ConditionalNormalize")


class ConditionalNormalize(Base):  # type: ignore[misc]
    """Normalise uint8 images, and leave float images as they are: those were normalised when they were preloaded."""

    def apply(self, img: NDArray[Any], **params: Any) -> NDArray[Any]:
        if np.issubdtype(img.dtype, np.floating):
            return img
        normalized: NDArray[Any] = super().apply(img, **params)
        return normalized
