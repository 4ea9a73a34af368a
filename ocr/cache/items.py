"""cached: the items of any map-style dataset, one copy per machine, kept between runs, verified before use."""

from __future__ import annotations

import json
import operator
import os
import reprlib
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.cache.cache import Cache
from ocr.errors import ConfigError, DataError
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.page_index import content_digest, file_signature

Key = str | int | os.PathLike[str] | tuple[str | int | os.PathLike[str], ...]
NO_FILE = b""
"""The content of an item that is not made of a file: its key says everything."""
_LENGTH = struct.Struct("<Q")
_PLAIN = (type(None), bool, int, float, str)
MANY = 8
"""Numbers in a list, from which on they are kept as an array."""
_KINDS = "biufc"
"""Of numpy: numbers and truth values; objects would be pointers."""
_TENSORS = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.bfloat16, torch.float16, torch.float32)} | {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (torch.float64, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
}


class Items(Protocol):
    """Any map-style dataset."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def cached(
    dataset: Items,
    key: Callable[[int], Key],
    *,
    listed: Collection[str] = (),
    folder: str | os.PathLike[str] | None = None,
    max_bytes: int | str = "auto",
) -> CachedItems:
    """A dataset with the same items, which makes each of them once per machine.

    `key(index)` says what an item is made of: the path of its file (a `Path`; an edited file makes another item), a
    text or integer that identifies it, or a tuple of these, such as a path and a label. All else that an item depends
    on is the code and the attributes of the dataset: if they change, items are made again. Attributes that only list
    the items, and so grow with them, are left out by their names in `listed`.

    Items must be the same in every epoch: put random transforms behind the cache. They are arrays, tensors, numbers,
    texts, and lists, tuples and dicts of them. Limit and folder are those of the cache of pages.
    """
    if not len(dataset):
        problem = f"{type(dataset).__name__} has no items. Pass a dataset that has some"
        raise ConfigError(problem, setting="cached.dataset", value=0)
    if pack_item(dataset[0]) != pack_item(dataset[0]):
        raise ConfigError(
            f"{type(dataset).__name__} makes another item 0 each time: every epoch would repeat the first one. Cache "
            "a dataset without its random transforms, and apply them to the items of the cache",
            setting="cached.dataset",
            value=type(dataset).__name__,
        )
    making = _Making.of(dataset, listed)
    return CachedItems(dataset, [_read_key(key(index)) for index in range(len(dataset))], making, folder, max_bytes)


class CachedItems:
    """A map-style dataset; `Loader` and torch's DataLoader take it, with any number of workers."""

    def __init__(
        self,
        dataset: Items,
        keys: list[tuple[str, str | None]],
        making: _Making,
        folder: str | os.PathLike[str] | None,
        max_bytes: int | str,
    ) -> None:
        """`keys` are the name of each item, and the path of its file if it has one."""
        self.dataset, self._keys = dataset, keys
        location = f"{type(dataset).__qualname__} ({len(keys)} items, the first: {keys[0][0][:200]})"
        self.cache = Cache((making,), folder, max_bytes, location, unit="item")

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> Any:
        # Samplers give numbers of NumPy and torch, too; the dataset gets one of Python, whoever asks first.
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} of {len(self)} items")
        position %= len(self)
        name, path = self._keys[position]
        content, of_name = self._content(position, path), bytes.fromhex(digest(name))
        kept = self.cache.get(content, of_name)
        if kept.value is not None and not kept.recheck:
            return unpack_item(kept.value)
        value = pack_item(self.dataset[position])
        if kept.value not in (None, value):
            self.cache.distrust(f"item {name}")
        if value != kept.value and self._content(position, path) == content:
            self.cache.put(content, of_name, value)
        return unpack_item(value)

    def flush(self) -> None:
        """Write the items that are on their way into the cache; loaders do it when a pass ends."""
        self.cache.flush()

    def __repr__(self) -> str:
        return f"cached({type(self.dataset).__name__}): {len(self)} items"

    def _content(self, index: int, path: str | None) -> bytes:
        """The digest of the file that an item is made of."""
        if path is None:
            return NO_FILE
        signature = file_signature(path)
        known = None if signature is None else self.cache.content_of(path, signature)
        if known is not None:
            return known
        settled = None if signature is None else signature.settled()
        try:
            with open(path, "rb") as stream:
                content = content_digest(stream.read())
        except OSError as error:
            problem = f"{path}: the file of item {index} cannot be opened ({error.strerror})"
            raise DataError(problem, value=index, path=path) from error
        if settled is not None:
            self.cache.remember(path, settled, content)
        return content


@dataclass(frozen=True, slots=True)
class _Making:
    """What the items of a dataset depend on besides their keys."""

    kind: type
    attributes: dict[str, Any]

    @classmethod
    def of(cls, dataset: Items, listed: Collection[str]) -> _Making:
        attributes = _state(dataset)
        if unknown := [name for name in listed if name not in {*attributes, *dir(dataset)}]:
            kind, known = type(dataset).__name__, ", ".join(attributes)
            problem = f"listed={unknown[0]!r}: {kind} has no such attribute; it has {known}"
            raise ConfigError(problem, setting="cached.listed", value=unknown[0])
        return cls(type(dataset), {name: value for name, value in attributes.items() if name not in listed})

    def __repr__(self) -> str:
        # A cache of other settings is no older version of the same. Their values may be secret, and people read this.
        settings = digest(*(f"{name}={reprlib.repr(value)}" for name, value in self.attributes.items()))
        return f"{self.kind.__qualname__}, settings {settings[:8]}"


def _state(dataset: Items) -> dict[str, Any]:
    """The attributes that count: those that the dataset itself would pickle, and the items of a list."""
    parts = getattr(type(dataset), "fingerprint_parts", None)
    state: Any = parts(dataset) if parts is not None else dataset.__getstate__()
    if parts is None and isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        state = (state[0] or {}) | state[1]  # Attributes, and those in slots.
    found = {} if state is None else state if isinstance(state, dict) else {"state": state}
    return found | ({"items": list(dataset)} if isinstance(dataset, list | tuple) else {})


def _read_key(key: Key) -> tuple[str, str | None]:
    """The name of an item, and the path of its file."""
    given: Sequence[Any] = key if isinstance(key, tuple) else (key,)
    parts = [int(part) if isinstance(part, np.integer) else part for part in given]
    files = [os.fspath(part) for part in parts if isinstance(part, os.PathLike)]
    if not parts or len(files) > 1 or not all(isinstance(part, str | int | os.PathLike) for part in parts):
        raise ConfigError(
            f"key returns {key!r}. Return a text, an integer or a Path, or a tuple with at most one Path",
            setting="cached.key",
            value=key,
        )
    name = repr(tuple(os.fspath(part) if isinstance(part, os.PathLike) else part for part in parts))
    return name, files[0] if files else None


def pack_item(value: object) -> bytes:
    """A skeleton as JSON, which says where arrays belong, and the bytes of all arrays.

    >>> unpack_item(pack_item({"image": np.eye(2), "label": (1, "cat")}))
    {'image': array([[1., 0.],
           [0., 1.]]), 'label': (1, 'cat')}
    """
    parts: list[NDArray[np.uint8]] = []
    skeleton = _take_apart(value, parts, "the item")
    text = json.dumps(skeleton).encode()
    return b"".join([_LENGTH.pack(len(text)), text, *parts])  # type: ignore[list-item]


def unpack_item(value: bytes | memoryview) -> Any:
    """The item, in memory of its own."""
    end = _LENGTH.size + _LENGTH.unpack_from(value)[0]
    return _put_together(json.loads(bytes(value[_LENGTH.size : end])), np.frombuffer(value, np.uint8, offset=end))


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
