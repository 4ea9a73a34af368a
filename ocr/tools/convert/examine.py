"""Read a shard back and compare its bytes, members and pages with the index and the source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ocr.errors import DataError
from ocr.mapped_file import map_file
from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.sample import Array
from ocr.shards.index import Members, StoredSample, scan_tar
from ocr.tools.convert.plan import ShardTask
from ocr.tools.convert.shard_receipt import ShardReceipt, fits, is_untouched, page_of


class Problem(NamedTuple):
    """Something that is wrong with a shard."""

    file: str
    key: str
    offset: int | None
    what: str


@dataclass(frozen=True, slots=True, eq=False)
class Examination:
    """What a shard is compared with."""

    task: ShardTask
    receipt: ShardReceipt
    every: int = 0
    """Store one page in this many again and compare all bytes; 0: none, unless the shard's sha256 differs."""


def check_shard(examination: Examination) -> ShardReceipt | None:
    """The receipt of a shard that is still valid; None if the shard must be rewritten."""
    task, receipt = examination.task, examination.receipt
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
    """All problems of a shard."""
    task, receipt = examination.task, examination.receipt
    found: dict[str, Members] = {}
    problems = []
    try:
        with task.path.open("rb") as stream:
            data = map_file(stream.fileno()) if task.path.stat().st_size else np.zeros(0, np.uint8)
            is_intact = hashlib.sha256(data.data).hexdigest() == receipt.shard.sha256
            if not is_intact:
                problems.append(_other_bytes(task, receipt, len(data)))
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
    for number, stored in enumerate(receipt.samples):
        index = page_of(stored)
        if index not in place:
            problems.append(Problem(task.name, stored.key, None, f"the source no longer has page {stored.key}"))
        elif found.get(stored.key) != stored.members:
            there = "other members" if stored.key in found else "no such key"
            problems.append(_problem(task, stored, "", f"not at its offset: the shard has {there}"))
        else:
            is_compared = not is_intact or (examination.every > 0 and number % examination.every == 0)
            problems += _of_page(task, place[index], stored, data if is_compared else None)
    return problems


def _other_bytes(task: ShardTask, receipt: ShardReceipt, size: int) -> Problem:
    expected = receipt.shard.bytes
    if size != expected:
        return Problem(task.name, "", min(size, expected), f"{size} bytes, and the index says {expected}")
    return Problem(task.name, "", None, "its sha256 is not the one in the index")


def _of_page(task: ShardTask, position: int, stored: StoredSample, data: Array | None) -> Iterator[Problem]:
    """The differences between a sample and its page in the source; with `data`, those of all its bytes too."""
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
        raw = replace(task.pages.read(position), index=task.indices[position])
        if content_digest(raw.encoded).hex() != stored.content:
            yield _problem(task, stored, expected[0], f"the source's image {filename} has changed")
        elif data is not None:
            for extension, wanted in task.recipe.store(raw).members.items():
                start, size = stored.members[extension]
                different = _first_difference(np.frombuffer(wanted, np.uint8), data[start : start + size])
                if different is not None:
                    what = f"its .{extension} is not what the source gives"
                    yield Problem(task.name, stored.key, start + different, what)
    except DataError as error:
        yield _problem(task, stored, "", str(error))


def _first_difference(expected: Array, found: Array) -> int | None:
    if np.array_equal(expected, found):
        return None
    shorter = min(len(expected), len(found))
    different = np.flatnonzero(expected[:shorter] != found[:shorter])
    return int(different[0]) if len(different) else shorter


def _problem(task: ShardTask, stored: StoredSample, extension: str, what: str) -> Problem:
    """A problem of a member; by default of the first one."""
    first = min(stored.members.values(), default=(0, 0))
    return Problem(task.name, stored.key, stored.members.get(extension, first)[0], what)
