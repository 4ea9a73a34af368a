"""device: a uint8 batch becomes a normalised float batch where the model is."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.checks import POSITIVE, Range, check_numbers
from ocr.errors import ConfigError
from ocr.geometry.kernels.maps import normalize_interleaved_to_chw, normalize_to_chw

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
ARRIVED = "arrived"


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
                raise ConfigError(f"Normalize({name}={given!r}): it must have three channels, each {allowed}")
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
        batch = np.empty(images.shape, dtype=np.float32)
        for page, out in zip(images.permute(0, 2, 3, 1).numpy(), batch, strict=True):
            self.on_host(page, out)
        return torch.from_numpy(batch)


class Arrival:
    """Brings batches to the model's device, normalised there, while the model works on the previous batch."""

    def __init__(self, normalize: Normalize | None, device: torch.device | str) -> None:
        self.normalize, self.device = normalize, torch.device(device)
        self._streams: dict[int, torch.cuda.Stream] = {}

    def bring(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Called ahead of time, in a thread of the loader: copies run on their own stream."""
        if self.device.type != "cuda":
            return self._move(batch)
        with torch.cuda.device(self.device):
            stream = self._streams.setdefault(threading.get_ident(), torch.cuda.Stream(self.device))  # type: ignore[no-untyped-call]
            with torch.cuda.stream(stream):
                moved = self._move(batch)
            return moved | {ARRIVED: stream.record_event()}

    def receive(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Called by the consumer: its own stream waits for the copies, the host does not."""
        event = batch.pop(ARRIVED, None)
        if event is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(event)
            for value in batch.values():
                if isinstance(value, torch.Tensor):
                    value.record_stream(current)
        return batch

    def _move(self, batch: dict[str, Any]) -> dict[str, Any]:
        moved = {
            name: value.to(self.device, non_blocking=True) if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
        }
        return moved | {"images": self.normalize.on_device(moved["images"])} if self.normalize else moved


class HostCopy:
    """A tensor on its way to the host: work can be queued on the device meanwhile, and only `read` waits."""

    def __init__(self, tensor: torch.Tensor) -> None:
        # On CUDA the copy lands in pinned memory. Other devices do not say when it is complete.
        self._value = tensor.detach().to("cpu", non_blocking=tensor.is_cuda)
        self._copied = torch.cuda.current_stream(tensor.device).record_event() if tensor.is_cuda else None

    def read(self) -> torch.Tensor:
        """The value, once the device has computed and copied it; later work on the device is not waited for."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._value
