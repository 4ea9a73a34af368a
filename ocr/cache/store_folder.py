"""The folder of one cache: described by about.json, created and removed as a whole."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ocr.cache.row_format import FORMAT, ROW_BYTES, Layout
from ocr.pipeline.fingerprint import digest


class DamagedStoreError(Exception):
    """The files of a cache are not what they should be; it can only be rebuilt."""


def create_store(folder: Path, layout: Layout, about: dict[str, Any]) -> None:
    """Make the files in a hidden folder and rename it; if another process was faster, its files stay."""
    partial = partial_folder(folder)
    partial.mkdir(parents=True)
    try:
        about = {"format": FORMAT, "layout": asdict(layout)} | about
        about["digest"] = _about_digest(about)
        (partial / "about.json").write_text(json.dumps(about, indent=1), encoding="utf-8")
        for name, length in (("rows", (layout.count + 1) * ROW_BYTES), ("data", layout.end())):
            with (partial / name).open("wb") as stream:
                stream.truncate(length)
        with suppress(OSError):
            partial.rename(folder)
    finally:
        unlink_files(partial)


def read_about(folder: Path) -> tuple[dict[str, Any], Layout]:
    """The description of a cache and its layout."""
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise DamagedStoreError(f"{folder}: format {about['format']}, not {FORMAT}")
        if about.pop("digest") != _about_digest(about):
            raise DamagedStoreError(f"{folder}/about.json was changed")
        return about, Layout(**about["layout"])
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, KeyError, TypeError) as error:
        # Other errors, such as too many open files, may pass: they are no reason to rebuild everything.
        raise DamagedStoreError(f"{folder}: {error}") from error


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
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
