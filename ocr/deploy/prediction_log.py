"""Prediction log: what was found, a line per page as soon as it is known, so that a run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from filelock import FileLock, Timeout

from ocr.deploy.inputs import PAGE_MARK
from ocr.errors import ConfigError, OutputError

NAME = "predictions.jsonl"
Stamp = list[int] | None
"""Size and time of change of a page's file; None: it is not a file."""


class PredictionLog:
    """The pages in a folder of predictions: a line that says how they were found, then one line each.

    A run that was killed leaves whole lines, and perhaps part of one, which is cut off. The last line of a page counts.
    """

    def __init__(self, folder: Path, found_with: Mapping[str, Any], overwrite: bool = False) -> None:
        """Open or begin the log; `found_with` are plain JSON values, all that the predictions depend on.

        Raises ConfigError if the log is of other ones, unless it is to be overwritten.
        """
        self.path = folder / NAME
        self._lock_file = FileLock(folder / f".{NAME}.lock")
        self._places: dict[str, int] = {}
        self._stamps: dict[str, Stamp] = {}
        self._in_pdf: dict[str, list[str]] = {}
        self._outdated: set[str] = set()
        self.added = 0
        """Pages that were not there before, or outdated."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = self.path.open("a+b")
        except OSError as error:
            raise OutputError(
                f"cannot write {self.path} ({error.strerror}). Choose another folder: out=DIR, or check permissions",
                setting="out",
                path=self.path,
            ) from error
        try:
            self._lock()
            if overwrite or not self._read(found_with):
                self._file.truncate(0)
                self._places.clear()
                self._stamps.clear()
                self._in_pdf.clear()
                self._append(dict(found_with))
        except BaseException:
            self._close()
            raise

    def __len__(self) -> int:
        return len(self._places) - len(self._outdated)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def has(self, name: str, stamp: Stamp) -> bool:
        """Whether a page is there, and its file is still the same."""
        return name in self._places and self._stamps[name] == stamp

    def leave_out_outdated(self, file: str, stamp: Stamp) -> None:
        """Leave out the pages of a file that has changed, until they are added again: a PDF may have fewer now."""
        for name in (file, *self._in_pdf.get(file, ())):
            if name in self._places and self._stamps[name] != stamp:
                self._outdated.add(name)

    def add(self, name: str, stamp: Stamp, page: Mapping[str, Any]) -> None:
        """Write down one page at once; `page` is that of the native annotation format, with scores."""
        self.added += name not in self._places or name in self._outdated
        self._outdated.discard(name)
        self._places[name] = self._append({"name": name, "stamp": stamp, **page})
        self._stamps[name] = stamp

    def pages(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Name and page, in the order in which names came first, read from the file one by one."""
        for name, place in self._places.items():
            if name in self._outdated:
                continue
            self._file.seek(place)
            page = json.loads(self._file.readline())
            yield name, {key: value for key, value in page.items() if key not in ("name", "stamp")}

    def _lock(self) -> None:
        try:
            self._lock_file.acquire(blocking=False)
        except Timeout as error:
            raise ConfigError(
                f"another run writes into {self.path.parent} now. Wait for it, or choose another folder: out=DIR",
                setting="out",
                path=self.path.parent,
            ) from error

    def _close(self) -> None:
        self._file.close()
        if self._lock_file.is_locked:
            self._lock_file.release()
            Path(self._lock_file.lock_file).unlink(missing_ok=True)

    def _append(self, entry: dict[str, Any]) -> int:
        """Where the line begins."""
        place = self._file.seek(0, 2)
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        return place

    def _read(self, found_with: Mapping[str, Any]) -> bool:
        """Read what is there; False if there is nothing, not even a whole first line."""
        self._file.seek(0)
        first = self._file.readline()
        if not first.endswith(b"\n"):
            return False
        self._check(self._parsed(first), found_with)
        while True:
            place = self._file.tell()
            line = self._file.readline()
            if not line.endswith(b"\n"):
                # The end, or the part of a line that a killed run left.
                self._file.truncate(place)
                return True
            entry = self._parsed(line, "name", "stamp")
            name = entry["name"]
            if name not in self._places and PAGE_MARK in name:
                self._in_pdf.setdefault(name.rpartition(PAGE_MARK)[0], []).append(name)
            self._places[name], self._stamps[name] = place, entry["stamp"]

    def _parsed(self, line: bytes, *fields: str) -> dict[str, Any]:
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError("not an object")
            if missing := [field for field in fields if field not in entry]:
                raise ValueError(f"a page without its {missing[0]}")
            if not isinstance(entry.get("name", ""), str):
                raise ValueError(f"a page whose name is {entry['name']!r:.40}")
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"{self.path} is damaged ({error}). Begin again with overwrite=true, or choose another folder: out=DIR",
                setting="out",
                path=self.path,
            ) from error
        return entry

    def _check(self, written: Mapping[str, Any], found_with: Mapping[str, Any]) -> None:
        other = [key for key in found_with if written.get(key) != found_with[key]]
        if other:
            told = "; ".join(f"{key}: {_shown(written.get(key))}, now {_shown(found_with[key])}" for key in other)
            raise ConfigError(
                f"{self.path.parent} holds predictions that were found with another {' and '.join(other)} ({told}). "
                "Choose another folder: out=DIR, or replace them: overwrite=true",
                setting="out",
                value=other,
                path=self.path.parent,
            )


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
