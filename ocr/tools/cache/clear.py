"""Choose the caches that are removed to free space, and remove them."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm

from ocr.cache.folder import cache_root, remove_partial_stores
from ocr.cache.lock import remove_stale_locks
from ocr.cache.store_folder import remove_store
from ocr.errors import ConfigError
from ocr.tools.cache.inventory import StoredCache, describe, find_caches
from ocr.tools.cache.report import PLAIN, ago, counted
from ocr.units import format_bytes, parse_bytes

_DAY_SECONDS = 86400


def clear(
    folder: Path | None,
    names: Sequence[str],
    max_bytes: str | None,
    older_than_days: float | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove caches, and what killed processes left; exit status 1 if the user declines."""
    root, console = cache_root(folder), Console()
    limit = parse_bytes(max_bytes, "--max-bytes") if max_bytes is not None else None
    caches = describe(root)
    chosen = choose(caches, find_caches(root, names), limit, older_than_days)
    everything = not names and limit is None and older_than_days is None
    lists = sorted((root / "pages").glob("*.rows")) if everything else []
    if dry_run:
        for cache in chosen:
            console.print(f"would remove {_line(cache)}", **PLAIN)
        if lists:
            console.print(f"would remove {_of_lists(lists)}", **PLAIN)
        console.print(f"would free {_sum(chosen)}" if chosen else "nothing to remove", **PLAIN)
        return 0
    if chosen and not yes and not _agreed(chosen, console):
        console.print("nothing removed", **PLAIN)
        return 1
    removed = list(_remove(chosen, console))
    if lists:
        console.print(f"removed {_of_lists(lists)}", **PLAIN)
        for path in lists:
            path.unlink(missing_ok=True)
    remains = remove_partial_stores(root)
    remove_stale_locks(root)
    freed = [_sum(removed)] * bool(removed) + [f"{format_bytes(remains)} that killed processes left"] * bool(remains)
    left = _sum([cache for cache in caches if cache not in removed])
    done = f"freed {' and '.join(freed)}" if freed else "nothing to remove"
    console.print(f"{done}; {left} stay in {escape(str(root))}", **PLAIN)
    return 0


def choose(
    caches: Sequence[StoredCache], folders: Collection[Path], max_bytes: int | None, older_than_days: float | None
) -> list[StoredCache]:
    """All caches in these folders or, if there are limits, those beyond them: caches unused for longer, and
    the least recently used until all that stays fits."""
    candidates = sorted((cache for cache in caches if cache.folder in folders), key=lambda cache: cache.last_used)
    if max_bytes is None and older_than_days is None:
        return candidates
    now, chosen = time.time(), []
    stays = sum(cache.disk_bytes for cache in caches)
    for cache in candidates:
        is_old = older_than_days is not None and now - cache.last_used > older_than_days * _DAY_SECONDS
        if is_old or (max_bytes is not None and stays > max_bytes):
            chosen.append(cache)
            stays -= cache.disk_bytes
    return chosen


def _agreed(chosen: Sequence[StoredCache], console: Console) -> bool:
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{_sum(chosen)} would be removed, and there is no terminal to ask on. Add --yes, or --dry-run",
            setting="--yes",
        )
    for cache in chosen:
        console.print(_line(cache), **PLAIN)
    return Confirm.ask(f"Remove {_sum(chosen)}?", console=console, default=False)


def _remove(caches: Sequence[StoredCache], console: Console) -> list[StoredCache]:
    removed = []
    for cache in caches:
        with suppress(FileNotFoundError):  # Another process removed it first.
            remove_store(cache.folder)
            removed.append(cache)
            console.print(f"removed {_line(cache)}", **PLAIN)
    return removed


def _of_lists(lists: Sequence[Path]) -> str:
    """The rows of large sets, which are made again when they are opened."""
    size = format_bytes(sum(path.stat().st_size for path in lists))
    return f"{len(lists)} list{'s' * (len(lists) != 1)} of pages, {size}"


def _line(cache: StoredCache) -> str:
    where = cache.dataset or str(cache.folder)
    return f"{cache.name}, {format_bytes(cache.disk_bytes)}, used {ago(cache.last_used)}: {escape(where)}"


def _sum(caches: Sequence[StoredCache]) -> str:
    return f"{counted(len(caches))}, {format_bytes(sum(cache.disk_bytes for cache in caches))}"
