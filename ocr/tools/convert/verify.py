"""Read all shards of a split back and compare them with their index and their source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ocr.errors import DataError
from ocr.shards.index import ShardIndex
from ocr.tools.convert.convert import progress_of, shard_files
from ocr.tools.convert.examine import Examination, Problem, examine_shard, why_left_out
from ocr.tools.convert.plan import Plan, absolute_source, key_of, make_recipe
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.convert.shard_receipt import index_path, read_index, source_digest, taken_from
from ocr.tools.executor import run_tasks

if TYPE_CHECKING:
    from ocr.datasets import OCRDataset

ONE_IN = 16
"""One page in this many has its maps and arrays recomputed without `--deep`; at least one per shard."""


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

    The index says whether they are raw or ready, with maps or in batches. Nothing is written.
    """
    path = index_path(out, split)
    try:
        index = read_index(path)
    except DataError as error:
        return Verified(split, problems=(Problem(path.name, "", None, str(error)),))
    if index is None:
        raise DataError(f"{path} does not exist: nothing to verify. Write the shards: ocr convert SRC DST")
    plan = _plan(dataset, split, out, index)
    examinations = _examinations(plan, index, 1 if settings.deep else ONE_IN)
    found: list[list[Problem]] = [[] for _ in examinations]
    with progress_of(f"{split}: verifying", len(index.samples), show_progress) as advance:
        with closing(run_tasks(examine_shard, examinations, settings.executor, settings.workers)) as results:
            for number, problems in results:
                found[number] = problems
                advance(len(examinations[number].receipt.samples))
        missing, left_out = _look_for_others(plan, examinations, settings)
    everything = [*_index_problems(plan, index), *chain.from_iterable(found), *missing]
    size = sum(shard.bytes for shard in index.shards)
    return Verified(split, len(index.shards), len(index.samples), size, tuple(everything), left_out)


def _plan(dataset: OCRDataset, split: str, out: Path, index: ShardIndex) -> Plan:
    """A plan with the settings that the index records."""
    members = index.samples[0].members if index.samples else {}
    recipe = make_recipe(dataset, index.kind, "npz" in members, int("images.npy" in members))
    return Plan(split, out.absolute(), absolute_source(dataset), recipe, "skip", ())


def _examinations(plan: Plan, index: ShardIndex, every: int) -> list[Examination]:
    """One a shard."""
    examinations = []
    for number, receipt in enumerate(taken_from(index, plan.source.names)):
        known = [kept.page for kept in receipt.samples if kept.page < len(plan.source)]
        examinations.append(Examination(plan.task(number, known), receipt, every))
    return examinations


def _index_problems(plan: Plan, index: ShardIndex) -> list[Problem]:
    found = []
    if index.stages != plan.recipe.stages:
        found.append("made by other stages: another --size, other settings, code or libraries. Convert again")
    if index.annotated != plan.source.annotated:
        found.append(f"says annotated={index.annotated}, and the source differs")
    if index.source != source_digest(index.samples):
        found.append("its digest of the source does not match its samples")
    name = index_path(plan.out, plan.split).name
    listed = len(index.shards)
    strays = [path.name for number, path in shard_files(plan.out, plan.split).items() if number >= listed]
    problems = [Problem(name, "", None, what) for what in found]
    return problems + [Problem(stray, "", None, f"a shard that {name} does not list") for stray in strays]


def _look_for_others(
    plan: Plan, examinations: Sequence[Examination], settings: ConvertSettings
) -> tuple[list[Problem], dict[str, str]]:
    """Pages of the source that are in no shard: those that could be, and name and reason of those that cannot."""
    present = {kept.page for examination in examinations for kept in examination.receipt.samples}
    tasks = [plan.task(0, [index]) for index in range(len(plan.source)) if index not in present]
    missing, left_out = [], {}
    name = index_path(plan.out, plan.split).name
    with closing(run_tasks(why_left_out, tasks, settings.executor, settings.workers, chunk=16)) as results:
        for number, reason in results:
            filename, index = tasks[number].pages.names[0], tasks[number].indices[0]
            if reason:
                left_out[filename] = reason
            else:
                missing.append(Problem(name, key_of(index), None, f"{filename} of the source is in no shard"))
    return sorted(missing), left_out | plan.source.skipped
