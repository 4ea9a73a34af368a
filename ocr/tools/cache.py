"""`glyphfeed cache`: list what is kept, fill it ahead of a training, remove it.

Every library that takes time to load is imported in the command that needs it.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.prompt import Confirm
from rich.table import Table

from ocr.atomic import replacing
from ocr.errors import ConfigError, OutputError
from ocr.jobs.config_folders import ConfigDir
from ocr.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from ocr.cache.store import Store

PLAIN: Any = {"highlight": False, "soft_wrap": True}
NAME_LENGTH = 6
"""Of the 16 characters of a name: enough to tell a hundred groups apart."""
MAX_DAY = 2_900_000
"""Since 1970; a date cannot show later ones."""
app = typer.Typer(
    help="Pages that are kept between runs: list, fill and remove them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_Folder = Annotated[
    Path | None, typer.Option(help="Folder of the cache; default: $GLYPHFEED_CACHE, or the user's cache folder.")
]


class Value(NamedTuple):
    """What is kept of one page or item."""

    day: int
    """Of its last use, since 1970."""
    size: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Group:
    """Everything that the same stages made."""

    full_name: str
    unit: str
    stages: str
    data: list[str]
    """Where the pages are from."""
    values: list[Value]

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(value.size for value in self.values)

    @property
    def row(self) -> dict[str, str]:
        """As the list shows it."""
        more = f" and {len(self.data) - 1} more" * (len(self.data) > 1)
        last = date(1970, 1, 1) + timedelta(max(value.day for value in self.values))
        return {
            "name": self.full_name[:NAME_LENGTH],
            "of": f"{''.join(self.data[:1])}{more}",
            "kept": f"{len(self.values)} {self.unit}{'s' * (len(self.values) != 1)}",
            "size": format_bytes(self.size),
            "used": last.isoformat(),
        }


@app.command(epilog="Examples: glyphfeed cache ls   |   glyphfeed cache ls --folder /fast/disk --json caches.json")
def ls(
    folder: _Folder = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the list as JSON, with the stages (- for the screen).")
    ] = None,
) -> None:
    """List what is kept, one row for what the same stages made: of which pages, how many, how large, used when."""
    from ocr.cache.store import cache_root

    root, console = cache_root(folder), Console(stderr=str(json_file) == "-")
    store = _open(root)
    groups = _groups(store) if store is not None else []
    limit, setting = store.limit if store is not None else (0, "")
    if json_file is not None:
        listed = [
            {"name": group.full_name, "unit": group.unit, "count": len(group.values), "bytes": group.size}
            | {"used": group.row["used"], "data": group.data, "stages": group.stages.split(" -> ")}
            for group in groups
        ]
        of_file = {"file_bytes": store.file_bytes() if store is not None else 0, "limit_bytes": limit}
        text = json.dumps({"folder": str(root), **of_file, "setting": setting, "caches": listed}, indent=2)
        if str(json_file) == "-":
            typer.echo(text)
        else:
            with replacing(json_file) as stream:
                stream.write(text.encode())
    if not groups:
        hint = "the first epoch of `glyphfeed train` fills it, or `glyphfeed cache build` ahead of it"
        console.print(f"nothing is kept in {escape(str(root))}: {hint}", **PLAIN)
        return
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for title in groups[0].row:
        justify: Any = "right" if title in ("kept", "size") else "left"
        table.add_column(title, justify=justify, overflow="fold", no_wrap=title != "of")
    for group in groups:
        table.add_row(*map(escape, group.row.values()), end_section=group is groups[-1])
    table.add_row("total", escape(str(root)), "", format_bytes(sum(group.size for group in groups)), "")
    console.print(table, highlight=False)
    console.print(f"limit {format_bytes(limit)} ({setting})" if limit else setting, **PLAIN)


@app.command(epilog="Examples: glyphfeed cache build DATA   |   glyphfeed cache build DATA --set transforms.size=960")
def build(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Dataset: images/<split>/ and jsons/<split>.json.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of glyphfeed train; repeatable.")
    ] = None,
    split: Annotated[list[str] | None, typer.Option(help="Only this split; repeatable.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; default: one per core.")] = None,
    folder: _Folder = None,
    config_dir: ConfigDir = None,
) -> None:
    """Fill the cache with the pages that `glyphfeed train` reads with the same settings.

    After an interruption the same command continues with the rest. Every machine has a cache of its own.
    """
    from ocr.geometry.kernels.warm_up import warm_up
    from ocr.jobs.compose import compose_training
    from ocr.jobs.run import quoted_override

    config = compose_training([quoted_override("dataset_base_path", str(data)), *(settings or ())])
    console = Console()
    if folder is not None:
        config.cache.folder = str(folder)
    warm_up()
    try:
        for name in split or ("train", "val"):
            if config.datasets and config.datasets.get(f"{name}_dataset", "") is None:
                console.print(f"{escape(name)}: left out, datasets.{escape(name)}_dataset is null", **PLAIN)
            else:
                _build(config, name, workers, console)
    except KeyboardInterrupt:
        console.print("interrupted: finished pages are kept; the same command continues with the rest", **PLAIN)
        raise typer.Exit(130) from None


def _build(config: Any, split: str, workers: int | None, console: Console) -> None:
    from ocr.datasets.build import build_dataset

    dataset, begin = build_dataset(config, split), time.perf_counter()
    if dataset.source.is_ready:
        console.print(f"{escape(split)}: left out, its shards are ready", **PLAIN)
        return
    if dataset.cache is None:
        setting = config.data.cache or "off"
        problem = f"data.cache={setting} keeps nothing of {split}. Set data.cache=auto"
        raise ConfigError(problem, setting="data.cache", value=setting)
    try:
        found = dataset.fill_cache(f"caching {split}", workers)
    finally:
        dataset.flush()
    seconds, store = time.perf_counter() - begin, dataset.cache.store
    counts = [f"{found[name]} {word}" for name, word in (("hit", "hits"), ("miss", "misses"))]
    counts += [f"{found[name]} {name}" for name in ("invalid", "skipped") if found[name]]
    speed = f"{len(dataset)} pages in {seconds:.1f} s ({len(dataset) / seconds:.0f} pages/s)"
    console.print(f"{escape(split)}: {speed}, {', '.join(counts)}", **PLAIN)
    state = f"not all of it is kept, {store.stopped}" if store.stopped else format_bytes(store.used_bytes())
    console.print(f"  {escape(str(dataset.cache.root))}: {state}", **PLAIN)


@app.command(epilog="Examples: glyphfeed cache clear --max-bytes 20GB   |   glyphfeed cache clear 3f2a91 --yes")
def clear(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names as `glyphfeed cache ls` shows them; default: all.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Remove the least recently used until the rest fits, such as 20GB.")
    ] = None,
    older_than: Annotated[
        float | None, typer.Option(min=0, metavar="DAYS", help="Remove what was unused for more days.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    folder: _Folder = None,
) -> None:
    """Remove what is kept: all, what has these names, or as much as the limits require.

    Processes that use the cache continue. As long as there are any the file keeps its size, and new pages use the room.
    """
    from ocr.cache.store import cache_root

    root, console = cache_root(folder), Console()
    limit = parse_bytes(max_bytes, "--max-bytes") if max_bytes is not None else None
    everything = not names and limit is None and older_than is None
    store = _open(root)
    chosen = choose(_groups(store) if store is not None else [], names or (), limit, older_than, root)
    # Lists of the pages of large sets, and what is left of a damaged store, or of a command that was killed.
    files = sorted([*root.glob("pages/*.rows"), *root.glob("store.*")]) if everything else []
    lines = [", ".join(group.row.values()) for group in chosen]
    lines += [f"{path.relative_to(root)}, {format_bytes(_size(path))}" for path in files]
    size = format_bytes(sum(group.size for group in chosen) + sum(map(_size, files)))
    for line in lines or ["nothing to remove"]:
        console.print(escape(line), **PLAIN)
    if dry_run and lines:
        console.print(f"would remove {size}", **PLAIN)
    if dry_run or not lines:
        return
    if not yes and not sys.stdin.isatty():
        problem = f"{size} would be removed without a terminal to confirm on. Add --yes, or --dry-run"
        raise ConfigError(problem, setting="--yes")
    if not yes and not Confirm.ask(f"Remove {size}?", console=console, default=False):
        console.print("nothing removed", **PLAIN)
        raise typer.Exit(1)
    note = _remove(store, chosen, everything) if store is not None else ""
    for path in files:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    console.print(f"removed {size}{note}", **PLAIN)


def choose(
    groups: Sequence[Group], names: Sequence[str], max_bytes: int | None, older_than: float | None, root: Path
) -> list[Group]:
    """All of these groups or, with limits, only what is beyond them: unused for more days, or for longest."""
    named = [_find(groups, name, root) for name in names] or list(groups)
    if max_bytes is None and older_than is None:
        return named
    excess = 0 if max_bytes is None else sum(group.size for group in groups) - max_bytes
    today, beyond = int(time.time() // 86400), set[bytes]()
    for value in sorted(value for group in named for value in group.values):
        if excess > 0 or (older_than is not None and today - value.day > older_than):
            beyond.add(value.key)
            excess -= value.size
    found = [replace(group, values=[value for value in group.values if value.key in beyond]) for group in named]
    return [group for group in found if group.values]


def _find(groups: Sequence[Group], name: str, root: Path) -> Group:
    found = [group for group in groups if name and group.full_name.startswith(name)]
    if not found:
        problem = f"{name!r} is not in {root}. List the names: glyphfeed cache ls"
        raise ConfigError(problem, setting="NAME", value=name, path=root)
    if len(found) > 1:
        could_be = ", ".join(group.full_name for group in found)
        problem = f"{name!r} can be any of {could_be}. Type more of the name"
        raise ConfigError(problem, setting="NAME", value=name, path=root)
    return found[0]


def _remove(store: Store, chosen: Sequence[Group], everything: bool) -> str:
    """Remove values, and give their room back to the disk; what is to be said if that was not possible."""
    import lmdb

    if everything and store.remove():
        return ""
    store.delete([value.key for group in chosen for value in group.values])
    if store.stopped:
        raise OutputError(f"{store.folder}: nothing can be removed, {store.stopped}", path=store.folder)
    try:
        why = "" if store.compact() else "other processes have it open"
    except lmdb.Error as error:
        why = f"it cannot be copied ({error})"
    return why and f". The file keeps its {format_bytes(store.file_bytes())} for new pages: {why}"


def _open(root: Path) -> Store | None:
    """The store of a folder, if there is one."""
    from ocr.cache.store import open_store

    return open_store(root) if (root / "store" / "data.mdb").exists() else None


def _groups(store: Store) -> list[Group]:
    """What is kept, the largest first."""
    from ocr.cache.cache import describe
    from ocr.cache.store import PREFIX_BYTES

    about, values = describe(store), dict[bytes, list[Value]]()
    days = {key: min(MAX_DAY, int.from_bytes(day, "big")) for key, day in store.items("used")}
    for key, value in store.items("pages"):
        values.setdefault(key[:PREFIX_BYTES], []).append(Value(days.get(key, 0), len(key) + len(value), key))
    unknown = {"unit": "page", "stages": "", "data": []}
    groups = []
    for prefix, kept in values.items():
        known = unknown | about.get(prefix, {})
        groups.append(Group(prefix.hex(), known["unit"], known["stages"], known["data"], kept))
    return sorted(groups, key=lambda group: -group.size)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())
