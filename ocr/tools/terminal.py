"""The terminal as all tools use it: one progress bar, and names of files that are not Unicode."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def progress_bar(show: bool, *, transient: bool = False) -> Progress:
    """A bar per task, with a count and the time that is left, on the screen of the errors."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=transient, disable=not show)


def printable(text: str) -> str:
    """Bytes of a file name that are not Unicode, written as escapes; they can be neither printed nor encoded."""
    return text.encode("utf-8", "backslashreplace").decode()


def markup(text: str) -> str:
    """A text that is printed as it is, though it can hold brackets and bytes that are not Unicode."""
    return escape(printable(text))
