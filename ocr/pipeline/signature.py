"""signature: what the file system says about a file, by which a change is noticed without reading it."""

from __future__ import annotations

import os
import struct
import time
from typing import NamedTuple

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
