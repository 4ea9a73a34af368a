"""device: a uint8 batch becomes a normalised float batch where the model is."""

from __future__ import annotations

import threading
from typing import Any

import torch

from ocr.pipeline.normalize import Normalize as Normalize

ARRIVED = "arrived"


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
