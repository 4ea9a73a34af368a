"""Write a file atomically: readers see all of it or nothing."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ocr.errors import ConfigError, GlyphFeedError, OutputError
from ocr.system import has_ended


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary stream that becomes `path` when the block succeeds, and is removed when it fails."""
    target = Path(path)
    partial = target.with_name(f"{partial_prefix(target)}{os.getpid()}-{threading.get_ident()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        stream = partial.open("wb")
    except OSError as error:
        raise _cannot_write(target, error) from error
    try:
        with stream:
            yield stream
        os.replace(partial, target)
    except OSError as error:
        # A full disk, or a folder of that name; errors of the block itself are raised unchanged.
        raise (error if isinstance(error, GlyphFeedError) else _cannot_write(target, error)) from error
    finally:
        partial.unlink(missing_ok=True)


def partial_prefix(target: Path) -> str:
    """How the names of a file's partial files begin: a digest, as a file system can reject a longer name."""
    return f".{hashlib.blake2b(os.fsencode(target.name), digest_size=8).hexdigest()}."


def refuse_missing_folder(path: Path, setting: str) -> None:
    """Raise ConfigError if a report's folder does not exist: a misspelt path must not become a folder."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"{setting} {path} is in {path.parent}, which is not a folder. Create it, or choose another path",
            setting=setting,
            value=path,
            path=path,
        )


def remove_partial_files(folder: Path) -> int:
    """Remove files that killed processes left half written; returns how many."""
    removed = 0
    for partial in folder.glob(".*.partial") if folder.is_dir() else ():
        pid = partial.name.split(".")[-2].split("-")[0]
        if has_ended(pid):
            partial.unlink(missing_ok=True)
            removed += 1
    return removed


def _cannot_write(target: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot write {target} ({error.strerror or error}). Choose another location, or check permissions and free "
        "space",
        path=target,
    )
