"""Items of any dataset as one row of bytes and a JSON skeleton, and back: arrays, tensors and plain Python values."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.pipeline.record import Record

_PLAIN = (type(None), bool, int, float, str)
_KINDS = "biufc"
"""Of numpy: numbers and truth values; objects would be pointers."""
_TENSORS = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.bfloat16, torch.float16, torch.float32)} | {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
}


class ItemRecord(Record):
    """The stored form of an item, which has no height and width."""

    @property
    def size_hw(self) -> tuple[int, int]:
        return 1, 1


def pack_item(value: object) -> ItemRecord:
    """The bytes of all arrays, one after the other, and a skeleton that says where they belong.

    >>> unpack_item(pack_item({"image": np.eye(2), "label": (1, "cat")}))
    {'image': array([[1., 0.],
           [0., 1.]]), 'label': (1, 'cat')}
    """
    parts: list[NDArray[np.uint8]] = []
    skeleton = _take_apart(value, parts, "the item")
    data = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return ItemRecord({"image": data}, json.dumps(skeleton).encode())


def unpack_item(record: Record) -> Any:
    """The item, in memory of its own."""
    return _put_together(json.loads(record.metadata), record.arrays["image"])


def _take_apart(value: object, parts: list[NDArray[np.uint8]], where: str) -> list[Any]:
    if isinstance(value, torch.Tensor) and value.device.type == "cpu" and str(value.dtype)[6:] in _TENSORS:
        # Bytes of any type, also of those that numpy does not have.
        data = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
        return ["tensor", str(value.dtype)[6:], list(value.shape), *_placed(data, parts)]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in _KINDS:
        kind = "array" if isinstance(value, np.ndarray) else "number"
        # Zero dimensions get lost in ascontiguousarray.
        data = np.frombuffer(value.tobytes(), np.uint8)
        return [kind, value.dtype.str, list(value.shape), *_placed(data, parts)]
    if type(value) is bytes:
        return ["bytes", *_placed(np.frombuffer(value, np.uint8), parts)]
    if type(value) in (list, tuple):
        items = [_take_apart(item, parts, f"{where}[{number}]") for number, item in enumerate(value)]  # type: ignore[arg-type,var-annotated]
        return [type(value).__name__, *items]
    if type(value) is dict and all(type(key) in _PLAIN for key in value):
        return ["dict", *([key, _take_apart(item, parts, f"{where}[{key!r}]")] for key, item in value.items())]
    if type(value) in _PLAIN:
        return ["plain", value]
    raise ConfigError(
        f"{where} is {type(value).__name__}: a cache keeps arrays of numbers, tensors on the CPU, and plain values "
        "(None, bool, int, float, str, bytes, list, tuple, dict). Let the transform of the dataset make one of them"
    )


def _placed(data: NDArray[np.uint8], parts: list[NDArray[np.uint8]]) -> tuple[int, int]:
    start = sum(map(len, parts))
    parts.append(data)
    return start, len(data)


def _put_together(skeleton: list[Any], data: NDArray[np.uint8]) -> Any:
    kind, *rest = skeleton
    if kind in ("list", "tuple"):
        items = [_put_together(item, data) for item in rest]
        return items if kind == "list" else tuple(items)
    if kind == "dict":
        return {key: _put_together(item, data) for key, item in rest}
    if kind == "plain":
        return rest[0]
    start, size = rest[-2:]
    own = data[start : start + size].tobytes()
    if kind == "bytes":
        return own
    dtype, shape = rest[:2]
    if kind == "tensor":
        # An empty buffer is refused.
        flat = torch.frombuffer(bytearray(own), dtype=torch.uint8) if own else torch.empty(0, dtype=torch.uint8)
        return flat.view(_TENSORS[dtype]).reshape(shape)
    array = np.frombuffer(bytearray(own), np.dtype(dtype)).reshape(shape)
    return array if kind == "array" else array[()]
