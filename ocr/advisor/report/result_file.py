"""Results of profile, bench and advise as JSON for `ocr report`: one head for all, then their own figures."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ocr import __version__
from ocr.atomic import replacing
from ocr.errors import DataError

KINDS = ("profile", "bench", "advice")


def result(
    kind: str, command: str, machine: Mapping[str, Any], data: Mapping[str, Any], **figures: Any
) -> dict[str, Any]:
    """One result; `data` says which pages were read (`place`, `split`, `pages`)."""
    assert kind in KINDS
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    head = {"glyphfeed": __version__, "kind": kind, "made": made, "command": command}
    return head | {"machine": dict(machine), "data": dict(data)} | figures


def write_result(found: Mapping[str, Any], path: Path) -> None:
    """Write a result, completely or not at all."""
    with replacing(path) as stream:
        stream.write((json.dumps(found, indent=1, allow_nan=False) + "\n").encode())


def read_result(path: Path) -> dict[str, Any]:
    """Read a result; DataError if the file does not contain one."""
    try:
        found = json.loads(path.read_bytes())
        if found["kind"] not in KINDS or not isinstance(found["machine"], dict):
            raise ValueError(f"kind {found['kind']!r}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} is not a result of ocr profile, bench or advise ({error}). Write one: ocr advise --json {path}. "
            "Of a training, name its folder",
            path=path,
        ) from error
    document: dict[str, Any] = found
    return document
