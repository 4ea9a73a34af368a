"""The folder of one cache: described by about.json, created and removed as a whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from ocr.cache.row_format import FORMAT, ROW_BYTES, Layout
from ocr.pipeline.fingerprint import digest

MAX_ABOUT_BYTES = 16 << 20
_GONE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class DamagedStoreError(Exception):
    """The files of a cache are not what they should be; it can only be rebuilt."""


class TruncatedStoreError(DamagedStoreError):
    """A file of a cache was cut short while it was open."""


def create_store(folder: Path, layout: Layout, about: dict[str, Any]) -> None:
    """Make the files in a hidden folder and rename it; if another process was faster, its files stay.

    Only the user may read them, whatever the umask says: pages may be private.
    """
    partial = partial_folder(folder)
    partial.mkdir(mode=0o700, parents=True)
    try:
        about = {"format": FORMAT, "layout": asdict(layout)} | about
        about["digest"] = _about_digest(about)
        with _private_file(partial / "about.json") as stream:
            stream.write(json.dumps(about, indent=1).encode())
        for name, length in (("rows", (layout.count + 1) * ROW_BYTES), ("data", layout.end())):
            with _private_file(partial / name) as stream:
                stream.truncate(length)
        with suppress(OSError):
            partial.rename(folder)
    finally:
        unlink_files(partial)


def read_about(folder: Path) -> tuple[dict[str, Any], Layout]:
    """The description of a cache and its layout."""
    try:
        about = json.loads(_read_text(folder / "about.json"))
        if about["format"] != FORMAT:
            raise DamagedStoreError(f"{folder}: format {about['format']!r:.20}, not {FORMAT}")
        if about.pop("digest") != _about_digest(about):
            raise DamagedStoreError(f"{folder}/about.json was changed")
        return about, Layout.from_json(about["layout"])
    except (*_GONE, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # Other errors, such as too many open files, may pass: they are no reason to rebuild everything.
        raise DamagedStoreError(f"{folder}: about.json is damaged ({type(error).__name__}: {error})") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedStoreError(f"{folder}: {error}") from error
        raise


def _read_text(path: Path) -> str:
    # Without O_NONBLOCK a named pipe would block, until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_ABOUT_BYTES:
            raise ValueError(f"about.json must be a file of at most {MAX_ABOUT_BYTES} bytes")
        return os.read(descriptor, MAX_ABOUT_BYTES).decode()
    finally:
        os.close(descriptor)


def _private_file(path: Path) -> IO[bytes]:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _about_digest(about: dict[str, Any]) -> str:
    return digest(json.dumps(about, sort_keys=True))


def partial_folder(folder: Path) -> Path:
    """A hidden folder in which this thread creates or removes a cache; its name says which process to look for."""
    return folder.with_name(f".{folder.name}.{os.getpid()}-{threading.get_ident()}.partial")


def remove_store(folder: Path) -> None:
    """Remove a cache in one step; processes that use it keep what they have mapped."""
    partial = partial_folder(folder)
    folder.rename(partial)
    unlink_files(partial)


def unlink_files(folder: Path) -> None:
    """Remove the files of a cache and its folder, if they exist."""
    for name in ("about.json", "rows", "data"):
        if (folder / name).is_dir() and not (folder / name).is_symlink():
            shutil.rmtree(folder / name)  # Damage of a disk: what cannot be removed would stay for ever.
        else:
            (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
