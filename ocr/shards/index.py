"""index: which samples are in which shard, and where; from the file next to the shards, or from the shards themselves.

train-000000.tar    raw: <key>.jpg (the original bytes), <key>.json; ready: <key>.image.npy (dense), <key>.json
train-index.json    shards with size and sha256; samples with offset and size of each member, digests, page size
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from ocr.errors import DataError
from ocr.formats.json_stream import JsonStream
from ocr.geometry.orientation import upright_size
from ocr.pipeline.dense import read_claimed_size, read_polygons
from ocr.pipeline.fingerprint import digest, feed
from ocr.pipeline.source import annotation_digest
from ocr.row_table import RowSequence, RowTable, RowTableWriter

FORMAT = 2
BLOCK = 512
RAW, READY = "raw", "ready"
"""Kinds of samples: encoded pages, and dense pages as the fixed stages left them."""
PAGE = "image.npy"
"""The member of a ready sample that is its dense page."""
KEY_DIGITS = 8
MAX_MEMBER_BYTES = 1 << 30
IMAGES = frozenset({"jpg", "jpeg", "jpe", "jp2", "png", "bmp", "tif", "tiff", "webp", "ppm", "pgm", "gif"})
ALLOWED = IMAGES | {"json", "npz", "npy"}
"""Plain data; never anything that is executed when it is read. Other members are passed over."""
_HEAD = ("split", "kind", "annotated", "stages")
_SHARD = re.compile(r"(?P<split>.+)-(?P<number>[0-9]+)\.tar")
_DIGEST = re.compile("(?:[0-9a-f]{2}){0,16}")
Members = dict[str, tuple[int, int]]
"""Extension, and offset and size of its data."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One tar file."""

    name: str
    bytes: int
    sha256: str
    """Empty without an index."""
    samples: int

    @classmethod
    def from_json(cls, fields: Any) -> Shard:
        """The shard that an index describes; TypeError or ValueError if it describes none."""
        shard = cls(**fields)
        texts, numbers = (shard.name, shard.sha256), (shard.bytes, shard.samples)
        if not all(type(text) is str for text in texts) or not all(type(number) is int for number in numbers):
            raise TypeError(f"{shard!r:.80} must have a name, a number of bytes, a sha256 and a number of samples")
        if min(numbers) < 0:
            raise ValueError(f"{shard!r:.80}: numbers must be >= 0")
        return shard


@dataclass(frozen=True, slots=True)
class StoredSample:
    """One sample and its members in its shard."""

    key: str
    filename: str
    shard: int
    members: Members
    content: str
    """Digest of the image's bytes (hex), the same as in a cache; empty without an index."""
    annotation: str
    """Digest of the annotation (hex), the same as in a cache; empty if it cannot be read."""
    size: tuple[int, int] | None = None
    """(width, height) of the upright page; None if only its header has it."""

    def to_row(self) -> list[Any]:
        """The sample as the index has it."""
        members = {extension: list(place) for extension, place in self.members.items()}
        size = None if self.size is None else list(self.size)
        return [self.key, self.filename, self.shard, members, self.content, self.annotation, size]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> StoredSample:
        """The sample in a row of the index; ValueError, TypeError, AttributeError or OverflowError if it is none."""
        key, name, shard, members, content, annotation, size = row
        places = {extension: (_count(start), _count(length)) for extension, (start, length) in members.items()}
        if size is not None:
            width, height = map(_count, size)
            size = width, height
        if not isinstance(key, str) or not isinstance(name, str):
            raise TypeError(f"key {key!r:.40} and name {name!r:.40} must be texts")
        for text in (content, annotation):
            if not _DIGEST.fullmatch(text):
                raise ValueError(f"{text!r:.40} must be a digest of up to 32 hexadecimal digits")
        return cls(key, name, int(shard), places, content, annotation, size)


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number < 2**62:
        raise ValueError(f"{value!r:.40} must be an integer >= 0")
    return number


class SampleRowsWriter:
    """Collects samples, and the digest of their names."""

    def __init__(self) -> None:
        self._writer = RowTableWriter({"shard": "i", "number": "q"})
        self._names = hashlib.blake2b(digest_size=16)
        self._number, self._own_keys = -1, True

    def __len__(self) -> int:
        return len(self._writer)

    def append(self, sample: StoredSample) -> bytes:
        """Add a sample, and return its row."""
        is_own = len(sample.key) == KEY_DIGITS and sample.key.isascii() and sample.key.isdecimal()
        number = int(sample.key) if is_own else -1
        self._own_keys &= number > self._number
        self._number = number
        row = _dump(sample.to_row()).encode("ascii")
        self._writer.append(row, sample.shard, number)
        feed(self._names, sample.filename)
        return row

    def table(self, about: dict[str, Any]) -> RowTable:
        """The samples, without a file that lasts."""
        return self._writer.table(about | self._found())

    def save(self, path: Path, about: dict[str, Any]) -> RowTable:
        """The samples in a file that other processes map too; OutputError if it cannot be written."""
        return self._writer.save(path, about | self._found())

    def _found(self) -> dict[str, Any]:
        # Keys of `glyphfeed shards` are numbers in the order of the source.
        return {"own_keys": self._own_keys, "names": self._names.hexdigest()}


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Samples of one conversion: all of its table, or some rows of it."""

    table: RowTable
    rows: NDArray[np.signedinteger[Any]] | None = None
    shards: NDArray[np.int32] | None = None
    """The number of each shard of the table among the shards that were given."""
    first_number: int = 0

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    def row(self, position: int) -> int:
        return position if self.rows is None else int(self.rows[position])

    def number(self, position: int) -> int:
        row = self.row(position)
        return self.first_number + (int(self.table.columns["number"][row]) if self.table.about["own_keys"] else row)

    @property
    def next_number(self) -> int:
        """One more than the largest number of the conversion, whichever of its shards were given."""
        last = len(self.table) - 1
        return 0 if last < 0 else _Part(self.table, first_number=self.first_number).number(last) + 1

    @property
    def shard_of(self) -> NDArray[np.int32]:
        of_rows = self.table.columns["shard"]
        found = of_rows if self.rows is None else of_rows[self.rows]
        return found if self.shards is None else self.shards[found]


class SampleRows(RowSequence[StoredSample]):
    """The samples of some shards, one row of a table per sample, decoded when it is asked for."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))

    @classmethod
    def of(cls, table: RowTable, rows: NDArray[np.signedinteger[Any]] | None = None) -> Self:
        """The samples of a table, or of some of its rows."""
        return cls([_Part(table, rows)])

    @classmethod
    def of_shards(cls, wanted: Sequence[tuple[RowTable, dict[int, int]]]) -> Self:
        """The samples of some shards of several tables; each shard of a table gets the number that it is mapped to."""
        parts: list[_Part] = []
        for table, numbers in wanted:
            first = parts[-1].next_number if parts else 0
            if numbers == {number: number for number in range(len(table.about["shards"]))}:
                parts.append(_Part(table, first_number=first))
                continue
            shards = np.full(len(table.about["shards"]), -1, dtype=np.int32)
            shards[list(numbers)] = list(numbers.values())
            rows = np.flatnonzero(shards[table.columns["shard"]] >= 0)
            parts.append(_Part(table, rows, shards, first))
        return cls(parts)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _find(self, index: int) -> tuple[_Part, int]:
        """The part of a sample, and its position there."""
        index = range(len(self))[index]
        at = bisect_right(self._ends, index)
        return self._parts[at], index - (self._ends[at - 1] if at else 0)

    def row_at(self, index: int) -> list[Any]:
        """The row of a sample."""
        part, position = self._find(index)
        row: list[Any] = json.loads(part.table.row(part.row(position)))
        if part.shards is not None:
            row[2] = int(part.shards[row[2]])
        return row

    def _at(self, position: int) -> StoredSample:
        return StoredSample.from_row(self.row_at(position))

    def number(self, index: int) -> int:
        """The number of a sample in its source, from its key; samples of several conversions have different ones."""
        part, position = self._find(index)
        return part.number(position)

    @property
    def shard_of(self) -> NDArray[np.int32]:
        """The shard of each sample."""
        found = [part.shard_of for part in self._parts]
        return found[0] if len(found) == 1 else np.concatenate(found or [np.zeros(0, np.int32)])

    @property
    def names(self) -> Sequence[str]:
        """The file names alone."""
        return _Names(self)

    @property
    def names_digest(self) -> str:
        """Digest of all file names, in their order."""
        if len(self._parts) == 1 and self._parts[0].rows is None:
            return str(self._parts[0].table.about["names"])
        return digest(*self.names)


class _Names(RowSequence[str]):
    """The file names of samples."""

    def __init__(self, samples: SampleRows) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def _at(self, position: int) -> str:
        return str(self._samples.row_at(position)[1])


Keep = Callable[[SampleRowsWriter, dict[str, Any]], RowTable]


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Everything that is known about shards without opening them."""

    split: str
    kind: str
    annotated: bool
    stages: str
    """Digest of the fixed stages of ready samples; empty for raw ones, and without an index."""
    shards: tuple[Shard, ...]
    samples: SampleRows

    @property
    def head(self) -> dict[str, Any]:
        """All but shards and samples."""
        return {name: getattr(self, name) for name in _HEAD}

    def json_parts(self) -> Iterator[str]:
        """The text of the file, a part per sample; the same index gives the same text."""
        hashed, about = hashlib.blake2b(digest_size=16), self.head | {"shards": [asdict(one) for one in self.shards]}
        separator = _dump({"format": FORMAT} | about).removesuffix("}") + ',"samples":['
        for sample in self.samples:
            row = _dump(sample.to_row())
            feed(hashed, row)
            yield separator + row
            separator = ","
        feed(hashed, _dump(about))
        yield ("" if len(self.samples) else separator) + f'],"digest":"{hashed.hexdigest()}"}}\n'

    @classmethod
    def read(cls, stream: IO[bytes], location: str, keep: Keep = SampleRowsWriter.table) -> RowTable:
        """Read an index sample by sample into the table that `keep` makes. DataError if it is not an index."""
        writer, document = SampleRowsWriter(), JsonStream(stream, "samples")
        last_shard, hashed = -1, hashlib.blake2b(digest_size=16)
        try:
            for member in document:
                sample = StoredSample.from_row(member.value)
                last_shard = max(last_shard, sample.shard) if sample.shard >= 0 else 2**31 - 1
                feed(hashed, writer.append(sample))
            about, found = document.rest, document.rest["format"]
            if found != FORMAT:
                problem = f"{location}: an index of format {found}, expected {FORMAT}. Convert again"
                raise DataError(problem, value=found, path=location)
            about = {name: about[name] for name in (*_HEAD, "shards")}
            shards = [Shard.from_json(shard) for shard in about["shards"]]
            _check_head(about)
            feed(hashed, _dump(about))
            if (given := document.rest["digest"]) != hashed.hexdigest():
                problem = f"{location}: changed or damaged (its digest differs). Restore it, or convert again"
                raise DataError(problem, value=given, path=location)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            problem = f"{location}: not an index of shards ({error}). Write it: glyphfeed shards SRC DST"
            raise DataError(problem, path=location) from error
        if last_shard >= len(shards):
            problem = f"{location}: a sample is in a shard that is not listed. Convert again"
            raise DataError(problem, value=last_shard, path=location)
        return keep(writer, about)

    @classmethod
    def of(cls, table: RowTable) -> ShardIndex:
        """The index whose samples are in a table."""
        shards = tuple(Shard(**shard) for shard in table.about["shards"])
        return cls(**{name: table.about[name] for name in _HEAD}, shards=shards, samples=SampleRows.of(table))


def _check_head(about: dict[str, Any]) -> None:
    if about["kind"] not in (RAW, READY):
        raise ValueError(f"kind {about['kind']!r:.40} must be {RAW} or {READY}")
    if type(about["annotated"]) is not bool:
        raise TypeError("annotated must be true or false")
    if type(about["split"]) is not str or type(about["stages"]) is not str:
        raise TypeError("split and stages must be texts")


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def shard_name(split: str, number: int) -> str:
    """The file name of one shard.

    >>> shard_name("train", 3), index_location("s3://bucket/train-000003.tar")
    ('train-000003.tar', 's3://bucket/train-index.json')
    """
    return f"{split}-{number:06d}.tar"


def index_location(url: str) -> str:
    """Where the index of a shard is, or should be."""
    base, slash, name = url.rpartition("/")
    found = _SHARD.fullmatch(name)
    return f"{base}{slash}{found['split'] if found else name.removesuffix('.tar')}-index.json"


def scan_shard(stream: BinaryIO, url: str, number: int) -> tuple[list[StoredSample], bool]:
    """The samples of a shard without an index, and whether one of them is annotated; images are not read.

    A sample whose JSON is damaged is listed: reading it reports the damage.
    """
    samples, annotated = [], False
    for key, members in scan_tar(stream, url):
        start, size = members.get("json", (0, 0))
        document = _json_object(os.pread(stream.fileno(), size, start))
        filename = _filename(document) or f"{key}.{image_extension(members) or 'npy'}"
        is_annotated = document.get("annotated") is not False
        try:
            polygons, claimed = read_polygons(document, url), read_claimed_size(document, url)
            annotation = annotation_digest(filename, polygons, claimed, is_annotated).hex()
        except DataError:
            annotation = ""
        annotated |= is_annotated
        samples.append(StoredSample(key, filename, number, members, "", annotation, _page_size(document)))
    return samples, annotated


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _filename(document: dict[str, Any]) -> str:
    """The file name that a page had before it was stored; empty if it leads out of its folder."""
    name = document.get("filename")
    is_safe = isinstance(name, str) and not name.startswith("/") and ".." not in name and "\\" not in name
    return name if is_safe and isinstance(name, str) else ""


def _page_size(document: dict[str, Any]) -> tuple[int, int] | None:
    match document.get("raw_size"), document.get("orientation"):
        case [int(width), int(height)], int(orientation) if min(width, height) > 0 and max(width, height) < 2**31:
            return upright_size(orientation, width, height)
    return None


def scan_tar(stream: IO[bytes], location: str) -> Iterable[tuple[str, Members]]:
    """Key and members of each sample of a tar, in order; DataError if the tar is damaged.

    Only members whose name and type are allowed are read; everything else is passed over.
    """
    members: Members = {}
    key, offset = "", 0
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                offset = member.offset
                stem, _, extension = member.name.rpartition("/")[2].partition(".")
                if not _is_allowed(member, extension):
                    continue
                full = member.name[: len(member.name) - len(extension) - 1]
                if full != key and members:
                    yield key, members
                    members = {}
                key = full if stem else key
                members[extension.lower()] = (member.offset_data, member.size)
            if members:
                yield key, members
            # Python's reader takes a damaged header for the end of the archive; only empty blocks are.
            offset = tar.offset
            stream.seek(offset)
            if stream.read(BLOCK).strip(b"\0"):
                raise tarfile.ReadError("a damaged header")
    except (tarfile.TarError, OSError, EOFError, ValueError) as error:
        problem = f"{location}: damaged after offset {offset} ({error}). Fetch or convert it again"
        raise DataError(problem, value=offset, path=location) from error


def _is_allowed(member: tarfile.TarInfo, extension: str) -> bool:
    """Whether a member is plain data of a known type and a sound size, and its name stays within its folder."""
    parts = member.name.split("/")
    is_safe = not member.name.startswith("/") and ".." not in parts and "\\" not in member.name
    known = extension.lower().rpartition(".")[2] in ALLOWED
    return member.isreg() and is_safe and known and 0 <= member.size <= MAX_MEMBER_BYTES


def image_extension(members: Iterable[str]) -> str | None:
    """The extension of the member that is the image; None if there is none."""
    return next((extension for extension in members if extension in IMAGES), None)
