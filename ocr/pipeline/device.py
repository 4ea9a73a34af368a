"""device: a uint8 batch becomes a normalised float batch where the model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch

from ocr.pipeline.normalize import Normalize as Normalize

ARRIVED, WHOLE = "arrived", "whole batch"
"""Names of what is added to a batch on its way, and of a batch that is no dict."""


class Arrival:
    """Brings batches to the model's device, normalised there, while the model works on the previous batch."""

    def __init__(self, normalize: Normalize | None, device: torch.device | str) -> None:
        self.normalize, self.device = normalize, torch.device(device)

    def bring(self, batch: Any) -> Any:
        """Called ahead of time, in a thread of the loader: copies run on their own stream."""
        if self.device.type != "cuda":
            return self._move(batch)
        with torch.cuda.device(self.device):
            with torch.cuda.stream(self._stream):
                moved = self._move(batch)
            return (moved if isinstance(moved, dict) else {WHOLE: moved}) | {ARRIVED: self._stream.record_event()}

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        """For the copies of all batches: a device has few streams."""
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def receive(self, batch: Any) -> Any:
        """Called by the consumer: its own stream waits for the copies, the host does not."""
        event = batch.pop(ARRIVED, None) if isinstance(batch, dict) else None
        if event is None:
            return batch
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        with_tensors(batch, lambda tensor: tensor.record_stream(current))
        return batch.get(WHOLE, batch)

    def _move(self, batch: Any) -> Any:
        moved = with_tensors(batch, lambda tensor: tensor.to(self.device, non_blocking=True))
        return moved | {"images": self.normalize.on_device(moved["images"])} if self.normalize else moved


def with_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same dicts, lists and tuples with other tensors in them.

    >>> with_tensors({"a": [torch.ones(1), "b"]}, lambda tensor: tensor + 1)
    {'a': [tensor([2.]), 'b']}
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {name: with_tensors(each, change) for name, each in value.items()}
    if isinstance(value, list):
        return [with_tensors(each, change) for each in value]
    if isinstance(value, tuple):
        changed = tuple(with_tensors(each, change) for each in value)
        return type(value)(*changed) if hasattr(value, "_fields") else changed
    return value


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
