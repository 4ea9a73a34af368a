"""Write one shard. The result depends only on the task, not on the worker or on earlier attempts."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import replace
from typing import IO, cast

from ocr.atomic import replacing
from ocr.errors import ConfigError, DataError
from ocr.geometry.orientation import upright_size
from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.signature import UNKNOWN, Signature, file_signature
from ocr.shards.index import Shard, end_tar, write_member
from ocr.shards.sample_rows import StoredSample
from ocr.tools.convert.members import Parts, put_together, take_apart
from ocr.tools.convert.plan import ShardTask, key_of
from ocr.tools.convert.shard_receipt import IndexedSample, ShardReceipt, write_done


class HashedStream:
    """Counts and hashes what is written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._hashed = hashlib.sha256()
        self._count = 0

    def write(self, data: bytes | memoryview) -> int:
        self._hashed.update(data)
        self._count += len(data)
        return self._stream.write(data)

    def tell(self) -> int:
        return self._count

    def sha256(self) -> str:
        return self._hashed.hexdigest()


class _Writer:
    """Writes a shard to disk."""

    def __init__(self, task: ShardTask, stream: HashedStream) -> None:
        self._task = task
        self._stream = stream
        self.samples: list[IndexedSample] = []
        self.skipped: dict[str, str] = {}
        self.seen: dict[int, Signature] = {}

    def write(self) -> None:
        for group in self._task.groups():
            pages = [(position, *made) for position in group if (made := self._make(position)) is not None]
            if pages:
                self._write_group(pages)
        end_tar(cast(IO[bytes], self._stream))

    def _make(self, position: int) -> tuple[str, Parts] | None:
        task, index = self._task, self._task.indices[position]
        # Before it is read: a file that changes during reading no longer has this signature.
        signature = task.pages.signature(position)
        self.seen[index] = signature.settled() if signature else UNKNOWN
        try:
            raw = replace(task.pages.read(position), index=index)
            return content_digest(raw.encoded).hex(), take_apart(task.recipe, raw)
        except DataError as error:
            if task.on_bad_sample == "raise":
                raise
            self.skipped[task.pages.names[position]] = str(error)
            return None

    def _write_group(self, pages: list[tuple[int, str, Parts]]) -> None:
        task = self._task
        key = key_of(task.indices[pages[0][0]])
        members = put_together(task.recipe, [parts for _, _, parts in pages])
        stream = cast(IO[bytes], self._stream)
        places = {extension: write_member(stream, f"{key}.{extension}", data) for extension, data in members.items()}
        for position, content, parts in pages:
            size = upright_size(parts.facts["orientation"], *parts.facts["raw_size"])
            name, annotation = task.pages.names[position], task.pages.annotation_digest(position).hex()
            stored = StoredSample(key, name, task.number, places, content, annotation, size)
            self.samples.append(IndexedSample(task.indices[position], stored))


def write_shard(task: ShardTask) -> ShardReceipt:
    """Write a shard under a temporary name, rename it, and write its receipt."""
    if task.recipe.digest() != task.recipe_digest:
        raise ConfigError(
            f"{platform.node()} has other code or other versions of libraries than the machine that started the "
            "conversion: its shards would differ. Install the same on all machines",
            value=platform.node(),
        )
    with replacing(task.path) as stream:
        hashed = HashedStream(stream)
        writer = _Writer(task, hashed)
        writer.write()
        stream.flush()
        # The receipt must not reach the disk before the shard does.
        os.fsync(stream.fileno())
    shard = Shard(task.name, hashed.tell(), hashed.sha256(), len(writer.samples))
    signature = file_signature(task.path) or UNKNOWN
    rows = tuple(writer.samples)
    receipt = ShardReceipt(shard, rows, writer.skipped, task.recipe_digest, signature, writer.seen)
    write_done(task.path, receipt)
    return receipt
