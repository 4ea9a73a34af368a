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
MANY = 8
"""Numbers in a list, from which on they are kept as an array."""
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
    if (numbers := _numbers(value)) is not None:
        described, data = numbers
        return [*described, *_placed(data, parts)]
    if type(value) is bytes:
        return ["bytes", *_placed(np.frombuffer(value, np.uint8), parts)]
    if type(value) in (list, tuple):
        if (array := _row_of_numbers(value)) is not None:  # type: ignore[arg-type]
            return [f"{type(value).__name__} of numbers", array.dtype.str, *_placed(array.view(np.uint8), parts)]
        items = [_take_apart(item, parts, f"{where}[{number}]") for number, item in enumerate(value)]  # type: ignore[arg-type,var-annotated]
        return [type(value).__name__, *items]
    if type(value) is dict and all(type(key) in _PLAIN for key in value):
        return ["dict", *([key, _take_apart(item, parts, f"{where}[{key!r}]")] for key, item in value.items())]
    if type(value) in _PLAIN:
        return ["plain", value]
    about = f" of {value.dtype}" if isinstance(value, torch.Tensor | np.ndarray) else ""
    raise ConfigError(
        f"{where} is {type(value).__name__}{about}. A cache keeps arrays of numbers, dense tensors of real numbers on "
        "the CPU, and plain values (None, bool, int, float, str, bytes, list, tuple, dict). Let the transform of the "
        "dataset make one of them",
        setting="cached.dataset",
        value=value,
    )


def _row_of_numbers(values: list[Any] | tuple[Any, ...]) -> NDArray[Any] | None:
    """Many integers or many floats, such as the tokens of a text: as an array they are read fifty times as fast."""
    kinds = set(map(type, values))
    if len(values) < MANY or kinds not in ({int}, {float}):
        return None
    try:
        return np.array(values, np.int64 if kinds == {int} else np.float64)
    except OverflowError:
        return None


def _numbers(value: object) -> tuple[list[Any], NDArray[np.uint8]] | None:
    """Kind, type and shape of an array or tensor, and its bytes; None for anything else.

    Classes derived from them hold more than numbers, such as a mask or the format of boxes, which would be lost.
    """
    if isinstance(value, torch.Tensor):
        name, is_dense = str(value.dtype)[6:], value.layout == torch.strided and value.device.type == "cpu"
        if name not in _TENSORS or not is_dense or type(value) not in (torch.Tensor, torch.nn.Parameter):
            return None
        # Bytes of any type, also of those that numpy does not have.
        data = value.detach().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy()
        return ["tensor", name, list(value.shape)], data
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in _KINDS:
        return None
    is_array = isinstance(value, np.ndarray)
    if is_array and type(value) not in (np.ndarray, np.memmap):
        return None
    # Zero dimensions get lost in ascontiguousarray.
    data = np.frombuffer(value.tobytes(), np.uint8)
    return ["array" if is_array else "number", value.dtype.str, list(value.shape)], data


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
    if kind.endswith(" of numbers"):
        numbers = data[start : start + size].view(np.dtype(rest[0])).tolist()
        return numbers if kind.startswith("list") else tuple(numbers)
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
