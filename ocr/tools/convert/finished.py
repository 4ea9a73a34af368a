"""A finished shard: what it holds, and the small file beside it that says so until the index does."""

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
from ocr.pipeline.source import UNKNOWN, Signature, file_signature
from ocr.shards.index import FORMAT, Shard, ShardIndex, StoredSample, index_name, shard_name
from ocr.tools.convert.plan import Plan, ShardTask, key_of

_MOST_FOLLOWING = 4096
"""How far ahead the next page of a batch is looked for; further than a batch is long."""


class Row(NamedTuple):
    """A sample of a shard, and which page of the split it is."""

    place: int
    sample: StoredSample


@dataclass(frozen=True, slots=True)
class Finished:
    """What is said of a shard."""

    shard: Shard
    rows: tuple[Row, ...]
    """In the order of the shard."""
    skipped: dict[str, str] = field(default_factory=dict)
    """File name and reason of the pages that were left out."""
    recipe: str = ""
    signature: Signature = UNKNOWN
    """Of the shard's own file; as long as it has this one, nobody has touched it."""
    seen: dict[int, Signature] = field(default_factory=dict)
    """Index and signature of every page that was to go into the shard."""

    def to_json(self) -> str:
        rows = [[index, s.key, s.filename, s.shard, s.members, s.content, s.annotation] for index, s in self.rows]
        document = {"format": FORMAT, "shard": asdict(self.shard), "rows": rows, "skipped": self.skipped}
        document |= {"recipe": self.recipe, "signature": self.signature, "seen": self.seen}
        return json.dumps(document, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: bytes) -> Finished | None:
        """None where it is not what was written."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                return None
            rows = tuple(
                Row(int(index), StoredSample(key, name, shard, {ext: (a, b) for ext, (a, b) in members.items()}, *rest))
                for index, key, name, shard, members, *rest in document["rows"]
            )
            seen = {int(index): Signature(*known) for index, known in document["seen"].items()}
            own = Signature(*document["signature"])
            return cls(Shard(**document["shard"]), rows, document["skipped"], document["recipe"], own, seen)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def done_file(shard: Path) -> Path:
    """What vouches for a shard until the index does."""
    return shard.with_name(f".{shard.name}.done.json")


def write_done(shard: Path, finished: Finished) -> None:
    """Vouch for a shard."""
    with replacing(done_file(shard)) as stream:
        stream.write(finished.to_json().encode())


def read_done(shard: Path) -> Finished | None:
    """What was said of a shard; None where nothing was."""
    try:
        return Finished.from_json(done_file(shard).read_bytes())
    except OSError:
        return None


def fits(task: ShardTask, finished: Finished) -> bool:
    """Whether a shard is said to hold what it should: the same pages and annotations, in the same order and form."""
    rows = {row.place: row for row in finished.rows}
    wanted = []
    for group in task.groups():
        present = [position for position in group if task.indices[position] in rows]
        for position in present:
            name = task.pages.entries[position].filename
            annotation = task.pages.annotation_digest(position).hex()
            extensions = task.recipe.extensions(name)
            wanted.append((task.indices[position], key_of(task.indices[present[0]]), name, annotation, extensions))
    said = [(index, s.key, s.filename, s.annotation, list(s.members)) for index, s in finished.rows]
    return wanted == said and finished.shard.name == task.name


def is_untouched(task: ShardTask, finished: Finished) -> bool:
    """Whether a shard and all its pages are, to the file system, what they were when it was written."""
    if finished.recipe != task.recipe_digest or finished.signature != file_signature(task.path):
        return False
    if finished.signature == UNKNOWN or (finished.skipped and task.on_bad_sample == "raise"):
        return False
    return all(
        finished.seen.get(index, UNKNOWN) == task.pages.signature(position) != UNKNOWN
        for position, index in enumerate(task.indices)
    )


def merge(plan: Plan, finished: Sequence[Finished]) -> ShardIndex:
    """The index of a split, in the order of its source."""
    rows = sorted((row for shard in finished for row in shard.rows), key=lambda row: row.place)
    samples = tuple(row.sample for row in rows)
    shards = tuple(one.shard for one in finished)
    recipe, annotated = plan.recipe, plan.source.annotated
    return ShardIndex(plan.split, recipe.kind, annotated, source_digest(samples), recipe.stages, shards, samples)


def source_digest(samples: Iterable[StoredSample]) -> str:
    """Of names, contents and annotations."""
    return digest(*(part for sample in samples for part in (sample.filename, sample.content, sample.annotation)))


def index_path(out: Path, split: str) -> Path:
    """Where the index of a split lies."""
    return out / index_name(shard_name(split, 0))


def read_index(path: Path) -> ShardIndex | None:
    """The index beside the shards; None where there is none, a DataError where it is damaged."""
    try:
        return ShardIndex.from_json(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). Restore it, or convert anew") from error


def taken_from(index: ShardIndex, names: Sequence[str]) -> list[Finished]:
    """What an index says of each of its shards."""
    rows: list[list[Row]] = [[] for _ in index.shards]
    for row in _rows(index.samples, names):
        rows[row.sample.shard].append(row)
    for shard_rows in rows:
        shard_rows.sort(key=lambda row: (min(row.sample.members.values(), default=(0, 0)), row.place))
    return [Finished(shard, tuple(shard_rows)) for shard, shard_rows in zip(index.shards, rows, strict=True)]


def _rows(samples: Sequence[StoredSample], names: Sequence[str]) -> Iterable[Row]:
    """A key is the place of a sample; of a batch it is that of the first, and the others follow by their names."""
    index, key = -1, ""
    for sample in samples:
        if sample.key != key:
            key = sample.key
            index = int(key) if re.fullmatch("[0-9]{1,18}", key) else len(names)
        else:
            following = range(index + 1, min(index + 1 + _MOST_FOLLOWING, len(names)))
            index = next((place for place in following if names[place] == sample.filename), index + 1)
        yield Row(index, sample)
