"""How every command ends: a known error is one line and exit status 2, an interrupt is exit status 130."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ocr.errors import GlyphFeedError

KNOWN_ERROR = 2
INTERRUPTED = 130


@contextmanager
def one_line_errors(when_interrupted: str = "interrupted") -> Iterator[None]:
    """Exit with one line on stderr instead of a traceback; an error that is a bug keeps its traceback."""
    try:
        yield
    except (GlyphFeedError, OSError) as error:
        _print("error:", 31, str(error))
        sys.exit(KNOWN_ERROR)
    except KeyboardInterrupt:
        _print(when_interrupted, 33)
        sys.exit(INTERRUPTED)


def _print(word: str, colour: int, text: str = "") -> None:
    shown = f"\x1b[{colour}m{word}\x1b[0m" if sys.stderr.isatty() else word
    print(shown, text, file=sys.stderr) if text else print(shown, file=sys.stderr)
