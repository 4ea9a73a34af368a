"""device: a uint8 batch becomes a normalised float batch where the model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.geometry.kernels import normalize_to_chw
from ocr.pipeline.stage import POSITIVE, Range, check_numbers

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class Normalize:
    """(pixel / max_pixel_value - mean) / std, with the same float32 steps on the host and on the device."""

    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    max_pixel_value: float = 255.0

    def __post_init__(self) -> None:
        check_numbers(self, max_pixel_value=POSITIVE)
        for name, allowed in (("mean", Range()), ("std", POSITIVE)):
            given: Any = getattr(self, name)
            values = given.tolist() if isinstance(given, np.ndarray) else given
            if not isinstance(values, Sequence) or len(values) != 3 or not all(value in allowed for value in values):
                raise ConfigError(f"Normalize({name}={given!r}): three channels are needed, each {allowed}")
            object.__setattr__(self, name, tuple(float(value) for value in values))

    @property
    def offset_and_factor(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What is taken off each channel, and what it is then multiplied by."""
        mean, std = (np.array(values, dtype=np.float32) for values in (self.mean, self.std))
        peak = np.float32(self.max_pixel_value)
        return mean * peak, np.reciprocal(std * peak)

    def on_host(self, image_hwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """One page, (H, W, 3) uint8 to (3, H, W) float32."""
        height, width = image_hwc.shape[:2]
        out_chw = np.empty((3, height, width), dtype=np.float32)
        normalize_to_chw(image_hwc, *self.offset_and_factor, out_chw)
        return out_chw

    def on_device(self, images: torch.Tensor, device: torch.device | str | None = None) -> torch.Tensor:
        """A batch (B, 3, H, W) of uint8, moved first and normalised there; a float batch is only moved."""
        moved = images.to(device, non_blocking=True) if device is not None else images
        if moved.is_floating_point():
            return moved
        offset, factor = (torch.from_numpy(part).to(moved.device).view(3, 1, 1) for part in self.offset_and_factor)
        return (moved.float() - offset) * factor
