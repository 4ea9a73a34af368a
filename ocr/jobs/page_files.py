"""What PAGES name on the command line."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ocr.deploy.inputs import PageSource, files_below, numbered
from ocr.errors import ConfigError

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class PageFiles:
    """The files that a folder, a pattern, a list of both, or standard input names; iterates over their paths."""

    folder: str | None
    """Of a single folder, pages are named from there; else as they are given."""
    files: list[str] | None
    """None: they come on standard input."""

    @classmethod
    def of(cls, pages: Sequence[str]) -> PageFiles:
        """Raises ConfigError if PAGES name nothing."""
        if STANDARD_INPUT in pages and len(pages) > 1:
            raise ConfigError(
                f"PAGES {' '.join(pages)}: - (names on standard input) cannot be combined with others. Pass it alone",
                setting="PAGES",
                value=list(pages),
            )
        if list(pages) == [STANDARD_INPUT]:
            return cls(None, None)
        folder = pages[0] if len(pages) == 1 and os.path.isdir(pages[0]) else None
        return cls(folder, [file for path in pages for file in files_below(path)])

    def __iter__(self) -> Iterator[str]:
        yield from _files_on_stdin() if self.files is None else self.files

    def name(self, page: PageSource) -> str:
        """In the outputs; a page of a PDF as browsers name it."""
        return numbered(self.file_name(page.name), page.number)

    def file_name(self, path: str) -> str:
        """Of a file in the outputs."""
        return path if self.folder is None else os.path.relpath(path, self.folder).replace(os.sep, "/")


def page_progress(what: str, console: Console) -> Progress:
    """A bar that counts pages, gone when it is done."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)


def _files_on_stdin() -> Iterator[str]:
    """One name per line, as they come; `find` and `ls` write such lists, `find -print0` with NUL between them."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # Names of files are bytes, and not always UTF-8.
    found = False
    for line in sys.stdin:
        for name in filter(None, line.rstrip("\r\n").split("\0")):
            found = True
            yield from files_below(name)
    if not found:
        raise ConfigError(
            "- : standard input named no file. Write one name per line: ls FOLDER/*.jpg | glyphfeed predict MODEL -",
            setting="PAGES",
            value=STANDARD_INPUT,
        )
