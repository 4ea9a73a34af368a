"""page_index: what is known about the pages of a split before their files are read, and how a change is noticed.

One row per page, decoded when it is asked for. The rows of a large split are kept between runs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash

from ocr.errors import AnnotationError, DataError, ImageError, OutputError
from ocr.formats.annotation import PageStream
from ocr.formats.lines import list_faults
from ocr.formats.read import stream_annotations
from ocr.formats.validate import to_polygons
from ocr.geometry.polygons import Polygons
from ocr.pipeline.fingerprint import code_digest, digest, feed
from ocr.pipeline.image_listing import ImageListing, NameSet
from ocr.pipeline.sample import NO_POLYGONS
from ocr.row_table import DamagedTableError, RowSequence, RowTable, RowTableWriter, open_table

JUST_NOW_NS = 2_000_000_000
_PACKED = struct.Struct("<qqqQ")
PACKED_BYTES = _PACKED.size


class Signature(NamedTuple):
    """What the file system says about a file: any change of the file changes it, and so does a copy."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, known: os.stat_result) -> Signature:
        """The signature of a file with this status."""
        return cls(known.st_size, known.st_mtime_ns, known.st_ctime_ns, known.st_ino)

    @property
    def packed(self) -> bytes:
        """The signature in `PACKED_BYTES`."""
        return _PACKED.pack(*self)

    def settled(self) -> Signature:
        """This signature, or UNKNOWN if it does not prove a content: ask before the file is read.

        A file that changed just now may change again within one tick of the clock, and some file systems have no times.
        """
        changed = max(self.mtime_ns, self.ctime_ns)
        return self if 0 < changed < time.time_ns() - JUST_NOW_NS else UNKNOWN


UNKNOWN = Signature(-1, 0, 0, 0)


class SourceState(NamedTuple):
    """What a page is made of, known without reading it."""

    filename: str
    path: str
    """Of its file, or of the shard and its name there."""
    signature: Signature | None
    """Of its file; None if it is gone."""
    annotation: bytes
    """Digest of the annotation and the file's name, 16 bytes."""
    content: bytes | None = None
    """Digest of the image's bytes, 16 bytes, where something other than the file tells it."""


def file_signature(path: str | os.PathLike[str]) -> Signature | None:
    """The signature of a file; None if there is no such file."""
    try:
        return Signature.of(os.stat(path))
    except OSError:
        return None


_LENGTHS = struct.Struct("<IIIIII")


def content_digest(data: bytes) -> bytes:
    """Digest of a file's content, computed at the speed of memory."""
    return xxhash.xxh3_128_digest(data)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known about a page before its file is read."""

    filename: str
    polygons: Polygons
    claimed_size: tuple[int, int] | None = None


class PageRows(RowSequence[Entry]):
    """The pages of a split."""

    def __init__(self, table: RowTable) -> None:
        self.table = table

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> PageRows:
        """Some pages, in memory."""
        writer = PageRowsWriter()
        for entry in entries:
            writer.append(entry)
        return cls(writer.table({}))

    def __len__(self) -> int:
        return len(self.table)

    def _at(self, position: int) -> Entry:
        return _from_row(self.table.row(position))

    @property
    def names(self) -> Names:
        """The file names alone."""
        return Names(self.table)

    @property
    def names_digest(self) -> str:
        """Digest of all file names, in their order."""
        return str(self.table.about["names"])

    def differences(self, other: PageRows) -> list[int]:
        """The numbers of the pages of which as many others say something else."""
        return self.table.differences(other.table)

    def updated(self, new: PageRows) -> tuple[PageRows, int, int]:
        """These pages, each with what `new` says about it; and how many are only in `new`, or only here."""
        known = {name: number for number, name in enumerate(new.names)}
        found = [known.pop(name, -1) for name in self.names]
        rows = PageRows.of(self[at] if number < 0 else new[number] for at, number in enumerate(found))
        return rows, len(known), found.count(-1)


class Names(RowSequence[str]):
    """The file names of pages."""

    def __init__(self, table: RowTable) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def _at(self, position: int) -> str:
        row = self._table.row(position)
        end = _LENGTHS.size + _LENGTHS.unpack_from(row)[0]
        return row[_LENGTHS.size : end].decode(errors="surrogatepass")


class PageRowsWriter:
    """Collects pages and the digest of their names."""

    def __init__(self) -> None:
        self._writer = RowTableWriter()
        self._names = hashlib.blake2b(digest_size=16)

    def __len__(self) -> int:
        return len(self._writer)

    def append(self, entry: Entry) -> None:
        """Add a page."""
        self._writer.append(_to_row(entry))
        feed(self._names, entry.filename)

    def table(self, about: dict[str, Any]) -> RowTable:
        """The pages, without a file that lasts."""
        return self._writer.table(about | {"names": self._names.hexdigest()})

    def save(self, path: Path, about: dict[str, Any]) -> RowTable:
        """The pages in a file that other processes map too; OutputError if it cannot be written."""
        return self._writer.save(path, about | {"names": self._names.hexdigest()})


def _to_row(entry: Entry) -> bytes:
    polygons, (width, height) = entry.polygons, entry.claimed_size or (0, 0)
    # Half of a surrogate pair, in a name or a transcription, is not valid UTF-8 and still comes back as it was.
    name = entry.filename.encode(errors="surrogatepass")
    has_texts = any(text is not None for text in polygons.texts)
    texts = json.dumps(polygons.texts, ensure_ascii=False).encode(errors="surrogatepass") if has_texts else b""
    lengths = _LENGTHS.pack(len(name), len(polygons.vertices), len(polygons), len(texts), width, height)
    arrays = (polygons.vertices, polygons.offsets, polygons.ignore, polygons.units)
    return b"".join([lengths, name, *(array.tobytes() for array in arrays), texts])


def _from_row(row: bytes) -> Entry:
    name, vertices, words, texts, width, height = _LENGTHS.unpack_from(row)
    ends = accumulate((_LENGTHS.size, name, vertices * 8, (words + 1) * 4, words, words, texts))
    named, points, offsets, ignore, units, written = (row[start:end] for start, end in pairwise(ends))
    polygons = Polygons(
        np.frombuffer(points, np.float32).reshape(-1, 2),
        np.frombuffer(offsets, np.int32),
        np.frombuffer(ignore, np.bool_),
        tuple(json.loads(written.decode(errors="surrogatepass"))) if texts else (),
        np.frombuffer(units, np.uint8),
    )
    return Entry(named.decode(errors="surrogatepass"), polygons, (width, height) if width else None)


log = logging.getLogger(__name__)
MIN_ROWS = 5000
"""Smaller sets are read again in every run, in about a second, and leave no file behind."""

ALL_FILES = "*"
StateOf = Callable[[str], Signature | None]


class Writer(Protocol):
    """Collects rows."""

    def __len__(self) -> int: ...

    def table(self, about: dict[str, Any]) -> RowTable:
        """The rows, without a file that lasts."""

    def save(self, path: Path, about: dict[str, Any]) -> RowTable:
        """The rows in a file that other processes map too."""


class KeptTable:
    """The file of one set, by its paths and settings; a later one with other content replaces it."""

    def __init__(self, folder: Path, maker: str, *settings: object) -> None:
        """`maker` is the module whose code makes the rows; `settings` are the paths and options that were given."""
        self.path = folder / f"{digest(maker, *map(repr, settings))}.rows"
        self._maker = maker
        self._begun_ns = time.time_ns()

    def load(self, state_of: StateOf) -> RowTable | None:
        """The rows, if everything that they were made of is still the same."""
        try:
            table = open_table(self.path)
            looked_at, is_ours = table.about["looked_at"].items(), table.about["code"] == code_digest(self._maker)
        except (FileNotFoundError, PermissionError):
            return None  # Of a set this large, `keep` warns if nothing can be written either.
        except (OSError, DamagedTableError, ValueError, KeyError, TypeError, SyntaxError) as error:
            log.warning("%s: cannot be used (%s); it is rewritten", self.path, error)
            return None
        return table if is_ours and all(state == list(state_of(path) or ()) for path, state in looked_at) else None

    def keep(self, writer: Writer, looked_at: dict[str, Signature | None], about: dict[str, Any]) -> RowTable:
        """The rows in their file; in memory if they are few, or if the file cannot be written.

        `looked_at` are the files and folders that were read, as they are now. If one of them changed just before, or
        since, its times do not prove what was read, and nothing is kept.
        """
        changed = [max(state.mtime_ns, state.ctime_ns) if state else 0 for state in looked_at.values()]
        is_proven = bool(changed) and 0 < min(changed) <= max(changed) < self._begun_ns - JUST_NOW_NS
        if len(writer) < MIN_ROWS or not is_proven:
            return writer.table(about)
        try:
            return writer.save(self.path, about | {"code": code_digest(self._maker), "looked_at": looked_at})
        except OutputError as error:
            log.warning("%s; the pages are listed again in every run", error)
            return writer.table(about)


def state_of(path: str) -> Signature | None:
    """The signature of a file or folder; of PATH/* that of all its files together; None if there is no such file."""
    folder, name = os.path.split(path)
    if name != ALL_FILES:
        return file_signature(path)
    count = modified_ns = changed_ns = together = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                known = Signature.of(entry.stat())
                count, together = count + 1, together + xxhash.xxh3_64_intdigest(known.packed + os.fsencode(entry.name))
                modified_ns, changed_ns = max(modified_ns, known.mtime_ns), max(changed_ns, known.ctime_ns)
    except OSError:
        return None
    # The order of a folder is not fixed, so that a sum serves as the digest of all.
    return Signature(count, modified_ns, changed_ns, together % 2**63)


@dataclass(frozen=True)
class FolderSplit:
    """A folder of images and its annotation."""

    folder: Path
    annotation: Path | None
    annotation_format: str
    annotation_categories: str | Sequence[str]
    on_bad_sample: str

    @property
    def annotation_state(self) -> str:
        """The path whose state shows whether the annotation was changed: a file, or all files of a folder."""
        assert self.annotation is not None
        return str(self.annotation / ALL_FILES if self.annotation.is_dir() else self.annotation)

    def made_of(self, listing: ImageListing) -> list[str]:
        """The files and folders whose state shows whether the rows are still right."""
        return listing.folders if self.annotation is None else [*listing.folders, self.annotation_state]

    def read(self, listing: ImageListing) -> tuple[PageRowsWriter, dict[str, Any]]:
        """The rows of all pages that can be used, and why others cannot."""
        writer = PageRowsWriter()
        if self.annotation is None:
            for name in sorted(listing):
                writer.append(Entry(name, NO_POLYGONS))
            return writer, {"skipped": {}, "notes": []}
        present = NameSet(listing)
        annotations = stream_annotations(
            self.annotation, self.annotation_format, self.folder, self.annotation_categories
        )
        skipped = self._add_pages(annotations, present, listing.extensions, writer)
        if not len(writer):
            reason = f" ({next(iter(skipped.values()))})" if skipped else ""
            problem = f"{annotations.path} names no usable image of {self.folder}{reason}. Run: glyphfeed doctor"
            raise AnnotationError(problem, value=list(skipped), path=annotations.path)
        return writer, {"skipped": skipped, "notes": list(annotations.notes)}

    def _add_pages(
        self, annotations: PageStream, present: NameSet, extensions: tuple[str, ...], writer: PageRowsWriter
    ) -> dict[str, str]:
        """Add the pages that can be used; returns why others cannot. With "raise", one error lists all of those."""
        skipped: dict[str, str] = {}
        errors: list[DataError] = []
        for name, page in annotations.pages:
            if not name.lower().endswith(extensions):
                skipped[name] = f"its extension is not one of image_extensions={', '.join(extensions)}"
                continue
            try:
                filename = _find_file(self.folder, name, present, annotations.path)
                writer.append(Entry(filename, to_polygons(page, f"{annotations.path}: {name}"), page.size))
            except DataError as error:
                errors.append(error)
                skipped[name] = str(error)
        if errors and self.on_bad_sample == "raise":
            first = errors[0]
            listed = list_faults([str(error) for error in errors])
            raise type(first)(listed, setting=first.setting, value=first.value, path=first.path or annotations.path)
        return skipped


def _find_file(folder: Path, name: str, present: NameSet, annotation: str) -> str:
    """The annotation's name for an image as a path relative to the folder, with forward slashes."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        problem = f"{annotation}: {name!r} points outside {folder}. Name images relative to image_path"
        raise AnnotationError(problem, value=name, path=annotation)
    if str(parts) not in present:
        raise ImageError(
            f"{folder / name} is in {annotation} but not on disk. Restore it, run `glyphfeed doctor` for the list, or "
            "set on_bad_sample=skip",
            path=folder / name,
        )
    return str(parts)
