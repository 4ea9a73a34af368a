"""Write the shards of a split that are missing or stale, keep the others, then write the index."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ocr.atomic import remove_partial_files, replacing
from ocr.errors import ConfigError, DataError, OutputError
from ocr.shards.index import ShardIndex, shard_name
from ocr.tools.convert.examine import Examination, check_shard
from ocr.tools.convert.plan import Plan
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.convert.shard_receipt import (
    NO_RECEIPT,
    IndexReceipts,
    Merger,
    done_file,
    index_path,
    read_done,
    read_index,
    write_done,
    write_shard,
)
from ocr.tools.executor import LazyTasks, run_tasks


@dataclass(frozen=True, slots=True)
class Converted:
    """The result of converting one split."""

    index: ShardIndex
    written: int
    seconds: float
    skipped: dict[str, str] = field(default_factory=dict)
    """File name and reason of the pages that were left out (on_bad_sample=skip)."""

    @property
    def kept(self) -> int:
        """Shards that were still valid."""
        return len(self.index.shards) - self.written

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.index.shards)


def convert_split(plan: Plan, settings: ConvertSettings, show_progress: bool = True) -> Converted:
    """Write the shards and the index of a split. If killed and called again, it ends with the same bytes."""
    begin = time.perf_counter()
    with only_one(plan.out):
        remove_partial_files(plan.out)
        stale = _stale_shards(plan, settings.overwrite)
        index, merger = _index_of(plan), Merger(plan)
        _check(plan, index, merger, settings, show_progress)
        rest = [number for number in range(len(plan.shards)) if number not in merger.shards]
        if rest or stale:
            _retire(plan, index)
        for path in stale:
            path.unlink()
        _write(plan, rest, merger, settings, show_progress)
        remove_partial_files(plan.out)  # Left by Ray workers that died.
        merged = _finish(plan, merger)
    return Converted(merged, len(rest), time.perf_counter() - begin, plan.source.skipped | merger.skipped)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Refuse a second conversion into the same folder while one runs; the lock ends with its owner."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot write to {folder} ({error.strerror}). Choose another folder", setting="out", path=folder
        ) from error
    lock = FileLock(folder / ".convert.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        problem = f"{folder}: another process is converting into it. Wait for it, or stop it"
        raise OutputError(problem, path=folder) from None
    except (OSError, NotImplementedError):
        pass  # A file system without locks, such as some network ones.
    try:
        yield
    finally:
        if lock.is_locked:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()


@contextmanager
def progress_of(title: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar; yields a function that takes the number of finished pages."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not show) as progress:
        bar = progress.add_task(escape(title), total=total)
        yield lambda pages: progress.advance(bar, pages)


def shard_files(out: Path, split: str) -> dict[int, Path]:
    """Number and file of all shards of a split in a folder."""
    pattern = re.compile(rf"{re.escape(split)}-([0-9]+)\.tar")
    found = {int(match[1]): path for path in out.iterdir() if (match := pattern.fullmatch(path.name))}
    return {number: path for number, path in sorted(found.items()) if path.name == shard_name(split, number)}


def _stale_shards(plan: Plan, overwrite: bool) -> list[Path]:
    stale = [path for number, path in shard_files(plan.out, plan.split).items() if number >= len(plan.shards)]
    if stale and not overwrite:
        names = ", ".join(path.name for path in stale[:3]) + (", ..." if len(stale) > 3 else "")
        raise ConfigError(
            f"{plan.out} holds shards of an earlier conversion that this one does not need ({names}): "
            "readers would mix them. Remove them with --overwrite (overwrite=true), or choose another folder",
            setting="overwrite",
            value=len(stale),
            path=plan.out,
        )
    return stale


def _index_of(plan: Plan) -> ShardIndex | None:
    with suppress(DataError):  # An unreadable one is rewritten.
        return read_index(index_path(plan.out, plan.split))
    return None


def _check(
    plan: Plan, index: ShardIndex | None, merger: Merger, settings: ConvertSettings, show_progress: bool
) -> None:
    """Add the receipts of existing shards that are still valid, from their own files or else from the index."""
    kind = (plan.recipe.kind, plan.recipe.stages, plan.source.annotated)
    is_alike = index is not None and (index.kind, index.stages, index.annotated) == kind
    listed = IndexReceipts(index) if index is not None and is_alike else ()
    numbers = [n for n in range(len(plan.shards)) if n < len(listed) or done_file(plan.shard_path(n)).exists()]
    tasks = plan.tasks(numbers)

    def examination(at: int) -> Examination:
        task, number = tasks[at], numbers[at]
        done = read_done(task.path)
        if done is None or done.recipe not in ("", task.recipe_digest):
            done = listed[number] if number < len(listed) else NO_RECEIPT
        return Examination(task, done)

    examinations = LazyTasks(len(numbers), examination)
    for number, found in _run(
        f"{plan.split}: checking existing shards", check_shard, examinations, plan, numbers, settings, show_progress
    ):
        if found is not None:
            merger.add(number, found)


def _write(plan: Plan, numbers: Sequence[int], merger: Merger, settings: ConvertSettings, show_progress: bool) -> None:
    title = f"{plan.split}: writing shards"
    for number, receipt in _run(title, write_shard, plan.tasks(numbers), plan, numbers, settings, show_progress):
        merger.add(number, receipt)


def _run(
    title: str,
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    plan: Plan,
    numbers: Sequence[int],
    settings: ConvertSettings,
    show_progress: bool,
) -> Iterator[tuple[int, Any]]:
    """The number of each shard and its result, with a progress bar of pages."""
    if not numbers:
        return
    pages = sum(len(plan.shards[number]) for number in numbers)
    with (
        progress_of(title, pages, show_progress) as advance,
        closing(run_tasks(function, tasks, settings.executor, settings.workers)) as results,
    ):
        for at, result in results:
            yield numbers[at], result
            advance(len(plan.shards[numbers[at]]))


def _retire(plan: Plan, index: ShardIndex | None) -> None:
    """Remove an index that no longer matches; its receipts are written first, in case this run is killed."""
    for number, said in enumerate(IndexReceipts(index) if index else ()):
        path = plan.shard_path(number)
        if not done_file(path).exists():
            write_done(path, said)
    index_path(plan.out, plan.split).unlink(missing_ok=True)


def _finish(plan: Plan, merger: Merger) -> ShardIndex:
    merged = merger.index()
    if not merged.samples:
        reason = next(iter(merger.skipped.values()), "")
        raise DataError(f"{plan.split}: no page can be stored. The first: {reason}", value=plan.split)
    path = index_path(plan.out, plan.split)
    if not _has_text(path, merged.json_parts()):
        with replacing(path) as stream:
            stream.writelines(part.encode() for part in merged.json_parts())
    for done in plan.out.glob(".*.done.json"):
        if re.fullmatch(rf"\.{re.escape(plan.split)}-[0-9]+\.tar\.done\.json", done.name):
            done.unlink()
    return merged


def _has_text(path: Path, parts: Iterator[str]) -> bool:
    """Whether a file consists of these parts."""
    try:
        with path.open("rb") as stream:
            return all(stream.read(len(part)) == part.encode("ascii") for part in parts) and not stream.read(1)
    except FileNotFoundError:
        return False
