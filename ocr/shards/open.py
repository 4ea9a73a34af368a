"""Open shards by their index; local shards without one are scanned."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.pipeline.image_listing import hash_of
from ocr.pipeline.kept_table import KeptTable
from ocr.pipeline.signature import Signature, file_signature
from ocr.shards.files import ShardFiles
from ocr.shards.index import RAW, READY, Keep, Shard, ShardIndex, image_extension, index_name, scan_tar
from ocr.shards.locations import is_remote
from ocr.shards.members import count_pages
from ocr.shards.sample_rows import SampleRows, SampleRowsWriter, StoredSample
from ocr.shards.source import ShardSource
from ocr.shards.storage import Storage


def index_location(urls: Sequence[str]) -> str:
    """Where the index of shards is, or should be.

    >>> index_location(["s3://bucket/train-000000.tar"])
    's3://bucket/train-index.json'
    """
    base, slash, name = urls[0].rpartition("/")
    return f"{base}{slash}{index_name(name)}"


def can_be_opened(urls: Sequence[str], storage: Storage) -> bool:
    """Whether samples can be read at random: there is an index, or all shards are local and can be scanned."""
    return not any(is_remote(url) for url in urls) or storage.exists(index_location(urls))


def open_shards(urls: Sequence[str], storage: Storage, index_folder: Path | None = None) -> ShardSource:
    """The pages of shards; local ones are looked at again when an epoch starts.

    The rows of a large index are kept in `index_folder`, and used again until the index changes.
    """
    location, files = index_location(urls), _local_files(urls)
    index = _read_index(location, storage, index_folder)
    part = None if index is None else _select(index, urls, location)
    source = scan_shards(urls, storage) if part is None else ShardSource(part, urls, storage)
    source.reopen = partial(_reopen_if_changed, urls, storage, index_folder, files)
    return source


def _read_index(location: str, storage: Storage, index_folder: Path | None) -> ShardIndex | None:
    """The index of shards; None if there is none."""
    keep: Keep = SampleRowsWriter.table
    if index_folder is not None:
        kept = KeptTable(index_folder, ShardIndex.__module__, Path.cwd(), location)
        table = kept.load(partial(_state_of, storage))
        if table is not None:
            return ShardIndex.from_table(table)
        before = _state_of(storage, location)
        keep = lambda writer, about: kept.keep(writer, {location: before}, about)  # noqa: E731
    stream = storage.read(location)
    if stream is None:
        return None
    with stream:
        return ShardIndex.read(stream, location, keep)


def _state_of(storage: Storage, url: str) -> Signature | None:
    if not is_remote(url):
        return file_signature(url.removeprefix("file://"))
    version = storage.version(url) if storage.exists(url) else None
    # A version proves a content at any time.
    return None if version is None else Signature(hash_of(version) >> 1, 1, 1, 0)


def _reopen_if_changed(
    urls: Sequence[str], storage: Storage, index_folder: Path | None, before: list[Signature | None]
) -> ShardSource | None:
    return None if _local_files(urls) == before else open_shards(urls, storage, index_folder)


def _local_files(urls: Sequence[str]) -> list[Signature | None]:
    """The signatures of local shards and of their index."""
    paths = [url.removeprefix("file://") for url in (*urls, index_location(urls)) if not is_remote(url)]
    return [file_signature(path) for path in paths]


def _select(index: ShardIndex, urls: Sequence[str], location: str) -> ShardIndex:
    """The part of an index that describes these shards."""
    numbers = {shard.name: number for number, shard in enumerate(index.shards)}
    wanted = []
    for url in urls:
        name = url.rpartition("/")[2]
        if name not in numbers:
            problem = f"{url} is not in {location}. Convert again, or name the shards of one conversion"
            raise ConfigError(problem, setting="tar_path", value=url, path=location)
        wanted.append(numbers[name])
    if wanted == list(range(len(index.shards))):
        return index
    return replace(
        index, shards=tuple(index.shards[number] for number in wanted), samples=index.samples.of_shards(wanted)
    )


def scan_shards(urls: Sequence[str], storage: Storage, first_number: int = 0) -> ShardSource:
    """The pages of shards that have no index, from the shards themselves.

    Pages are read from the same bytes that were scanned, whatever becomes of a remote file meanwhile.
    """
    files = ShardFiles(urls, [Shard(url.rpartition("/")[2], 0, "", 0) for url in urls], storage)
    shards, samples, kind = [], SampleRowsWriter(), RAW
    for number, url in enumerate(urls):
        data, before = files.read(number), len(samples)
        for key, members in scan_tar(cast(IO[bytes], _Reader(data)), url):
            extension = image_extension(members)
            kind = kind if extension else READY
            stored = StoredSample(key, f"{key}.{extension or 'npy'}", number, members, "", "")
            for _ in range(count_pages(members, data, url, key)):
                samples.append(stored)
        shards.append(replace(files.shards[number], bytes=len(data), samples=len(samples) - before))
    index = ShardIndex("", kind, True, "", "", tuple(shards), SampleRows(samples.table({})))
    return ShardSource(index, urls, storage, first_number, files)


class _Reader(io.RawIOBase):
    """A file in memory as a stream, nothing copied but what is read."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data, self._at = data.data, 0

    def readinto(self, buffer: Any) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def seekable(self) -> bool:
        return True
