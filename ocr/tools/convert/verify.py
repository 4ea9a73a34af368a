"""Read all shards of a split back and compare them with their index and their source."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ocr.errors import DataError
from ocr.shards.index import ShardIndex
from ocr.tools.convert.convert import progress_of, shard_files
from ocr.tools.convert.examine import Examination, Problem, examine_shard
from ocr.tools.convert.plan import Plan, ShardTask, absolute_source, key_of, make_recipe
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.convert.shard_receipt import IndexReceipts, index_path, page_of, read_index
from ocr.tools.executor import LazyTasks, run_tasks

if TYPE_CHECKING:
    from ocr.datasets import OCRDataset

ONE_IN = 16
"""Without `--deep`, one page in this many is stored again and compared; at least one per shard."""


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
        raise DataError(f"{path} does not exist: nothing to verify. Write the shards: ocr convert SRC DST", path=path)
    plan = Plan(split, out.absolute(), absolute_source(dataset), make_recipe(dataset, index.kind), "skip", ())
    receipts = IndexReceipts(index)

    def examination(number: int) -> Examination:
        receipt = receipts[number]
        known = [page for page in map(page_of, receipt.samples) if 0 <= page < len(plan.source)]
        return Examination(plan.task(number, known), receipt, 1 if settings.deep else ONE_IN)

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
