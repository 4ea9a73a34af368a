"""The samples of shards, one row per sample, decoded when it is asked for."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.pipeline.fingerprint import feed
from ocr.row_table import RowSequence, RowTable, RowTableWriter

KEY_DIGITS = 8
_DIGEST = re.compile("(?:[0-9a-f]{2}){0,16}")
_COLUMNS = {"shard": "i", "number": "q", "position": "i"}


@dataclass(frozen=True, slots=True)
class StoredSample:
    """One sample and its members in its shard: extension -> (offset of the data, size)."""

    key: str
    filename: str
    shard: int
    members: dict[str, tuple[int, int]]
    content: str
    """Digest of the image's bytes (hex), the same as in a cache."""
    annotation: str
    """Digest of the annotation (hex), the same as in a cache."""
    size: tuple[int, int] | None = None
    """(width, height) of the upright page; None in an index from before it had sizes."""

    def to_row(self) -> list[Any]:
        """The sample as the index has it."""
        members = {extension: list(place) for extension, place in self.members.items()}
        size = [] if self.size is None else [list(self.size)]
        return [self.key, self.filename, self.shard, members, self.content, self.annotation, *size]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> StoredSample:
        """The sample in a row of the index; ValueError, TypeError, AttributeError or OverflowError if it is none."""
        key, name, shard, members, content, annotation, *sizes = row
        places = {extension: (_count(start), _count(size)) for extension, (start, size) in members.items()}
        size = next(((_count(width), _count(height)) for width, height in sizes), None)
        if not isinstance(key, str) or not isinstance(name, str):
            raise TypeError(f"key {key!r:.40} and name {name!r:.40} must be texts")
        for digest in (content, annotation):
            if not _DIGEST.fullmatch(digest):
                raise ValueError(f"{digest!r:.40} must be a digest of up to 32 hexadecimal digits")
        return cls(key, name, int(shard), places, content, annotation, size)


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number < 2**62:
        raise ValueError(f"{value!r:.40} must be an integer >= 0")
    return number


class SampleRows(RowSequence[StoredSample]):
    """Samples in some order."""

    def __init__(
        self, table: RowTable, rows: NDArray[np.signedinteger[Any]] | None = None, renumbered: Sequence[int] = ()
    ) -> None:
        """`rows` are the rows of the table that count, by default all; `renumbered` are new numbers of the shards."""
        self.table, self._rows = table, rows
        self._renumbered = np.array(renumbered, dtype=np.int32)

    @classmethod
    def of(cls, samples: Iterable[StoredSample]) -> SampleRows:
        """Some samples, in memory."""
        writer = SampleRowsWriter()
        for sample in samples:
            writer.append(sample)
        return cls(writer.table({}))

    def __len__(self) -> int:
        return len(self.table) if self._rows is None else len(self._rows)

    def _at(self, position: int) -> StoredSample:
        row = json.loads(self.table.row(self._row(position)))
        if len(self._renumbered):
            row[2] = int(self._renumbered[row[2]])
        return StoredSample.from_row(row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SampleRows) and len(self) == len(other) and all(map(StoredSample.__eq__, self, other))

    __hash__ = None  # type: ignore[assignment]

    @property
    def has_own_keys(self) -> bool:
        """Whether all keys are those of `ocr convert`: numbers, in the order of the source."""
        return bool(self.table.about["own_keys"]) or bool((self.column("number") >= 0).all())

    def in_order_of_keys(self) -> SampleRows:
        """The same samples by the number that is their key."""
        if self.table.about["in_order"]:
            return self
        return self.in_order(np.argsort(self.column("number"), kind="stable"))

    def in_order(self, order: NDArray[np.signedinteger[Any]]) -> SampleRows:
        """The same samples in another order."""
        return SampleRows(self.table, order if self._rows is None else self._rows[order], self._renumbered.tolist())

    def of_shards(self, wanted: Sequence[int]) -> SampleRows:
        """The samples of these shards only, which are renumbered in this order."""
        renumbered = np.full(max(wanted) + 1, -1, dtype=np.int32)
        renumbered[list(wanted)] = np.arange(len(wanted))
        shards = self.table.columns["shard"]
        is_wanted = (shards < len(renumbered)) & (renumbered[np.minimum(shards, len(renumbered) - 1)] >= 0)
        return SampleRows(self.table, np.flatnonzero(is_wanted), renumbered.tolist())

    @property
    def shard_of(self) -> NDArray[np.int32]:
        """The shard of each sample."""
        shards = self.column("shard")
        return self._renumbered[shards] if len(self._renumbered) else shards

    def number(self, index: int) -> int:
        """The number that is the key of a sample, or of the first sample of its batch."""
        return int(self.table.columns["number"][self._row(index)])

    def position(self, index: int) -> int:
        """The position of a sample in its batch."""
        return int(self.table.columns["position"][self._row(index)])

    @property
    def names(self) -> Sequence[str]:
        """The file names alone."""
        return _Names(self)

    @property
    def names_digest(self) -> str:
        """Digest of all file names, in their order."""
        if self._rows is None:
            return str(self.table.about["names"])
        hashed = hashlib.blake2b(digest_size=16)
        for name in self.names:
            feed(hashed, name)
        return hashed.hexdigest()

    def column(self, name: str) -> NDArray[Any]:
        """One number per sample."""
        column = self.table.columns[name]
        return column if self._rows is None else column[self._rows]

    def _row(self, index: int) -> int:
        position = range(len(self))[index]
        return position if self._rows is None else int(self._rows[position])


class _Names(RowSequence[str]):
    """The file names of samples."""

    def __init__(self, samples: SampleRows) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def _at(self, position: int) -> str:
        return self._samples[position].filename


class SampleRowsWriter:
    """Collects samples, the digest of their names, and the position of each in its batch."""

    def __init__(self) -> None:
        self._writer = RowTableWriter(_COLUMNS)
        self._names = hashlib.blake2b(digest_size=16)
        self._key: str | None = None
        self._number = self._position = 0
        self._about = {"own_keys": True, "in_order": True}

    def __len__(self) -> int:
        return len(self._writer)

    def append(self, sample: StoredSample) -> bytes:
        """Add a sample, and return its row; those of one batch have the same key and follow each other."""
        self._position = self._position + 1 if sample.key == self._key else 0
        self._key = sample.key
        number = int(sample.key) if len(sample.key) == KEY_DIGITS and sample.key.isdecimal() else -1
        self._about["own_keys"] &= number >= 0
        self._about["in_order"] &= number >= self._number
        self._number = number
        row = json.dumps(sample.to_row(), separators=(",", ":")).encode("ascii")
        self._writer.append(row, sample.shard, number, self._position)
        feed(self._names, sample.filename)
        return row

    def table(self, about: dict[str, Any]) -> RowTable:
        """The samples, without a file that lasts."""
        return self._writer.table(about | self._about | {"names": self._names.hexdigest()})

    def save(self, path: Path, about: dict[str, Any]) -> RowTable:
        """The samples in a file that other processes map too; OutputError if it cannot be written."""
        return self._writer.save(path, about | self._about | {"names": self._names.hexdigest()})
