"""Write the shards of a split that are missing or stale, keep the others, then write the index."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ocr.atomic import remove_partial_files, replacing
from ocr.errors import ConfigError, DataError, OutputError
from ocr.shards.index import ShardIndex, shard_name
from ocr.tools.convert.examine import Examination, check_shard
from ocr.tools.convert.plan import Plan, ShardTask
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.convert.shard_receipt import (
    ShardReceipt,
    done_file,
    index_path,
    merge,
    read_done,
    read_index,
    taken_from,
    write_done,
)
from ocr.tools.convert.write import write_shard
from ocr.tools.executor import run_tasks


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
        tasks = plan.tasks()
        index = _index_of(plan)
        known = _known_shards(plan, tasks, index)
        receipts = _check(plan, tasks, known, settings, show_progress)
        rest = [task for task in tasks if task.number not in receipts]
        if rest or stale:
            _retire(plan, index)
        for path in stale:
            path.unlink()
        receipts |= _write(plan, rest, settings, show_progress)
        remove_partial_files(plan.out)  # Left by Ray workers that died.
        merged = _finish(plan, [receipts[task.number] for task in tasks])
    skipped = plan.source.skipped | {name: why for one in receipts.values() for name, why in one.skipped.items()}
    return Converted(merged, len(rest), time.perf_counter() - begin, skipped)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Refuse a second conversion into the same folder while one runs; the lock ends with its owner."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise OutputError(f"cannot write to {folder} ({error.strerror}). Give another folder") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputError(f"{folder}: another process is converting into it. Wait for it, or stop it") from None
        except OSError:
            pass  # A file system without locks, such as some network ones.
        yield
    finally:
        os.close(descriptor)


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
            f"{plan.out} has {len(stale)} shards of an earlier conversion that this one does not need ({names}): "
            "readers would mix them. Remove them with --overwrite (overwrite=true), or give another folder"
        )
    return stale


def _index_of(plan: Plan) -> ShardIndex | None:
    with suppress(DataError):  # An unreadable one is written again.
        return read_index(index_path(plan.out, plan.split))
    return None


def _known_shards(plan: Plan, tasks: Sequence[ShardTask], index: ShardIndex | None) -> dict[int, ShardReceipt]:
    """The receipts of existing shards, from their own files or else from the index."""
    known: dict[int, ShardReceipt] = {}
    kind = (plan.recipe.kind, plan.recipe.stages, plan.source.annotated)
    if index is not None and (index.kind, index.stages, index.annotated) == kind:
        known = dict(enumerate(taken_from(index, plan.source.names)))
    for task in tasks:
        done = read_done(task.path)
        if done is not None and done.recipe in ("", task.recipe_digest):
            known[task.number] = done
    return known


def _check(
    plan: Plan, tasks: Sequence[ShardTask], known: dict[int, ShardReceipt], settings: ConvertSettings, show: bool
) -> dict[int, ShardReceipt]:
    examinations = [Examination(task, known[task.number]) for task in tasks if task.number in known]
    pages = sum(len(examination.task.indices) for examination in examinations)
    right: dict[int, ShardReceipt] = {}
    if not examinations:
        return right
    with progress_of(f"{plan.split}: checking existing shards", pages, show) as advance:
        for examination, found in _run(check_shard, examinations, settings):
            advance(len(examination.task.indices))
            if found is not None:
                right[examination.task.number] = found
    return right


def _write(plan: Plan, tasks: Sequence[ShardTask], settings: ConvertSettings, show: bool) -> dict[int, ShardReceipt]:
    written: dict[int, ShardReceipt] = {}
    if not tasks:
        return written
    with progress_of(f"{plan.split}: writing shards", sum(len(task.indices) for task in tasks), show) as advance:
        for task, receipt in _run(write_shard, tasks, settings):
            advance(len(task.indices))
            written[task.number] = receipt
    return written


def _run(function: Any, tasks: Sequence[Any], settings: ConvertSettings) -> Iterator[tuple[Any, Any]]:
    with closing(run_tasks(function, tasks, settings.executor, settings.workers)) as results:
        for number, result in results:
            yield tasks[number], result


def _retire(plan: Plan, index: ShardIndex | None) -> None:
    """Remove an index that no longer matches; its receipts are written first, in case this run is killed."""
    for number, said in enumerate(taken_from(index, plan.source.names) if index else ()):
        path = plan.out / shard_name(plan.split, number)
        if not done_file(path).exists():
            write_done(path, said)
    index_path(plan.out, plan.split).unlink(missing_ok=True)


def _finish(plan: Plan, receipts: Sequence[ShardReceipt]) -> ShardIndex:
    merged = merge(plan, receipts)
    if not merged.samples:
        reason = next((why for one in receipts for why in one.skipped.values()), "")
        raise DataError(f"{plan.split}: no page can be stored. The first: {reason}")
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
