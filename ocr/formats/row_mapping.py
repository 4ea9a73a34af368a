"""A mapping of names that does not hold its values: they wait in a table of rows, and are decoded one at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from ocr.row_table import RowTable, RowTableWriter

V = TypeVar("V")


class RowMapping(Mapping[str, V]):
    """Name to value, in the order in which they were added; 24 bytes of memory each."""

    def __init__(self, table: RowTable, decode: Callable[[str, Any], V], order: NDArray[Any] | None = None) -> None:
        """`decode` makes a value of its name and what was stored; `order` are the rows in another order."""
        self._table, self._decode, self._order = table, decode, order
        self._replaced: dict[str, V] = {}

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[str]:
        return (self.item_at(position)[0] for position in range(len(self)))

    def __getitem__(self, name: str) -> V:
        for row in self._rows_of(name):
            stored, value = self._item(row)
            if stored == name:
                return value
        raise KeyError(name)

    def items(self) -> ItemsView[str, V]:
        return _Items(self)

    def item_at(self, position: int) -> tuple[str, V]:
        """The name and the value at a position in the order."""
        return self._item(position if self._order is None else int(self._order[position]))

    def replace(self, name: str, value: V) -> None:
        """Replace the value of an existing name."""
        self._replaced[name] = value

    def _item(self, row: int) -> tuple[str, V]:
        name, stored = json.loads(self._table.row(row))
        return name, self._replaced[name] if name in self._replaced else self._decode(name, stored)

    def _rows_of(self, name: str) -> Sequence[int]:
        hashes, rows = self._by_hash
        first, last = (int(np.searchsorted(hashes, np.uint64(_hash(name)), side)) for side in ("left", "right"))
        found: list[int] = rows[first:last].tolist()
        return found

    @cached_property
    def _by_hash(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        hashes = self._table.columns["hash"]
        rows = np.argsort(hashes, kind="stable")
        return hashes[rows], rows


class _Items(ItemsView[str, V]):
    """Each item is read once, not once by its position and again by its name."""

    def __init__(self, mapping: RowMapping[V]) -> None:
        super().__init__(mapping)
        self._rows = mapping

    def __iter__(self) -> Iterator[tuple[str, V]]:
        return (self._rows.item_at(position) for position in range(len(self._rows)))


class RowMappingWriter(Generic[V]):
    """Collects names and values; a value is stored as JSON."""

    def __init__(self, encode: Callable[[V], Any], decode: Callable[[str, Any], V]) -> None:
        self._encode, self._decode = encode, decode
        self._writer = RowTableWriter({"hash": "Q", "position": "q"})

    def add(self, name: str, value: V, position: int | None = None) -> None:
        """Add a value; `position` is its place in the order, if values are added in another one."""
        row = json.dumps([name, self._encode(value)]).encode("ascii")
        self._writer.append(row, _hash(name), len(self._writer) if position is None else position)

    def mapping(self) -> RowMapping[V]:
        """All that was added."""
        table = self._writer.table({})
        positions = table.columns["position"]
        is_ordered = bool((positions[1:] > positions[:-1]).all())
        return RowMapping(table, self._decode, None if is_ordered else np.argsort(positions))


def _hash(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode(errors="surrogatepass"))
