"""Write the shards of a split that are missing or stale, then its index; and read all of them back."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from ocr.atomic import remove_partial_files, replacing
from ocr.errors import ConfigError, DataError, OutputError
from ocr.pipeline.page_index import content_digest
from ocr.shards.index import Members, ShardIndex, StoredSample, scan_tar, shard_name
from ocr.tools.convert.plan import Plan, ShardTask, absolute_source, key_of, make_recipe
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.convert.shard_receipt import (
    NO_RECEIPT,
    IndexReceipts,
    Merger,
    ShardReceipt,
    done_file,
    fits,
    index_path,
    is_untouched,
    page_of,
    read_done,
    read_index,
    write_done,
    write_shard,
)
from ocr.tools.executor import LazyTasks, run_tasks
from ocr.tools.terminal import markup, progress_bar

if TYPE_CHECKING:
    from ocr.datasets import OCRDataset


class Problem(NamedTuple):
    """Something that is wrong with a shard."""

    file: str
    key: str
    offset: int | None
    what: str


class Examination(NamedTuple):
    """A shard, and what its index or its own receipt says about it."""

    task: ShardTask
    receipt: ShardReceipt


def check_shard(examination: Examination) -> ShardReceipt | None:
    """The receipt of a shard that is still valid; None if the shard must be rewritten."""
    task, receipt = examination
    if not fits(task, receipt):
        return None
    if is_untouched(task, receipt):
        return receipt
    present = set(map(page_of, receipt.samples))
    missing = [position for position, index in enumerate(task.indices) if index not in present]
    if missing and task.on_bad_sample == "raise":
        return None
    reasons = {task.pages.names[position]: task.why_left_out(position) for position in missing}
    if not all(reasons.values()) or examine_shard(examination):
        return None
    return replace(receipt, skipped=reasons)


def examine_shard(examination: Examination) -> list[Problem]:
    """All problems of a shard: its bytes against its checksum, its members against the index and the source."""
    task, receipt = examination
    found: dict[str, Members] = {}
    problems = []
    try:
        with task.path.open("rb") as stream:
            sha256, size = hashlib.file_digest(stream, "sha256").hexdigest(), stream.tell()
            if size != receipt.shard.bytes:
                what = f"{size} bytes, and the index says {receipt.shard.bytes}"
                problems.append(Problem(task.name, "", min(size, receipt.shard.bytes), what))
            elif sha256 != receipt.shard.sha256:
                problems.append(Problem(task.name, "", None, "its sha256 is not the one in the index"))
            stream.seek(0)
            found.update(scan_tar(stream, task.name))
    except OSError as error:
        return [Problem(task.name, "", None, f"cannot be read ({error.strerror})")]
    except DataError as error:
        problems.append(Problem(task.name, "", None, str(error)))
    if task.name != receipt.shard.name:
        problems.append(Problem(task.name, "", None, f"the index calls it {receipt.shard.name!r}"))
    if len(receipt.samples) != receipt.shard.samples:
        listed = f"the index lists {len(receipt.samples)} samples and counts {receipt.shard.samples}"
        problems.append(Problem(task.name, "", None, listed))
    place = {index: position for position, index in enumerate(task.indices)}
    for stored in receipt.samples:
        index = page_of(stored)
        if index not in place:
            problems.append(Problem(task.name, stored.key, None, f"the source no longer has page {stored.key}"))
        elif found.get(stored.key) != stored.members:
            there = "other members" if stored.key in found else "no such key"
            problems.append(_problem(task, stored, "", f"not at its offset: the shard has {there}"))
        else:
            problems += _of_page(task, place[index], stored)
    return problems


def _of_page(task: ShardTask, position: int, stored: StoredSample) -> Iterator[Problem]:
    """The differences between a sample of the index and its page in the source."""
    filename, expected = task.pages.names[position], task.recipe.extensions(stored.filename)
    if filename != stored.filename:
        yield _problem(task, stored, "", f"is {stored.filename!r}, and the source has {filename!r} there")
        return
    if list(stored.members) != expected:
        yield _problem(task, stored, "", f"has {', '.join(stored.members)} instead of {', '.join(expected)}")
        return
    if task.pages.state(position).annotation.hex() != stored.annotation:
        yield _problem(task, stored, "json", f"the source's annotation of {filename} has changed")
    try:
        if content_digest(task.pages.read(position).encoded).hex() != stored.content:
            yield _problem(task, stored, expected[0], f"the source's image {filename} has changed")
    except DataError as error:
        yield _problem(task, stored, "", str(error))


def _problem(task: ShardTask, stored: StoredSample, extension: str, what: str) -> Problem:
    """A problem of a member; by default of the first one."""
    first = min(stored.members.values(), default=(0, 0))
    return Problem(task.name, stored.key, stored.members.get(extension, first)[0], what)


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
    with progress_bar(show) as progress:
        bar = progress.add_task(markup(title), total=total)
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


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found in the shards of one split."""

    split: str
    shards: int = 0
    pages: int = 0
    bytes: int = 0
    problems: tuple[Problem, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    """File name and reason of the pages that cannot be stored."""


def verify_split(
    dataset: OCRDataset, split: str, out: Path, settings: ConvertSettings, show_progress: bool = True
) -> Verified:
    """Compare the shards of a split with their index and with the dataset they were made from.

    The index says whether they are raw or ready. Nothing is written.
    """
    path = index_path(out, split)
    try:
        index = read_index(path)
    except DataError as error:
        return Verified(split, problems=(Problem(path.name, "", None, str(error)),))
    if index is None:
        raise DataError(f"{path} does not exist, so nothing can be verified. Run: glyphfeed shards DATA OUT", path=path)
    plan = Plan(split, out.absolute(), absolute_source(dataset), make_recipe(dataset, index.kind), "skip", ())
    receipts = IndexReceipts(index)

    def examination(number: int) -> Examination:
        receipt = receipts[number]
        known = [page for page in map(page_of, receipt.samples) if 0 <= page < len(plan.source)]
        return Examination(plan.task(number, known), receipt)

    examinations = LazyTasks(len(receipts), examination)
    found: list[list[Problem]] = [[] for _ in receipts]
    with progress_of(f"{split}: verifying", len(index.samples), show_progress) as advance:
        with closing(run_tasks(examine_shard, examinations, settings.executor, settings.workers)) as results:
            for number, problems in results:
                found[number] = problems
                advance(index.shards[number].samples)
        missing, left_out = _look_for_others(plan, receipts, settings)
    everything = [*_index_problems(plan, index), *chain.from_iterable(found), *missing]
    size = sum(shard.bytes for shard in index.shards)
    return Verified(split, len(index.shards), len(index.samples), size, tuple(everything), left_out)


def _index_problems(plan: Plan, index: ShardIndex) -> list[Problem]:
    found = []
    if index.stages != plan.recipe.stages:
        found.append("made by other stages: another --size, other settings, code or libraries. Convert again")
    if index.annotated != plan.source.annotated:
        found.append(f"says annotated={index.annotated}, and the source differs")
    name = index_path(plan.out, plan.split).name
    listed = len(index.shards)
    strays = [path.name for number, path in shard_files(plan.out, plan.split).items() if number >= listed]
    problems = [Problem(name, "", None, what) for what in found]
    return problems + [Problem(stray, "", None, f"a shard that {name} does not list") for stray in strays]


def _look_for_others(
    plan: Plan, receipts: IndexReceipts, settings: ConvertSettings
) -> tuple[list[Problem], dict[str, str]]:
    """Pages of the source that are in no shard: those that could be, and name and reason of those that cannot."""
    is_missing = np.ones(len(plan.source), dtype=np.bool_)
    for receipt in receipts:
        is_missing[[page for page in map(page_of, receipt.samples) if 0 <= page < len(is_missing)]] = False
    absent = np.flatnonzero(is_missing)
    tasks = LazyTasks(len(absent), lambda at: plan.task(0, [int(absent[at])]))
    missing, left_out = [], {}
    name = index_path(plan.out, plan.split).name
    with closing(run_tasks(_why_left_out, tasks, settings.executor, settings.workers, chunk=16)) as results:
        for number, reason in results:
            index = int(absent[number])
            filename = plan.source.names[index]
            if reason:
                left_out[filename] = reason
            else:
                missing.append(Problem(name, key_of(index), None, f"{filename} of the source is in no shard"))
    return sorted(missing), left_out | plan.source.skipped


def _why_left_out(task: ShardTask) -> str:
    return task.why_left_out(0)
