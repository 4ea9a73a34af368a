"""Normalize: bytes to normalised floats, on the host, or with torch on the model's device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ocr.checks import POSITIVE, Range, check_numbers
from ocr.errors import ConfigError
from ocr.geometry.kernels.maps import normalize_interleaved_to_chw, normalize_to_chw

if TYPE_CHECKING:  # Exported models run without torch.
    import torch

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
                problem = f"Normalize({name}={given!r}): it must have three channels, each {allowed}"
                raise ConfigError(problem, setting=f"Normalize.{name}", value=given)
            object.__setattr__(self, name, tuple(float(value) for value in values))

    @property
    def offset_and_factor(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What is subtracted from each channel, and what it is then multiplied by."""
        mean, std = (np.array(values, dtype=np.float32) for values in (self.mean, self.std))
        peak = np.float32(self.max_pixel_value)
        return mean * peak, np.reciprocal(std * peak)

    def on_host(self, image_hwc: NDArray[np.uint8], out_chw: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """One page, (H, W, 3) uint8 to (3, H, W) float32, written into `out_chw` if it is given."""
        if out_chw is None:
            out_chw = np.empty((3, *image_hwc.shape[:2]), dtype=np.float32)
        kernel = normalize_interleaved_to_chw if image_hwc.flags.c_contiguous else normalize_to_chw
        kernel(image_hwc, *self.offset_and_factor, out_chw)
        return out_chw

    def on_device(self, images: torch.Tensor, device: torch.device | str | None = None) -> torch.Tensor:
        """A batch (B, 3, H, W) of uint8, moved first and normalised there; a float batch is only moved."""
        moved = images.to(device, non_blocking=True) if device is not None else images
        if moved.is_floating_point():
            return moved
        if moved.device.type == "cpu":
            return self._on_cpu(moved)
        return self._by_channel(moved)

    def _by_channel(self, images: torch.Tensor) -> torch.Tensor:
        pixels = images.float()
        # Numbers, not tensors: the host waits for all queued work before it copies a small tensor to the device.
        numbers = (part.tolist() for part in self.offset_and_factor)
        for channel, offset, factor in zip(pixels.unbind(1), *numbers, strict=True):
            channel.sub_(offset).mul_(factor)
        return pixels

    def _on_cpu(self, images: torch.Tensor) -> torch.Tensor:
        """One pass per page; torch would take three over the whole batch."""
        import torch

        batch = np.empty(images.shape, dtype=np.float32)
        for page, out in zip(images.permute(0, 2, 3, 1).numpy(), batch, strict=True):
            self.on_host(page, out)
        return torch.from_numpy(batch)
