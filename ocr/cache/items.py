"""cached: the items of any map-style dataset, one copy per machine, kept between runs, proven before use."""

from __future__ import annotations

import operator
import os
import reprlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ocr.cache.cache import Cache
from ocr.cache.item_format import ItemRecord, pack_item, unpack_item
from ocr.errors import ConfigError, DataError
from ocr.pipeline.cut import Cut
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.page_rows import NO_POLYGONS
from ocr.pipeline.record import Record
from ocr.pipeline.sample import Sample
from ocr.pipeline.signature import Signature, file_signature

Key = str | int | os.PathLike[str] | tuple[str | int | os.PathLike[str], ...]
NO_FILE = Signature(0, 1, 1, 0)
"""Of an item that is not made of a file: its key says everything."""
ITEMS = Cut(page=True, dense=True)
"""Items have lengths of their own, like dense pages."""


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
    max_total_bytes: int | str = "auto",
) -> CachedItems:
    """A dataset with the same items, which makes each of them once per machine.

    `key(index)` says what an item is made of: the path of its file (a `Path`: the file is looked at, and an edited one
    made again), a text or integer that identifies it, or a tuple of these, such as a path and a label. All else that an
    item depends on is the code and the attributes of the dataset: if they change, items are made again. Attributes
    that only list the items, and so grow with them, are left out by their names in `listed`.

    Items must be the same in every epoch: put random transforms behind the cache. They are arrays, tensors, numbers,
    texts, and lists, tuples and dicts of them. Limits and folder are those of the cache of pages.
    """
    if not len(dataset):
        problem = f"{type(dataset).__name__} has no items. Pass a dataset that has some"
        raise ConfigError(problem, setting="cached.dataset", value=0)
    first, again = (pack_item(dataset[0]).checksum() for _ in range(2))
    if first != again:
        raise ConfigError(
            f"{type(dataset).__name__} makes another item 0 each time: every epoch would repeat the first one. Cache "
            "a dataset without its random transforms, and apply them to the items of the cache",
            setting="cached.dataset",
            value=type(dataset).__name__,
        )
    return CachedItems(
        dataset, KeyedItems.of(dataset, key), _Making.of(dataset, listed), folder, max_bytes, max_total_bytes
    )


class CachedItems:
    """A map-style dataset; `Loader` and torch's DataLoader take it, with any number of workers."""

    def __init__(
        self,
        dataset: Items,
        source: KeyedItems,
        making: _Making,
        folder: str | os.PathLike[str] | None,
        max_bytes: int | str,
        max_total_bytes: int | str,
    ) -> None:
        self.dataset, self._source = dataset, source
        self.cache = _ItemCache(
            source, (making,), self._make, ITEMS, folder, max_bytes, "items of any length", max_total_bytes
        )
        self.cache.start()

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        # Samplers give numbers of NumPy and torch, too; the dataset gets one of Python, whoever asks first.
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} of {len(self)} items")
        sample = self.cache.sample(position % len(self))
        return unpack_item(Record({"image": sample.image}, sample.encoded))

    def set_epoch(self, epoch: int) -> None:
        """An epoch starts: `Loader` says so, and every file is looked at again when its item is used."""
        self.cache.look(())

    def __repr__(self) -> str:
        return f"cached({type(self.dataset).__name__}), {self.cache.covered:.0%} of {len(self)} items stored"

    def _make(self, raw: Sample) -> Sample:
        record = pack_item(self.dataset[raw.index])
        return replace(raw, image=record.arrays["image"], encoded=record.metadata)


class _ItemCache(Cache):
    """A sample holds the bytes of an item as its image, and the skeleton as what was encoded."""

    unit = "item"

    def _pack(self, sample: Sample) -> Record:
        return ItemRecord({"image": sample.image}, sample.encoded)

    def _unpack(self, record: Record, index: int, cached: str = "") -> Sample:
        entry = self.source.entry(index)
        return replace(entry, image=record.arrays["image"], encoded=record.metadata, cached=cached)


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


class KeyedItems:
    """What the cache asks about the items of a dataset: their names, and what they are made of."""

    def __init__(self, location: str, names: list[str], paths: list[str | None]) -> None:
        self.location, self.names, self._paths = location, names, paths
        self.names_digest = digest(*names)

    @classmethod
    def of(cls, dataset: Items, key: Callable[[int], Key]) -> KeyedItems:
        names, paths = [], []
        for index in range(len(dataset)):
            name, path = _read_key(key(index))
            names.append(name)
            paths.append(path)
        # Datasets of one class and length are told apart by their first item.
        return cls(f"{type(dataset).__qualname__} ({len(names)} items, the first: {names[0][:200]})", names, paths)

    def __len__(self) -> int:
        return len(self.names)

    def entry(self, index: int) -> Sample:
        """The item without its content."""
        return Sample(index, self.names[index], self._paths[index] or "", NO_POLYGONS, annotated=False)

    def read(self, index: int) -> Sample:
        """The item with the content of its file, or else its key."""
        path = self._paths[index]
        if path is None:
            return replace(self.entry(index), encoded=self.names[index].encode(errors="surrogatepass"))
        try:
            with open(path, "rb") as stream:
                return replace(self.entry(index), encoded=stream.read())
        except OSError as error:
            problem = f"{path}: the file of item {index} cannot be opened ({error.strerror})"
            raise DataError(problem, value=index, path=path) from error

    def signature(self, index: int) -> Signature | None:
        """Changes if the file changes; None if it is gone."""
        path = self._paths[index]
        return NO_FILE if path is None else file_signature(path)

    def annotation_digest(self, index: int) -> bytes:
        """Nothing: the key is the name."""
        return b""


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
