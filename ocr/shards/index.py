"""Tar shards in the layout of WebDataset, and the index beside them.

    train-000000.tar    <key>.jpg (the original bytes), <key>.json, perhaps <key>.npz (maps); or ready arrays (.npy)
    train-index.json    shards with size and sha256, samples with offset and size of each member, the source

The same input gives the same bytes: members have no time or owner, and their order is fixed.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import IO, Any

from ocr.errors import DataError

FORMAT = 1
BLOCK = 512
RAW, READY = "raw", "ready"
KEY_DIGITS = 8
MAX_MEMBER_BYTES = 1 << 30
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


@dataclass(frozen=True, slots=True)
class StoredSample:
    """One sample and its members in its shard: extension -> (offset of the data, size)."""

    key: str
    filename: str
    shard: int
    members: dict[str, tuple[int, int]]
    content: str
    """Digest of the image's bytes (hex), the same as in a cache."""
    annotation: str
    """Digest of the annotation (hex), the same as in a cache."""


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
    samples: tuple[StoredSample, ...]

    def to_json(self) -> str:
        """The text of the file; the same index gives the same text."""
        rows = [
            [s.key, s.filename, s.shard, {ext: list(at) for ext, at in s.members.items()}, s.content, s.annotation]
            for s in self.samples
        ]
        head = {name: getattr(self, name) for name in ("split", "kind", "annotated", "source", "stages")}
        shards = [asdict(shard) for shard in self.shards]
        document = {"format": FORMAT, **head, "shards": shards, "samples": rows}
        return json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, location: str) -> ShardIndex:
        """Read an index; DataError if it is not one."""
        try:
            document = json.loads(text)
            if document["format"] != FORMAT:
                raise DataError(f"{location}: an index of format {document['format']}, not {FORMAT}. Convert again")
            shards = tuple(Shard(**shard) for shard in document["shards"])
            samples = tuple(
                StoredSample(
                    key, name, int(shard), {ext: (int(a), int(b)) for ext, (a, b) in members.items()}, *digests
                )
                for key, name, shard, members, *digests in document["samples"]
            )
            head = {name: document[name] for name in ("split", "kind", "annotated", "source", "stages")}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{location}: not an index of shards ({error}). Write it: ocr convert SRC DST") from error
        if any(not 0 <= sample.shard < len(shards) for sample in samples):
            raise DataError(f"{location}: a sample is in a shard that is not listed. Convert again")
        return cls(**head, shards=shards, samples=samples)


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
        raise DataError(f"{location}: damaged after offset {offset} ({error}). Fetch or convert it again") from error


def is_allowed(member: tarfile.TarInfo, extension: str) -> bool:
    """Whether a member is plain data of a known type and a sound size, and its name stays within its folder."""
    parts = member.name.split("/")
    is_safe = not member.name.startswith("/") and ".." not in parts and "\\" not in member.name
    known = extension.lower().rpartition(".")[2] in ALLOWED
    return member.isreg() and is_safe and known and 0 <= member.size <= MAX_MEMBER_BYTES


def image_extension(members: Sequence[str] | dict[str, Any]) -> str | None:
    """The extension of the member that is the image; None if there is none."""
    return next((extension for extension in members if extension in ALLOWED - {"json", "npz", "npy"}), None)
