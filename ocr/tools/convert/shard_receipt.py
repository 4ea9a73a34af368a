"""The receipt of a shard: a small file beside it that lists its contents until the index of the split does."""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from ocr.atomic import replacing
from ocr.errors import DataError
from ocr.pipeline.fingerprint import feed
from ocr.pipeline.signature import UNKNOWN, Signature, file_signature
from ocr.shards.index import FORMAT, Shard, ShardIndex, index_name, shard_name
from ocr.shards.sample_rows import SampleRows, SampleRowsWriter, StoredSample
from ocr.tools.convert.plan import Plan, ShardTask, key_of

_MAX_FOLLOWING = 4096
"""How far ahead the next page of a batch is searched; longer than any batch."""


class IndexedSample(NamedTuple):
    """A sample of a shard, and the index of its page in the split."""

    page: int
    sample: StoredSample


@dataclass(frozen=True, slots=True)
class ShardReceipt:
    """What is known about a finished shard."""

    shard: Shard
    samples: tuple[IndexedSample, ...]
    """In the order of the shard."""
    skipped: dict[str, str] = field(default_factory=dict)
    """File name and reason of the pages that were left out."""
    recipe: str = ""
    signature: Signature = UNKNOWN
    """Of the shard's file: as long as it is the same, the file has not been changed."""
    seen: dict[int, Signature] = field(default_factory=dict)
    """Index and signature of every page that was meant for the shard, left out or not."""

    def to_json(self) -> str:
        samples = [[index, *sample.to_row()] for index, sample in self.samples]
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
            samples = tuple(
                IndexedSample(int(index), StoredSample.from_row(row)) for index, *row in document["samples"]
            )
            seen = {int(index): Signature(*known) for index, known in document["seen"].items()}
            own = Signature(*document["signature"])
            skipped = {str(name): str(why) for name, why in document["skipped"].items()}
            return cls(Shard.from_json(document["shard"]), samples, skipped, document["recipe"], own, seen)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None


NO_RECEIPT = ShardReceipt(Shard("", 0, "", 0), ())
"""Fits no shard."""


def done_file(shard: Path) -> Path:
    """The file of a shard's receipt."""
    return shard.with_name(f".{shard.name}.done.json")


def write_done(shard: Path, receipt: ShardReceipt) -> None:
    """Write the receipt of a shard."""
    with replacing(done_file(shard)) as stream:
        stream.write(receipt.to_json().encode())


def read_done(shard: Path) -> ShardReceipt | None:
    """The receipt of a shard; None if there is no valid one."""
    try:
        return ShardReceipt.from_json(done_file(shard).read_bytes())
    except OSError:
        return None


def fits(task: ShardTask, receipt: ShardReceipt) -> bool:
    """Whether the receipt lists what the task asks for: the same pages and annotations, in the same order and form."""
    stored = {kept.page for kept in receipt.samples}
    wanted = []
    for group in task.groups():
        present = [position for position in group if task.indices[position] in stored]
        for position in present:
            name = task.pages.names[position]
            annotation = task.pages.annotation_digest(position).hex()
            extensions = task.recipe.extensions(name)
            wanted.append((task.indices[position], key_of(task.indices[present[0]]), name, annotation, extensions))
    listed = [(index, s.key, s.filename, s.annotation, list(s.members)) for index, s in receipt.samples]
    return wanted == listed and receipt.shard.name == task.name


def is_untouched(task: ShardTask, receipt: ShardReceipt) -> bool:
    """Whether neither the shard nor any of its pages has changed since it was written, by their file signatures."""
    if receipt.recipe != task.recipe_digest or receipt.signature != file_signature(task.path):
        return False
    if receipt.signature == UNKNOWN or (receipt.skipped and task.on_bad_sample == "raise"):
        return False
    return all(
        receipt.seen.get(index, UNKNOWN) == task.pages.signature(position) != UNKNOWN
        for position, index in enumerate(task.indices)
    )


class Merger:
    """Makes the index of a split from the receipts of its shards, which come in any order and are not kept."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self._samples, self._pages = plan, SampleRowsWriter(), array("q")
        self._skipped: dict[int, dict[str, str]] = {}
        self.shards: dict[int, Shard] = {}

    def add(self, number: int, receipt: ShardReceipt) -> None:
        """The receipt of a shard that is complete."""
        self.shards[number], self._skipped[number] = receipt.shard, receipt.skipped
        for page, sample in receipt.samples:
            self._samples.append(sample)
            self._pages.append(page)

    @property
    def skipped(self) -> dict[str, str]:
        """File name and reason of the pages that were left out."""
        return {name: why for _, skipped in sorted(self._skipped.items()) for name, why in skipped.items()}

    def index(self) -> ShardIndex:
        """The index, in the order of the source."""
        samples = SampleRows(self._samples.table({}))
        if len(samples):
            samples = samples.in_order(np.argsort(np.frombuffer(self._pages, np.int64), kind="stable"))
        shards = tuple(shard for _, shard in sorted(self.shards.items()))
        recipe, annotated = self._plan.recipe, self._plan.source.annotated
        digest = source_digest(samples)
        return ShardIndex(self._plan.split, recipe.kind, annotated, digest, recipe.stages, shards, samples)


def source_digest(samples: Iterable[StoredSample]) -> str:
    """Digest of file names, contents and annotations."""
    hashed = hashlib.blake2b(digest_size=16)
    for sample in samples:
        for part in (sample.filename, sample.content, sample.annotation):
            feed(hashed, part)
    return hashed.hexdigest()


def index_path(out: Path, split: str) -> Path:
    """The file of a split's index."""
    return out / index_name(shard_name(split, 0))


def read_index(path: Path) -> ShardIndex | None:
    """The index beside the shards; None if there is none. Raises DataError if it is damaged."""
    try:
        with path.open("rb") as stream:
            return ShardIndex.read(stream, str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}). Restore it, or convert again", path=path
        ) from error


class IndexReceipts(Sequence[ShardReceipt]):
    """A receipt for each shard of an index, made when it is asked for."""

    def __init__(self, index: ShardIndex, names: Sequence[str]) -> None:
        """`names` are those of the source."""
        self._index, self._names = index, names
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
        kept = list(_indexed((self._index.samples[row] for row in rows.tolist()), self._names))
        kept.sort(key=lambda one: (min(one.sample.members.values(), default=(0, 0)), one.page))
        return ShardReceipt(self._index.shards[number], tuple(kept))


def _indexed(samples: Iterable[StoredSample], names: Sequence[str]) -> Iterable[IndexedSample]:
    """A key is the index of a sample; samples stored as a batch share the key of the first, and are found by name."""
    index, key = -1, ""
    for sample in samples:
        if sample.key != key:
            key = sample.key
            index = int(key) if re.fullmatch("[0-9]{1,18}", key) else len(names)
        else:
            following = range(index + 1, min(index + 1 + _MAX_FOLLOWING, len(names)))
            index = next((ahead for ahead in following if names[ahead] == sample.filename), index + 1)
        yield IndexedSample(index, sample)
