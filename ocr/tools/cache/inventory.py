"""The caches in a folder: their names, and what is known about each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ocr.cache.eviction import is_open, superseded
from ocr.cache.folder import disk_bytes, last_used, list_stores
from ocr.cache.store import Store
from ocr.cache.store_folder import DamagedStoreError
from ocr.errors import ConfigError

_YEAR_9999 = 253402300800.0


@dataclass(frozen=True, slots=True)
class StoredCache:
    """One cache on disk."""

    name: str
    """Short, and enough to distinguish it from the others."""
    folder: Path
    disk_bytes: int
    last_used: float
    """In seconds since 1970, like `created`; 0 if unknown."""
    dataset: str = ""
    keeps: str = ""
    form_reason: str = ""
    """Why pages are kept raw or dense."""
    stages: str = ""
    created: float = 0.0
    height: int = 0
    width: int = 0
    unit: str = "page"
    """What is kept: pages of a folder or shards, or items of any dataset."""
    pages: int = 0
    ready: int = 0
    events: dict[str, int] = field(default_factory=dict)
    """Hits, misses and invalid samples of all runs."""
    damage: str = ""
    """Why the cache cannot be used; empty if it can."""
    in_use: bool = False
    """A process has it open, so it is not removed to make room."""
    superseded: bool = False
    """A newer cache of the same dataset and stages exists: this one is removed first to make room."""

    @property
    def hit_rate(self) -> float | None:
        """Share of the requested pages that were in the cache; None if none was requested."""
        asked = sum(self.events.values())
        return self.events["hits"] / asked if asked else None


def find_caches(root: Path, names: Sequence[str] = ()) -> dict[Path, str]:
    """Folder and short name of the caches with these names (default: all), the one used last first.

    A name is that of the folder; each part may be shortened: 3f2a-91 is 3f2a9c41d07e55b1-91c4aa02-0.
    """
    folders = list_stores(root)
    short = {folder: _short_name(folder, folders) for folder in folders}
    wanted = set()
    for name in names:
        matching = [folder for folder in folders if _is_called(folder, name)]
        if not matching:
            raise ConfigError(
                f"{name!r} is not a cache in {root}. List their names: ocr cache ls", value=name, path=root
            )
        if len(matching) > 1:
            candidates = ", ".join(short[folder] for folder in matching)
            raise ConfigError(f"{name!r} could be any of {candidates}: type more of the name", value=name, path=root)
        wanted |= set(matching)
    return {folder: name for folder, name in short.items() if not names or folder in wanted}


def describe(root: Path, names: Sequence[str] = ()) -> list[StoredCache]:
    """What is known about these caches (default: all)."""
    old = superseded(list_stores(root))
    return [
        replace(_describe(folder, name), in_use=in_use, superseded=folder in old)
        for folder, name in find_caches(root, names).items()
        # Before it is opened here.
        for in_use in [_is_open(folder)]
    ]


def _is_open(folder: Path) -> bool:
    with suppress(OSError):  # A cache of another user.
        return is_open(folder)
    return False


def _describe(folder: Path, name: str) -> StoredCache:
    size, used = disk_bytes(folder), last_used(folder)
    try:
        store = Store(folder)
    except (DamagedStoreError, OSError) as error:
        return StoredCache(name, folder, size, used, damage=str(error).removeprefix(f"{folder}: "))
    about, layout = store.about, store.layout
    return StoredCache(
        name,
        folder,
        size,
        used,
        dataset=str(about.get("dataset")),
        keeps=str(about.get("keeps")),
        form_reason=str(about.get("form_reason", "")),
        stages=str(about.get("stages")),
        created=_seconds(about.get("created")),
        height=layout.height,
        width=layout.width,
        unit=str(about.get("unit", "page")),
        pages=layout.count,
        ready=len(store.ready()),
        events=store.count(),
    )


def _seconds(value: object) -> float:
    """A time from about.json; 0 if it is none."""
    return float(value) if isinstance(value, int | float) and 0 <= value < _YEAR_9999 else 0.0


def _short_name(folder: Path, folders: Sequence[Path]) -> str:
    """As much of a folder's name as distinguishes it from the others.

    Datasets with the same stages share the first part, other stages of the same dataset the second.
    """
    stages, pages, number = folder.name.split("-")
    for name in (f"{stages[:4]}-{pages[:4]}", f"{stages[:4]}-{pages[:4]}-{number}"):
        if sum(_is_called(other, name) for other in folders) == 1:
            return name
    return folder.name


def _is_called(folder: Path, name: str) -> bool:
    parts, given = folder.name.split("-"), name.split("-")
    if not name or given[2:] not in ([], parts[2:]):
        return False
    return all(part.startswith(start) for part, start in zip(parts, given, strict=False))
