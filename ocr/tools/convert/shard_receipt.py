"""The receipt of a shard: a small file next to it that lists its contents until the index of the split does."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import overload

import numpy as np

from ocr.atomic import replacing
from ocr.errors import ConfigError, DataError
from ocr.pipeline.page_index import UNKNOWN, Signature, content_digest, file_signature
from ocr.shards.index import (
    FORMAT,
    SampleRows,
    SampleRowsWriter,
    Shard,
    ShardIndex,
    StoredSample,
    index_location,
    shard_name,
)
from ocr.shards.writer import TarWriter
from ocr.tools.convert.plan import Plan, ShardTask, key_of


@dataclass(frozen=True, slots=True)
class ShardReceipt:
    """What is known about a finished shard."""

    shard: Shard
    samples: tuple[StoredSample, ...]
    """In the order of the shard."""
    skipped: dict[str, str] = field(default_factory=dict)
    """File name and reason of the pages that were left out."""
    recipe: str = ""
    signature: Signature = UNKNOWN
    """Of the shard's file: as long as it is the same, the file has not been changed."""
    seen: dict[int, Signature] = field(default_factory=dict)
    """Index and signature of every page that was meant for the shard, left out or not."""

    def to_json(self) -> str:
        samples = [sample.to_row() for sample in self.samples]
        document = {"format": FORMAT, "shard": asdict(self.shard), "samples": samples, "skipped": self.skipped}
        document |= {"recipe": self.recipe, "signature": self.signature, "seen": self.seen}
        return json.dumps(document, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: bytes) -> ShardReceipt | None:
        """None if the file is damaged or in another format."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                return None
            samples = tuple(StoredSample.from_row(row) for row in document["samples"])
            seen = {int(index): Signature(*known) for index, known in document["seen"].items()}
            own = Signature(*document["signature"])
            skipped = {str(name): str(why) for name, why in document["skipped"].items()}
            return cls(Shard.from_json(document["shard"]), samples, skipped, document["recipe"], own, seen)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None


NO_RECEIPT = ShardReceipt(Shard("", 0, "", 0), ())
"""Fits no shard."""


def write_shard(task: ShardTask) -> ShardReceipt:
    """Write a shard under a temporary name, rename it, and write its receipt.

    The bytes depend only on the task, not on the worker or on earlier attempts.
    """
    if task.recipe.digest() != task.recipe_digest:
        raise ConfigError(
            f"{platform.node()} has other code or other versions of libraries than the machine that started the "
            "conversion: its shards would differ. Install the same on all machines",
            value=platform.node(),
        )
    samples, skipped, seen = [], {}, {}
    with replacing(task.path) as stream:
        tar = TarWriter(stream)
        for position, index in enumerate(task.indices):
            # Before it is read: a file that changes during reading no longer has this signature.
            state = task.pages.state(position)
            seen[index] = state.signature.settled() if state.signature else UNKNOWN
            try:
                raw = replace(task.pages.read(position), index=index)
                page = task.recipe.store(raw)
            except DataError as error:
                if task.on_bad_sample == "raise":
                    raise
                skipped[task.pages.names[position]] = str(error)
                continue
            key, content = key_of(index), content_digest(raw.encoded).hex()
            places = tar.add(key, page.members)
            annotation = state.annotation.hex()
            samples.append(StoredSample(key, raw.filename, task.number, places, content, annotation, page.size))
        sha256 = tar.end()
        stream.flush()
        # The receipt must not reach the disk before the shard does.
        os.fsync(stream.fileno())
    shard, signature = Shard(task.name, tar.size, sha256, len(samples)), file_signature(task.path) or UNKNOWN
    receipt = ShardReceipt(shard, tuple(samples), skipped, task.recipe_digest, signature, seen)
    write_done(task.path, receipt)
    return receipt


def done_file(shard: Path) -> Path:
    """The file of a shard's receipt."""
    return shard.with_name(f".{shard.name}.done.json")


def write_done(shard: Path, receipt: ShardReceipt) -> None:
    """Write the receipt of a shard."""
    with replacing(done_file(shard)) as stream:
        stream.write(receipt.to_json().encode())


def read_done(shard: Path) -> ShardReceipt | None:
    """The receipt of a shard; None without a valid one."""
    try:
        return ShardReceipt.from_json(done_file(shard).read_bytes())
    except OSError:
        return None


def page_of(sample: StoredSample) -> int:
    """The index of a page in its split; -1 if the key was not written by a conversion."""
    return int(sample.key) if re.fullmatch("[0-9]{1,18}", sample.key) else -1


def fits(task: ShardTask, receipt: ShardReceipt) -> bool:
    """Whether the receipt lists what the task asks for: the same pages and annotations, in the same order and form."""
    stored = set(map(page_of, receipt.samples))
    wanted = [
        (
            key_of(index),
            name := task.pages.names[position],
            task.pages.state(position).annotation.hex(),
            task.recipe.extensions(name),
        )
        for position, index in enumerate(task.indices)
        if index in stored
    ]
    listed = [(sample.key, sample.filename, sample.annotation, list(sample.members)) for sample in receipt.samples]
    return wanted == listed and receipt.shard.name == task.name


def is_untouched(task: ShardTask, receipt: ShardReceipt) -> bool:
    """Whether neither the shard nor any of its pages has changed since it was written, by their file signatures."""
    if receipt.recipe != task.recipe_digest or receipt.signature != file_signature(task.path):
        return False
    if receipt.signature == UNKNOWN or (receipt.skipped and task.on_bad_sample == "raise"):
        return False
    return all(
        receipt.seen.get(index, UNKNOWN) == task.pages.state(position).signature != UNKNOWN
        for position, index in enumerate(task.indices)
    )


class Merger:
    """Makes the index of a split from the receipts of its shards, which come in any order and are not kept."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._samples = plan, SampleRowsWriter()
        self._skipped: dict[int, dict[str, str]] = {}
        self.shards: dict[int, Shard] = {}

    def add(self, number: int, receipt: ShardReceipt) -> None:
        """The receipt of a shard that is complete."""
        self.shards[number], self._skipped[number] = receipt.shard, receipt.skipped
        for sample in receipt.samples:
            self._samples.append(sample)

    @property
    def skipped(self) -> dict[str, str]:
        """File name and reason of the pages that were left out."""
        return {name: why for _, skipped in sorted(self._skipped.items()) for name, why in skipped.items()}

    def index(self) -> ShardIndex:
        """The index, in the order of the source."""
        table = self._samples.table({})
        samples = SampleRows.of(table, np.argsort(table.columns["number"], kind="stable"))
        shards = tuple(shard for _, shard in sorted(self.shards.items()))
        recipe = self._plan.recipe
        return ShardIndex(self._plan.split, recipe.kind, self._plan.source.annotated, recipe.stages, shards, samples)


def index_path(out: Path, split: str) -> Path:
    """The file of a split's index."""
    return out / index_location(shard_name(split, 0))


def read_index(path: Path) -> ShardIndex | None:
    """The index next to the shards; None if there is none. Raises DataError if it is damaged."""
    try:
        with path.open("rb") as stream:
            return ShardIndex.of(ShardIndex.read(stream, str(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}). Restore it, or convert again", path=path
        ) from error


class IndexReceipts(Sequence[ShardReceipt]):
    """A receipt for each shard of an index, made when it is asked for."""

    def __init__(self, index: ShardIndex) -> None:
        self._index = index
        shard_of = index.samples.shard_of
        self._rows = np.argsort(shard_of, kind="stable")
        self._ends = np.cumsum(np.bincount(shard_of, minlength=len(index.shards)))

    def __len__(self) -> int:
        return len(self._index.shards)

    @overload
    def __getitem__(self, number: int) -> ShardReceipt: ...

    @overload
    def __getitem__(self, number: slice) -> list[ShardReceipt]: ...

    def __getitem__(self, number: int | slice) -> ShardReceipt | list[ShardReceipt]:
        numbers = range(len(self))[number]
        return [self._make(each) for each in numbers] if isinstance(numbers, range) else self._make(numbers)

    def _make(self, number: int) -> ShardReceipt:
        rows = self._rows[self._ends[number - 1] if number else 0 : self._ends[number]]
        kept = [self._index.samples[row] for row in rows.tolist()]
        kept.sort(key=lambda sample: min(sample.members.values(), default=(0, 0)))
        return ShardReceipt(self._index.shards[number], tuple(kept))
