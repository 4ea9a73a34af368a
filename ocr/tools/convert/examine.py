"""Read a shard back and compare its bytes, members and pages with the index and the source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocr.errors import DataError, MapError
from ocr.formats.maps import read_fingerprint, read_maps
from ocr.mapped_file import map_file
from ocr.pipeline.fingerprint import content_digest
from ocr.pipeline.metadata import ARRAYS
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import maps_fingerprint
from ocr.shards.index import RAW, scan_tar
from ocr.shards.members import as_array
from ocr.shards.sample_rows import StoredSample
from ocr.tools.convert.members import dump, facts_of, take_apart
from ocr.tools.convert.plan import ShardTask
from ocr.tools.convert.shard_receipt import ShardReceipt, fits, is_untouched


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
    """Recompute maps and arrays of one page in this many; 0: of none, unless the shard's sha256 differs."""


def check_shard(examination: Examination) -> ShardReceipt | None:
    """The receipt of a shard that is still valid; None if the shard must be written again."""
    task, receipt = examination.task, examination.receipt
    if not fits(task, receipt):
        return None
    if is_untouched(task, receipt):
        return receipt
    present = {kept.page for kept in receipt.samples}
    missing = [position for position, index in enumerate(task.indices) if index not in present]
    if missing and task.on_bad_sample == "raise":
        return None
    reasons = {task.pages.names[position]: why_left_out(task, position) for position in missing}
    if not all(reasons.values()) or examine_shard(examination):
        return None
    return replace(receipt, skipped=reasons)


def why_left_out(task: ShardTask, position: int = 0) -> str:
    """Why a page cannot be stored; empty if it can."""
    try:
        take_apart(task.recipe, task.pages.read(position))
    except DataError as error:
        return str(error)
    return ""


def examine_shard(examination: Examination) -> list[Problem]:
    """All problems of a shard."""
    task, receipt = examination.task, examination.receipt
    try:
        with task.path.open("rb") as stream:
            data = map_file(stream.fileno()) if task.path.stat().st_size else np.zeros(0, np.uint8)
            intact = hashlib.sha256(data.data).hexdigest() == receipt.shard.sha256
            problems = [] if intact else [_other_bytes(task, receipt, len(data))]
            found, damage = _scan(stream, task.name)
    except OSError as error:
        return [Problem(task.name, "", None, f"cannot be read ({error.strerror})")]
    problems += damage
    if task.name != receipt.shard.name:
        problems.append(Problem(task.name, "", None, f"the index calls it {receipt.shard.name!r}"))
    if len(receipt.samples) != receipt.shard.samples:
        listed = f"the index lists {len(receipt.samples)} samples and counts {receipt.shard.samples}"
        problems.append(Problem(task.name, "", None, listed))
    place = {index: position for position, index in enumerate(task.indices)}
    in_batch: dict[str, int] = {}
    for number, (index, stored) in enumerate(receipt.samples):
        position_in_batch = in_batch[stored.key] = in_batch.get(stored.key, -1) + 1
        if index not in place:
            problems.append(Problem(task.name, stored.key, None, f"the source no longer has page {index}"))
            continue
        if found.get(stored.key) != stored.members:
            offset = min(stored.members.values(), default=(0, 0))[0]
            there = "other members" if stored.key in found else "no such key"
            problems.append(Problem(task.name, stored.key, offset, f"not at its offset: the shard has {there}"))
            continue
        wanted = not intact or (examination.every > 0 and number % examination.every == 0)
        page = _Page(task, place[index], stored, position_in_batch, data)
        problems += page.problems(wanted)
    return problems


def _other_bytes(task: ShardTask, receipt: ShardReceipt, size: int) -> Problem:
    expected = receipt.shard.bytes
    if size != expected:
        return Problem(task.name, "", min(size, expected), f"{size} bytes, and the index says {expected}")
    return Problem(task.name, "", None, "its sha256 is not that of the index")


def _scan(stream: Any, name: str) -> tuple[dict[str, dict[str, tuple[int, int]]], list[Problem]]:
    found: dict[str, dict[str, tuple[int, int]]] = {}
    try:
        found.update(scan_tar(stream, name))
    except DataError as error:
        return found, [Problem(name, "", None, str(error))]
    return found, []


class _Page:
    """Compares one sample of a shard with its page in the source."""

    def __init__(
        self, task: ShardTask, position: int, stored: StoredSample, in_batch: int, data: NDArray[np.uint8]
    ) -> None:
        self._task, self._position, self._stored, self._in_batch, self._data = task, position, stored, in_batch, data
        self._extensions = task.recipe.extensions(stored.filename)

    def problems(self, recompute: bool) -> list[Problem]:
        task, stored, filename = self._task, self._stored, self._task.pages.names[self._position]
        if filename != stored.filename:
            return [self._problem("", f"is {stored.filename!r}, and the source has {filename!r} there")]
        if list(stored.members) != self._extensions:
            return [self._problem("", f"has {', '.join(stored.members)} instead of {', '.join(self._extensions)}")]
        found = []
        if task.pages.annotation_digest(self._position).hex() != stored.annotation:
            found.append(self._problem("json", f"the source's annotation of {filename} has changed"))
        try:
            raw = replace(task.pages.read(self._position), index=task.indices[self._position])
            if content_digest(raw.encoded).hex() != stored.content:
                return [*found, self._problem(self._extensions[0], f"the source's image {filename} has changed")]
            return found + list(self._compare(raw, recompute))
        except DataError as error:
            return [*found, self._problem("", str(error))]

    def _compare(self, raw: Sample, recompute: bool) -> Iterator[Problem]:
        recipe = self._task.recipe
        if recipe.kind == RAW:
            for extension, data in ((self._extensions[0], raw.encoded), ("json", dump(facts_of(recipe, raw)))):
                yield from self._differences(extension, np.frombuffer(data, np.uint8), self._member(extension))
            if recipe.maps:
                yield from self._maps(raw, recompute)
        elif recompute:
            parts = take_apart(recipe, raw)
            yield from self._ready_json(parts.facts, recompute)
            for name, array in parts.arrays.items():
                yield from self._array(name, array)
        else:
            yield from self._ready_json(facts_of(recipe, raw), recompute)

    def _maps(self, raw: Sample, recompute: bool) -> Iterator[Problem]:
        page, targets = self._task.recipe.fixed_part.measure(raw), self._task.recipe.targets
        stored = BytesIO(self._member("npz").tobytes())
        try:
            if read_fingerprint(stored) != maps_fingerprint(page, targets):
                yield self._problem("npz", "maps drawn from other polygons, another size or by other code")
            elif recompute:
                maps = read_maps(stored, size=page.size)[1] or ()
                pairs = zip(maps, targets(page).maps or (), strict=True)
                if not all(np.array_equal(left, right) for left, right in pairs):
                    yield self._problem("npz", "maps other than those drawn now")
        except MapError as error:
            yield self._problem("npz", f"no maps ({error.__cause__})")

    def _ready_json(self, facts: dict[str, Any], recompute: bool) -> Iterator[Problem]:
        try:
            stored = json.loads(self._member("json").tobytes())
            if self._task.recipe.batch:
                stored = stored[self._in_batch]
            # Without the pixels it is unknown whether a page was recovered, and what the arrays should be.
            unknown = ("recovered", "arrays", "fields")
            known = facts if recompute else facts | {name: stored[name] for name in unknown if name in stored}
            if "fields" not in stored:  # Written before there was this digest.
                known.pop("fields", None)
            if dump(stored) != dump(known):
                yield self._problem("json", "its JSON is not what the stages make of the source")
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            yield self._problem("json", f"not the JSON of a ready sample ({error})")

    def _array(self, name: str, expected: NDArray[Any]) -> Iterator[Problem]:
        extension = self._extensions[ARRAYS.index(name)]
        array = as_array(self._member(extension), f"{self._task.name}: {self._stored.key}.{extension}")
        if self._task.recipe.batch:
            if self._in_batch >= len(array):
                yield self._problem(extension, f"a batch of {len(array)}, and this is number {self._in_batch}")
                return
            array = array[self._in_batch]
        if (array.dtype, array.shape) != (expected.dtype, expected.shape):
            yield self._problem(extension, f"{array.dtype} {array.shape}, and not {expected.dtype} {expected.shape}")
            return
        yield from self._differences(extension, *(_as_bytes(side) for side in (expected, array)))

    def _differences(self, extension: str, expected: NDArray[np.uint8], found: NDArray[np.uint8]) -> Iterator[Problem]:
        if len(expected) == len(found) and np.array_equal(expected, found):
            return
        shorter = min(len(expected), len(found))
        different = np.flatnonzero(expected[:shorter] != found[:shorter])
        first = int(different[0]) if len(different) else shorter
        start = found.__array_interface__["data"][0] - self._data.__array_interface__["data"][0]
        what = f"its .{extension} is not what the source gives"
        yield Problem(self._task.name, self._stored.key, start + first, what)

    def _member(self, extension: str) -> NDArray[np.uint8]:
        start, size = self._stored.members[extension]
        return self._data[start : start + size]

    def _problem(self, extension: str, what: str) -> Problem:
        first = next(iter(self._stored.members.values()), (0, 0))
        return Problem(self._task.name, self._stored.key, self._stored.members.get(extension, first)[0], what)


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
