"""The rows of a large folder, kept between runs: found again while the folder and its annotation are what they were."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ocr.errors import OutputError
from ocr.pipeline.fingerprint import code_digest, digest
from ocr.pipeline.image_listing import hash_of
from ocr.pipeline.page_rows import PageRows, PageRowsWriter
from ocr.pipeline.signature import JUST_NOW_NS, Signature, file_signature
from ocr.row_table import DamagedTableError, open_table

log = logging.getLogger(__name__)
MIN_PAGES = 5000
"""Smaller sets are read again in every run, in about a second, and leave no file behind."""

ALL_FILES = "*"


class PageIndex:
    """The file of one folder, annotation and list of settings; a later one with other content replaces it."""

    def __init__(self, folder: Path, *settings: object) -> None:
        """`settings` are the paths and options that were given."""
        self.path = folder / f"{digest(*map(repr, settings))}.rows"
        self._begun_ns = time.time_ns()

    def load(self) -> PageRows | None:
        """The pages, if everything that they were made of is still the same."""
        try:
            rows = PageRows(open_table(self.path))
            about = rows.table.about
            looked_at, is_ours = about["looked_at"].items(), about["code"] == _code()
        except FileNotFoundError:
            return None
        except (OSError, DamagedTableError, ValueError, KeyError, TypeError) as error:
            log.warning("%s: cannot be used (%s); the annotation is read again", self.path, error)
            return None
        return rows if is_ours and all(state == list(state_of(path) or ()) for path, state in looked_at) else None

    def keep(self, writer: PageRowsWriter, made_of: Iterable[str], about: dict[str, Any]) -> PageRows:
        """The pages in their file; in memory if they are few, or if the file cannot be written.

        `made_of` are the files and folders that were read. If one of them changed just before, or since, its times do
        not prove what was read, and nothing is kept.
        """
        looked_at = {path: state_of(path) for path in made_of} if len(writer) >= MIN_PAGES else {}
        changed = [max(state.mtime_ns, state.ctime_ns) if state else 0 for state in looked_at.values()]
        if not changed or not 0 < min(changed) <= max(changed) < self._begun_ns - JUST_NOW_NS:
            return writer.rows(about)
        try:
            return writer.save(self.path, about | {"code": _code(), "looked_at": looked_at})
        except OutputError as error:
            log.warning("%s; the annotation is read again in every run", error)
            return writer.rows(about)


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
                count, together = count + 1, together + hash_of(f"{entry.name} {known}")
                modified_ns, changed_ns = max(modified_ns, known.mtime_ns), max(changed_ns, known.ctime_ns)
    except OSError:
        return None
    # The order of a folder is not fixed, so that a sum serves as the digest of all.
    return Signature(count, modified_ns, changed_ns, together % 2**63)


def _code() -> str:
    """Digest of the code that makes rows of annotations."""
    return code_digest("ocr.pipeline.source")
