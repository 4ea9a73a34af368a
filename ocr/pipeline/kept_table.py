"""The rows of a large set, kept between runs: found again while the files that they were made of are what they were."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import xxhash

from ocr.errors import OutputError
from ocr.pipeline.fingerprint import code_digest, digest
from ocr.pipeline.signature import JUST_NOW_NS, Signature, file_signature
from ocr.row_table import DamagedTableError, RowTable, open_table

log = logging.getLogger(__name__)
MIN_ROWS = 5000
"""Smaller sets are read again in every run, in about a second, and leave no file behind."""

ALL_FILES = "*"
StateOf = Callable[[str], Signature | None]


class Writer(Protocol):
    """Collects rows."""

    def __len__(self) -> int: ...

    def table(self, about: dict[str, Any]) -> RowTable:
        """The rows, without a file that lasts."""

    def save(self, path: Path, about: dict[str, Any]) -> RowTable:
        """The rows in a file that other processes map too."""


class KeptTable:
    """The file of one set, by its paths and settings; a later one with other content replaces it."""

    def __init__(self, folder: Path, maker: str, *settings: object) -> None:
        """`maker` is the module whose code makes the rows; `settings` are the paths and options that were given."""
        self.path = folder / f"{digest(maker, *map(repr, settings))}.rows"
        self._maker = maker
        self._begun_ns = time.time_ns()

    def load(self, state_of: StateOf) -> RowTable | None:
        """The rows, if everything that they were made of is still the same."""
        try:
            table = open_table(self.path)
            looked_at, is_ours = table.about["looked_at"].items(), table.about["code"] == code_digest(self._maker)
        except (FileNotFoundError, PermissionError):
            return None  # Of a set this large, `keep` warns if nothing can be written either.
        except (OSError, DamagedTableError, ValueError, KeyError, TypeError, SyntaxError) as error:
            log.warning("%s: cannot be used (%s); it is rewritten", self.path, error)
            return None
        return table if is_ours and all(state == list(state_of(path) or ()) for path, state in looked_at) else None

    def keep(self, writer: Writer, looked_at: dict[str, Signature | None], about: dict[str, Any]) -> RowTable:
        """The rows in their file; in memory if they are few, or if the file cannot be written.

        `looked_at` are the files and folders that were read, as they are now. If one of them changed just before, or
        since, its times do not prove what was read, and nothing is kept.
        """
        changed = [max(state.mtime_ns, state.ctime_ns) if state else 0 for state in looked_at.values()]
        is_proven = bool(changed) and 0 < min(changed) <= max(changed) < self._begun_ns - JUST_NOW_NS
        if len(writer) < MIN_ROWS or not is_proven:
            return writer.table(about)
        try:
            return writer.save(self.path, about | {"code": code_digest(self._maker), "looked_at": looked_at})
        except OutputError as error:
            log.warning("%s; the pages are listed again in every run", error)
            return writer.table(about)


def state_of(path: str) -> Signature | None:
    """The signature of a file or folder; of PATH/* that of all its files together; None if there is no such file."""
    folder, name = os.path.split(path)
    if name != ALL_FILES:
        return file_signature(path)
    count = modified_ns = changed_ns = together = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                known = Signature.of(entry.stat())
                count, together = count + 1, together + xxhash.xxh3_64_intdigest(known.packed + os.fsencode(entry.name))
                modified_ns, changed_ns = max(modified_ns, known.mtime_ns), max(changed_ns, known.ctime_ns)
    except OSError:
        return None
    # The order of a folder is not fixed, so that a sum serves as the digest of all.
    return Signature(count, modified_ns, changed_ns, together % 2**63)
