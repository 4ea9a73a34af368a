"""Reports about caches, for the terminal and as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ocr.cache.folder import cache_root
from ocr.tools.cache.inventory import StoredCache, describe
from ocr.units import format_bytes

PLAIN: Any = {"highlight": False, "soft_wrap": True}
REPAIR = "Run: ocr cache verify --repair"
_SPANS = (("day", 86400), ("h", 3600), ("min", 60))


def print_list(folder: Path | None) -> None:
    """One row per cache, and the total."""
    root, console = cache_root(folder), Console()
    caches = describe(root)
    if not caches:
        hint = "the first epoch of `ocr train` fills them, or `ocr cache build` ahead of it"
        console.print(f"No caches in {escape(str(root))}: {hint}.", **PLAIN)
        return
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    table.add_column("cache", no_wrap=True)
    table.add_column("dataset, and what is stored", overflow="fold")
    table.add_column("pages", justify="right", no_wrap=True)
    table.add_column("on disk", justify="right", no_wrap=True)
    table.add_column("used, made", no_wrap=True)
    for cache in caches:
        table.add_row(
            cache.name,
            escape("\n".join(_what(cache))),
            f"{cache.ready}/{cache.pages}\n{share(cache.ready, cache.pages)}",
            format_bytes(cache.disk_bytes),
            f"{ago(cache.last_used)}\n{ago(cache.created)}",
            end_section=cache is caches[-1],
        )
    total = sum(cache.disk_bytes for cache in caches)
    table.add_row("total", escape(f"{counted(len(caches))} in {root}"), "", format_bytes(total), "")
    console.print(table, highlight=False)


def _what(cache: StoredCache) -> list[str]:
    if cache.damage:
        return [f"damaged: {cache.damage}. {REPAIR}"]
    of_pages = cache.unit == "page"
    gone = " (gone)" if of_pages and not Path(cache.dataset).is_dir() else ""
    stored = f"{cache.keeps}, {cache.width} x {cache.height}" if of_pages else ""
    why = "in use" if cache.in_use else "of older code: removed first" if cache.superseded else ""
    lines = [f"{cache.dataset}{gone}", "; ".join(filter(None, (stored, why))), cache.form_reason]
    return [line for line in lines if line]


def print_stats(folder: Path | None, names: Sequence[str], as_json: bool) -> None:
    """Hit rates over all runs, and the stages that made the pages."""
    console, caches = Console(), describe(cache_root(folder), names)
    if as_json:
        print(_to_json(caches))
        return
    if not caches:
        print_list(folder)
    for cache in caches:
        console.print(f"[bold]{cache.name}[/]  {escape(cache.dataset or str(cache.folder))}", **PLAIN)
        if cache.damage:
            console.print(f"  damaged: {escape(cache.damage)}. {REPAIR}", **PLAIN)
            continue
        rate = "no page requested yet" if cache.hit_rate is None else f"hit rate {100 * cache.hit_rate:.1f} %"
        console.print(f"  {rate}: {', '.join(f'{count} {name}' for name, count in cache.events.items())}", **PLAIN)
        pages = f"{cache.ready} of {cache.pages} {cache.unit}s ({share(cache.ready, cache.pages)})"
        kept = f"{cache.keeps}, {cache.width} x {cache.height}, " if cache.unit == "page" else ""
        console.print(f"  {pages}: {kept}{format_bytes(cache.disk_bytes)}", **PLAIN)
        if cache.form_reason:
            console.print(f"  {escape(cache.form_reason)}", **PLAIN)
        for number, stage in enumerate(cache.stages.split(" -> ")):
            console.print(f"  {'-> ' if number else ''}{escape(stage)}", **PLAIN)


def _to_json(caches: Sequence[StoredCache]) -> str:
    """All details as JSON."""
    known = []
    for cache in caches:
        fields = asdict(cache)
        known.append(fields | fields.pop("events") | {"hit_rate": cache.hit_rate, "folder": str(cache.folder)})
    return json.dumps(known, indent=2)


def counted(count: int) -> str:
    """So many caches."""
    return f"{count} cache" if count == 1 else f"{count} caches"


def share(part: int, whole: int) -> str:
    """Per cent, and never 100 if something is missing."""
    return f"{100 * part // whole} %" if whole else "-"


def ago(then: float, now: float | None = None) -> str:
    """How long ago, in words; a time in the future is "just now".

    >>> ago(1000, now=1000 + 3 * 3600), ago(2000, now=1000)
    ('3 h ago', 'just now')
    """
    if then <= 0:
        return "unknown"
    passed = (time.time() if now is None else now) - then
    for unit, seconds in _SPANS:
        count = int(passed // seconds)
        if count >= 1:
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''} ago"
    return "just now"
