"""Tar shards in the layout of WebDataset, and the index beside them.

    train-000000.tar    <key>.jpg (the original bytes), <key>.json, perhaps <key>.npz (maps); or ready arrays (.npy)
    train-index.json    shards with size and sha256, samples with offset and size of each member, the source

The same input gives the same bytes: members have no time or owner, and their order is fixed.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any

from ocr.errors import DataError
from ocr.formats.json_stream import JsonStream
from ocr.pipeline.fingerprint import feed
from ocr.row_table import RowTable
from ocr.shards.sample_rows import SampleRows, SampleRowsWriter, StoredSample

FORMAT = 1
BLOCK = 512
RAW, READY, DENSE = "raw", "ready", "dense"
"""Kinds of samples: encoded pages, ready pages with their maps, and ready pages in dense form, which have no maps."""
MAX_MEMBER_BYTES = 1 << 30
_HEAD = ("split", "kind", "annotated", "source", "stages")
Keep = Callable[[SampleRowsWriter, dict[str, Any]], RowTable]
_SHARD = re.compile(r"(?P<split>.+)-(?P<number>[0-9]+)\.tar")
# What may be in a shard: images, annotation, maps and arrays; never anything that is executed when it is read.
ALLOWED = frozenset(
    {"json", "npz", "npy", "jpg", "jpeg", "jpe", "jp2", "png", "bmp", "tif", "tiff", "webp", "ppm", "pgm", "gif"}
)


@dataclass(frozen=True, slots=True)
class Shard:
    """One tar file."""

    name: str
    bytes: int
    sha256: str
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
class ShardIndex:
    """Everything that is known about the shards of a split without opening them."""

    split: str
    kind: str
    annotated: bool
    source: str
    """Digest of names, contents and annotations: the same for the same pages, wherever they are."""
    stages: str
    """Digest of the fixed stages of ready samples; empty for raw ones."""
    shards: tuple[Shard, ...]
    samples: SampleRows

    def json_parts(self) -> Iterator[str]:
        """The text of the file, a part per sample; the same index gives the same text."""
        shards = [asdict(shard) for shard in self.shards]
        hashed, about = hashlib.blake2b(digest_size=16), self.head | {"shards": shards}
        separator = _dump({"format": FORMAT} | about).removesuffix("}") + ',"samples":['
        for sample in self.samples:
            row = _dump(sample.to_row())
            feed(hashed, row)
            yield separator + row
            separator = ","
        feed(hashed, _dump(about))
        yield ("" if len(self.samples) else separator) + f'],"digest":"{hashed.hexdigest()}"}}\n'

    @property
    def head(self) -> dict[str, Any]:
        """All but shards and samples."""
        return {name: getattr(self, name) for name in _HEAD}

    @classmethod
    def read(cls, stream: IO[bytes], location: str, keep: Keep = SampleRowsWriter.table) -> ShardIndex:
        """Read an index sample by sample; `keep` makes the table of the samples. DataError if it is not an index."""
        writer, document = SampleRowsWriter(), JsonStream(stream, "samples")
        last_shard, hashed = -1, hashlib.blake2b(digest_size=16)
        try:
            for member in document:
                sample = StoredSample.from_row(member.value)
                last_shard = max(last_shard, sample.shard) if sample.shard >= 0 else 2**31 - 1
                feed(hashed, writer.append(sample))
            if document.rest["format"] != FORMAT:
                found = document.rest["format"]
                problem = f"{location}: an index of format {found}, not {FORMAT}. Convert again"
                raise DataError(problem, value=found, path=location)
            about = {name: document.rest[name] for name in (*_HEAD, "shards")}
            shards = [Shard.from_json(shard) for shard in about["shards"]]
            _check_head(about)
            # An index from before it had a digest is read without this proof.
            feed(hashed, _dump(about))
            if (given := document.rest.get("digest")) not in (None, hashed.hexdigest()):
                problem = f"{location}: its digest differs, so it was changed or damaged. Restore it, or convert again"
                raise DataError(problem, value=given, path=location)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            problem = f"{location}: not an index of shards ({error}). Write it: ocr convert SRC DST"
            raise DataError(problem, path=location) from error
        if last_shard >= len(shards):
            problem = f"{location}: a sample is in a shard that is not listed. Convert again"
            raise DataError(problem, value=last_shard, path=location)
        return cls.from_table(keep(writer, about))

    @classmethod
    def from_table(cls, table: RowTable) -> ShardIndex:
        """The index whose samples are in a table."""
        about = table.about
        shards = tuple(Shard(**shard) for shard in about["shards"])
        return cls(**{name: about[name] for name in _HEAD}, shards=shards, samples=SampleRows(table))


def _check_head(about: dict[str, Any]) -> None:
    if about["kind"] not in (RAW, READY, DENSE):
        raise ValueError(f"kind {about['kind']!r:.40} must be {RAW}, {READY} or {DENSE}")
    if type(about["annotated"]) is not bool:
        raise TypeError("annotated must be true or false")
    if not all(type(about[name]) is str for name in ("split", "source", "stages")):
        raise TypeError("split, source and stages must be texts")


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def shard_name(split: str, number: int) -> str:
    """The file name of one shard.

    >>> shard_name("train", 3), index_name("train-000003.tar")
    ('train-000003.tar', 'train-index.json')
    """
    return f"{split}-{number:06d}.tar"


def index_name(shard: str) -> str:
    """The file name of the index that belongs to a shard."""
    found = _SHARD.fullmatch(shard)
    return f"{found['split'] if found else shard.removesuffix('.tar')}-index.json"


def write_member(stream: IO[bytes], name: str, data: bytes | memoryview) -> tuple[int, int]:
    """Append a file to a tar; returns offset and size of its data."""
    member = tarfile.TarInfo(name)
    member.size = len(data)
    header = member.tobuf(tarfile.USTAR_FORMAT)
    stream.write(header)
    start = stream.tell()
    stream.write(data)
    stream.write(b"\0" * (-len(data) % BLOCK))
    return start, len(data)


def end_tar(stream: IO[bytes]) -> None:
    """Write the two empty blocks that end a tar."""
    stream.write(b"\0" * (2 * BLOCK))


def scan_tar(stream: IO[bytes], location: str) -> Iterable[tuple[str, dict[str, tuple[int, int]]]]:
    """Key and members of each sample of a tar without an index, in order; DataError if the tar is damaged.

    Only members whose name and type are allowed are read; everything else is ignored.
    """
    members: dict[str, tuple[int, int]] = {}
    key, offset = "", 0
    try:
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                offset = member.offset
                stem, _, extension = member.name.rpartition("/")[2].partition(".")
                if not is_allowed(member, extension):
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


def is_allowed(member: tarfile.TarInfo, extension: str) -> bool:
    """Whether a member is plain data of a known type and a sound size, and its name stays within its folder."""
    parts = member.name.split("/")
    is_safe = not member.name.startswith("/") and ".." not in parts and "\\" not in member.name
    known = extension.lower().rpartition(".")[2] in ALLOWED
    return member.isreg() and is_safe and known and 0 <= member.size <= MAX_MEMBER_BYTES


def image_extension(members: Sequence[str] | dict[str, Any]) -> str | None:
    """The extension of the member that is the image; None if there is none."""
    return next((extension for extension in members if extension in ALLOWED - {"json", "npz", "npy"}), None)
