"""Tasks for labelling tools: pages to correct, with the reason why a person should look at them."""

from __future__ import annotations

from pathlib import Path

from ocr.errors import ConfigError
from ocr.formats.registry import FORMATS
from ocr.formats.write import WRITTEN, check_written

WITH_NOTES = tuple(name for name in WRITTEN if "note" not in FORMATS[name].lacks)
"""The formats that can hold a reason."""


def check_tasks(format: str, out: Path | None) -> Path:
    """Refuse a format without a place for reasons, and one without a target."""
    check_written(format)
    if format not in WITH_NOTES:
        raise ConfigError(
            f"--tasks {format}: it has no field for a reason. Choose one of {', '.join(WITH_NOTES)}",
            setting="--tasks",
            value=format,
        )
    if out is None:
        raise ConfigError(
            f"--tasks {format} needs --out: the file to write, or the folder for labelme", setting="--out"
        )
    if out.exists():
        raise ConfigError(f"--out {out} exists: give another name, or remove it", setting="--out", value=out, path=out)
    return out
