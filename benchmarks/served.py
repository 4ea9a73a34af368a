"""A service to ask, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ocr.errors import DataError


@contextmanager
def served(*arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Port and process of `ocr serve`, which ends with the block."""
    command = [sys.executable, "-m", "ocr.cli", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+) ", process.stdout.readline())
            if found is None:
                raise DataError("ocr serve did not start; its error is above", value=command)
            yield int(found[1]), process
        finally:
            process.terminate()
            process.communicate()  # Its last output too: a closed pipe would be another error.
