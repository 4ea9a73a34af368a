"""source: tar shards, on this machine or in an object store, become the samples that their folder would give."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cached_property, lru_cache, partial
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from ocr.errors import AnnotationError, ConfigError, DataError, ImageError
from ocr.formats.npy_header import read_npy_header
from ocr.pipeline.decode import Decode, check_pixel_count, size_in_header
from ocr.pipeline.dense import DensePage, fields_digest, from_json, read_claimed_size, read_polygons
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.page_index import KeptTable, Signature, SourceState, content_digest, file_signature
from ocr.pipeline.prefix import FixedPart
from ocr.pipeline.sample import NO_POLYGONS, Sample
from ocr.pipeline.source import Source, annotation_digest
from ocr.row_table import RowTable
from ocr.shards.index import (
    PAGE,
    RAW,
    READY,
    SampleRows,
    SampleRowsWriter,
    Shard,
    ShardIndex,
    StoredSample,
    image_extension,
    index_location,
    scan_shard,
)
from ocr.shards.storage import ShardFiles, Storage, is_remote, local_path

log = logging.getLogger(__name__)
SCANNERS = 4
"""Shards that are fetched and scanned at the same time."""
MAX_REMEMBERED = 4096
"""Ready samples whose JSON a process remembers, about 10 kB each: parsing it takes longer than unpacking a page."""
NOTHING: Mapping[str, str] = MappingProxyType({})


class ShardSource(Source):
    """The pages of tar shards, read at random: conversion by conversion, each in the order of its source."""

    def __init__(
        self,
        index: ShardIndex,
        files: ShardFiles,
        max_pixels: int = Decode().max_pixels,
        skipped: Mapping[str, str] = NOTHING,
        reopen: Callable[[], ShardSource | None] | None = None,
    ) -> None:
        """`reopen` opens the shards again if local ones were changed since they were opened."""
        self.index, self.files, self.max_pixels, self.skipped, self.reopen = index, files, max_pixels, skipped, reopen
        self.annotated, self.is_ready = index.annotated, index.kind == READY
        more = f" and {len(files.urls) - 1} more" if len(files.urls) > 1 else ""
        self.location = f"{files.urls[0]}{more}"
        self._fields: dict[int, tuple[dict[str, Any], str]] = {}

    def __len__(self) -> int:
        return len(self.index.samples)

    @property
    def names(self) -> Sequence[str]:
        return self.index.samples.names

    @cached_property
    def names_digest(self) -> str:
        return self.index.samples.names_digest

    @cached_property
    def shard_of(self) -> NDArray[np.int32]:
        """The shard of each sample, for an order that goes from shard to shard."""
        return self.index.samples.shard_of

    def number(self, index: int) -> int:
        return self.index.samples.number(index)

    def state(self, index: int) -> SourceState:
        stored = self.index.samples[index]
        content = bytes.fromhex(stored.content) or None
        # An index knows the content of each page; otherwise the shard's file tells whether it is the same.
        signature = self.files.signatures[stored.shard] if content is None else None
        return SourceState(stored.filename, self._path(stored), signature, bytes.fromhex(stored.annotation), content)

    def size(self, index: int, max_pixels: int) -> tuple[int, int]:
        stored = self.index.samples[index]
        if stored.size is not None:
            return stored.size
        page = self.read(index)
        return page.shape if self.is_ready else size_in_header(BytesIO(page.encoded), page.path, max_pixels)

    def read(self, index: int) -> Sample:
        stored = self.index.samples[index]
        entry = Sample(index, stored.filename, self._path(stored), NO_POLYGONS, self.annotated)
        return self._read_ready(stored, entry) if self.is_ready else self._read_raw(stored, entry)

    def _read_raw(self, stored: StoredSample, entry: Sample) -> Sample:
        extension = image_extension(stored.members)
        if extension is None:
            found = ", ".join(stored.members)
            problem = f"{self._where(stored)}: no image among its members {found}. Convert again"
            raise ImageError(problem, value=found, path=entry.path)
        encoded = self._member(stored, extension)
        if stored.content and content_digest(encoded).hex() != stored.content:
            problem = f"{self._where(stored, extension)}: not the bytes that were stored. Fetch the shard again"
            raise ImageError(problem, path=entry.path)
        document, where = self._json(stored), self._where(stored, "json")
        claimed, polygons = read_claimed_size(document, where), read_polygons(document, where)
        annotated = document.get("annotated") is not False
        if annotation_digest(stored.filename, polygons, claimed, annotated).hex() != stored.annotation:
            raise AnnotationError(f"{where}: not the annotation that was stored. Fetch it again", path=entry.path)
        return replace(entry, polygons=polygons, claimed_size=claimed, annotated=annotated, encoded=encoded)

    def _read_ready(self, stored: StoredSample, entry: Sample) -> Sample:
        data, where = self._member(stored, PAGE), self._where(stored, PAGE)
        try:
            known = self._fields.get(entry.index)
            if known is None:
                document = self._json(stored)
                known = from_json(document), str(document["digest"])
            fields, page = known[0], _array(data)
            if known[1] != ready_digest(fields, page):
                raise DataError(f"{where}: not what was stored. Fetch or convert it again", path=entry.path)
            lazy = DensePage(page)
            if 0 in lazy.size:
                raise ValueError("a page without pixels")
            # A few bytes can declare a page of any size.
            check_pixel_count(lazy.size, entry.path, self.max_pixels)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            problem = f"{where}: not a ready sample ({error!r}). Convert again"
            raise AnnotationError(problem, path=entry.path) from error
        if len(self._fields) < MAX_REMEMBERED:
            self._fields[entry.index] = known
        return replace(entry, **fields, lazy=lazy)

    def refresh(self) -> Sequence[int]:
        """Open local shards again that were changed; any of their pages can be another one."""
        found = self.reopen() if self.reopen is not None else None
        if found is None:
            return ()
        if found.names_digest != self.names_digest or found.form != self.form:
            raise DataError(
                f"{self.location}: replaced by shards of other pages or stages while open. Start again",
                path=self.location,
            )
        log.warning("%s: changed while it was open, and read again", self.location)
        self.__dict__ = found.__dict__  # At once: other threads can be reading.
        return range(len(self))

    @property
    def form(self) -> tuple[str, str, bool]:
        """What a dataset relies on as long as it is open, besides the names."""
        return self.index.kind, self.index.stages, self.annotated

    def _json(self, stored: StoredSample) -> dict[str, Any]:
        try:
            document: Any = json.loads(self._member(stored, "json"))
        except (ValueError, RecursionError) as error:
            problem = f"{self._where(stored, 'json')}: not JSON ({error}). Fetch the shard again"
            raise AnnotationError(problem, path=self._path(stored)) from error
        if not isinstance(document, dict):
            problem = f"{self._where(stored, 'json')}: not a JSON object. Convert again"
            raise AnnotationError(problem, value=document, path=self._path(stored))
        return document

    def _member(self, stored: StoredSample, extension: str) -> bytes:
        if extension not in stored.members:
            problem = f"{self._where(stored)} has no {extension}. Convert again"
            raise DataError(problem, value=extension, path=self._path(stored))
        start, size = stored.members[extension]
        data = self.files.read(stored.shard, start, size)
        if len(data) < size:
            problem = f"{self._where(stored, extension)}: beyond the end of the shard. Fetch or convert it again"
            raise DataError(problem, value=start + size, path=self._path(stored))
        return data

    def _path(self, stored: StoredSample) -> str:
        return f"{self.files.urls[stored.shard]}/{stored.filename}"

    def _where(self, stored: StoredSample, extension: str = "") -> str:
        """Shard, key, file name and offset of a member, for messages."""
        offset = f" at offset {stored.members[extension][0]}" if extension in stored.members else ""
        return f"{self.files.urls[stored.shard]}: {stored.key} ({stored.filename}){offset}"


def ready_stages(fixed_part: FixedPart) -> str:
    """Digest of what made ready samples: readers compare it with their own stages."""
    return stages_digest((*fixed_part.parts, DensePage))


def ready_digest(fields: dict[str, Any], page: NDArray[np.uint8]) -> str:
    """Digest of a ready sample: the fields of its JSON, and its dense page."""
    return content_digest(page.tobytes() + fields_digest(fields).encode()).hex()


def _array(data: bytes) -> NDArray[np.uint8]:
    """A stored .npy of bytes; nothing in it can be executed. ValueError if it is none."""
    # Bytes 8 and 9 hold the length of a header of version 1.0, which ends at a multiple of 64 bytes.
    start, shape, dtype = _read_header(data[: 10 + int.from_bytes(data[8:10], "little")])
    if dtype != np.uint8 or len(shape) != 1:
        raise ValueError(f"{dtype} {shape} instead of bytes")
    return np.frombuffer(data, np.uint8, shape[0], start)


@lru_cache(maxsize=64)
def _read_header(head: bytes) -> tuple[int, tuple[int, ...], np.dtype[Any]]:
    """Offset of the data, shape and type: parsing takes as long as reading a page, and many pages share a header."""
    stream = BytesIO(head)
    shape, dtype = read_npy_header(stream)
    return stream.tell(), shape, dtype


def open_shards(
    urls: Sequence[str],
    storage: Storage,
    index_folder: Path | None = None,
    *,
    on_bad_sample: str = "raise",
    max_pixels: int = Decode().max_pixels,
) -> ShardSource:
    """The pages of shards, of one conversion or of several. Shards without an index are scanned, remote ones fetched.

    The rows of a large index, or of many scanned shards, are kept in `index_folder` until index or shards change.
    """
    conversions: dict[str, list[int]] = {}
    for number, url in enumerate(urls):
        conversions.setdefault(index_location(url), []).append(number)
    if len(set(urls)) < len(urls):
        twice = next(url for at, url in enumerate(urls) if url in urls[:at])
        problem = f"tar_path lists {twice} twice. List each shard once"
        raise ConfigError(problem, setting="tar_path", value=twice)
    local = [str(local_path(url)) for url in (*urls, *conversions) if not is_remote(url)]
    before = {path: file_signature(path) for path in local}
    again = partial(open_shards, urls, storage, index_folder, on_bad_sample=on_bad_sample, max_pixels=max_pixels)
    opener = _Opener(urls, storage, index_folder, on_bad_sample)
    tables = [(opener.open(location, numbers), numbers) for location, numbers in conversions.items()]
    index = _joined(urls, tables)
    files = ShardFiles(urls, index.shards, opener.signatures, storage)
    for url in opener.skipped:  # If one is restored, its pages count from the next run on.
        before.pop(str(local_path(url)), None)
    return ShardSource(index, files, max_pixels, opener.skipped, partial(_reopen_if_changed, before, again))


def _reopen_if_changed(before: dict[str, Signature | None], again: Callable[[], ShardSource]) -> ShardSource | None:
    return None if all(file_signature(path) == known for path, known in before.items()) else again()


def _joined(urls: Sequence[str], tables: Sequence[tuple[RowTable, Sequence[int]]]) -> ShardIndex:
    """One index of the given shards of several conversions."""
    shards: dict[int, Shard] = {}
    wanted, found = [], [ShardIndex.of(table) for table, _ in tables]
    for index, (table, numbers) in zip(found, tables, strict=True):
        listed = {shard.name: at for at, shard in enumerate(index.shards)}
        mapped = {}
        for number in numbers:
            name = urls[number].rpartition("/")[2]
            if name not in listed:
                location = index_location(urls[number])
                problem = f"{urls[number]} is not in {location}. Convert again, or name the shards of one conversion"
                raise ConfigError(problem, setting="tar_path", value=urls[number], path=location)
            mapped[listed[name]] = number
            shards[number] = index.shards[listed[name]]
        wanted.append((table, mapped))
    first = found[0]
    for index, (_, numbers) in zip(found, tables, strict=True):
        if (index.kind, index.stages, index.annotated) != (first.kind, first.stages, first.annotated):
            problem = (
                f"tar_path: {urls[numbers[0]]} differs from {urls[0]} in kind, stages or annotation. "
                "Read them as two datasets, or convert both alike"
            )
            raise ConfigError(problem, setting="tar_path", value=urls[numbers[0]])
    in_order = tuple(shards[number] for number in range(len(urls)))
    return replace(first, shards=in_order, samples=SampleRows.of_shards(wanted))


class _Opener:
    """Finds the samples of shards, and remembers what their files were and what was left out."""

    def __init__(self, urls: Sequence[str], storage: Storage, index_folder: Path | None, on_bad_sample: str) -> None:
        self.urls, self.storage, self.index_folder, self.on_bad_sample = urls, storage, index_folder, on_bad_sample
        self.signatures = [None if is_remote(url) else file_signature(local_path(url)) for url in urls]
        self.skipped: dict[str, str] = {}

    def open(self, location: str, numbers: Sequence[int]) -> RowTable:
        """The samples of the shards of one conversion."""
        kept = self._kept(location)
        table = kept.load(self.storage.signature) if kept is not None else None
        if table is not None:
            return table
        before = self.storage.signature(location) if kept is not None else None
        stream = self.storage.read(location)
        if stream is None:
            return self._scanned(location, numbers)
        with stream:
            if kept is None:
                return ShardIndex.read(stream, location)
            return ShardIndex.read(stream, location, lambda w, about: kept.keep(w, {location: before}, about))

    def _scanned(self, location: str, numbers: Sequence[int]) -> RowTable:
        """The samples of shards without an index, kept until one of the shards changes."""
        urls = [self.urls[number] for number in numbers]
        with ThreadPoolExecutor(SCANNERS) as pool:
            states = dict(zip(urls, pool.map(self.storage.signature, urls), strict=True))
        for number in numbers:
            self.signatures[number] = states[self.urls[number]]
        kept = self._kept(*urls)
        table = kept.load(states.get) if kept is not None else None
        if table is not None:
            return table
        where = "fetched and scanned" if is_remote(location) else "scanned"
        log.info("%s is not there: %d shards are %s", location, len(urls), where)
        writer, shards = SampleRowsWriter(), []
        kind, annotated, left_out = RAW, False, len(self.skipped)
        for shard, samples, is_annotated in self._scan_each(numbers):
            if samples and not len(writer):
                kind = RAW if image_extension(samples[0].members) or PAGE not in samples[0].members else READY
            for sample in samples:
                writer.append(sample)
            shards.append(asdict(shard))
            annotated |= is_annotated
        about = {"split": "", "kind": kind, "annotated": annotated, "stages": "", "shards": shards}
        if kept is None or len(self.skipped) > left_out:
            return writer.table(about)
        return kept.keep(writer, states, about)

    def _scan_each(self, numbers: Sequence[int]) -> Iterator[tuple[Shard, list[StoredSample], bool]]:
        """Each shard in order, its samples, and whether one of them is annotated."""
        pool = ThreadPoolExecutor(SCANNERS)
        try:
            results = pool.map(self._scan, range(len(numbers)), numbers)
            hidden = len(numbers) <= SCANNERS or not Console().is_terminal
            yield from track(results, "scanning shards", total=len(numbers), transient=True, disable=hidden)
        finally:
            pool.shutdown(cancel_futures=True)

    def _scan(self, position: int, number: int) -> tuple[Shard, list[StoredSample], bool]:
        """A shard that cannot be read is an error, or is left out."""
        url = self.urls[number]
        name = url.rpartition("/")[2]
        try:
            _, stream = self.storage.open(url, signature=self.signatures[number])
            with stream:
                samples, annotated = scan_shard(stream, url, position)
                return Shard(name, stream.seek(0, 2), "", len(samples)), samples, annotated
        except DataError as error:
            if self.on_bad_sample == "raise":
                raise
            self.skipped[url] = str(error)
            return Shard(name, 0, "", 0), [], False

    def _kept(self, *locations: str) -> KeptTable | None:
        if self.index_folder is None:
            return None
        return KeptTable(self.index_folder, ShardIndex.__module__, Path.cwd(), *locations)
