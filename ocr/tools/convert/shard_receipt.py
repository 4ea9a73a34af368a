"""The receipt of a shard: a small file beside it that lists its contents until the index of the split does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from ocr.atomic import replacing
from ocr.errors import DataError
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.signature import UNKNOWN, Signature, file_signature
from ocr.shards.index import FORMAT, Shard, ShardIndex, index_name, shard_name
from ocr.shards.sample_rows import SampleRows, StoredSample
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
        samples = [[index, s.key, s.filename, s.shard, s.members, s.content, s.annotation] for index, s in self.samples]
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
                IndexedSample(
                    int(index), StoredSample(key, name, shard, {ext: (a, b) for ext, (a, b) in members.items()}, *rest)
                )
                for index, key, name, shard, members, *rest in document["samples"]
            )
            seen = {int(index): Signature(*known) for index, known in document["seen"].items()}
            own = Signature(*document["signature"])
            return cls(Shard(**document["shard"]), samples, document["skipped"], document["recipe"], own, seen)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


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


def merge(plan: Plan, receipts: Sequence[ShardReceipt]) -> ShardIndex:
    """The index of a split, in the order of its source."""
    in_order = sorted((kept for receipt in receipts for kept in receipt.samples), key=lambda kept: kept.page)
    samples = SampleRows.of(kept.sample for kept in in_order)
    shards = tuple(receipt.shard for receipt in receipts)
    recipe, annotated = plan.recipe, plan.source.annotated
    return ShardIndex(plan.split, recipe.kind, annotated, source_digest(samples), recipe.stages, shards, samples)


def source_digest(samples: Iterable[StoredSample]) -> str:
    """Digest of file names, contents and annotations."""
    return digest(*(part for sample in samples for part in (sample.filename, sample.content, sample.annotation)))


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
        raise DataError(f"{path}: cannot be read ({error.strerror}). Restore it, or convert again") from error


def taken_from(index: ShardIndex, names: Sequence[str]) -> list[ShardReceipt]:
    """A receipt for each shard of an index."""
    samples: list[list[IndexedSample]] = [[] for _ in index.shards]
    for kept in _indexed(index.samples, names):
        samples[kept.sample.shard].append(kept)
    for of_shard in samples:
        of_shard.sort(key=lambda kept: (min(kept.sample.members.values(), default=(0, 0)), kept.page))
    return [ShardReceipt(shard, tuple(of_shard)) for shard, of_shard in zip(index.shards, samples, strict=True)]


def _indexed(samples: Sequence[StoredSample], names: Sequence[str]) -> Iterable[IndexedSample]:
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
