"""Students with and without a teacher, trained for the same time on the same pages: size, speed, H-mean.

python benchmarks/distil.py --teacher best.ckpt --data DIR --minutes 6 --out OUT --docs docs/training.md
python benchmarks/distil.py --teacher best.ckpt --data DIR --steps 1300 --seeds 0 --images FOLDER \\
    --set experiment=receipts --set model.encoder=mobilenetv3_small_050

Steps of both are timed in turns on the same batches, and so is what the teacher takes to see all pages once. The
student with a teacher gets as many fewer steps as this takes longer, so the figures do not depend on what else the
machine does during the training. The last weights are scored, and a student that is done is not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from omegaconf import DictConfig
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.deploy import Contender, labelled_pages, take_turns
from benchmarks.document_parts import replace_part, table_lines
from benchmarks.measure import add_data_options, console, exit_with, time_rounds
from ocr.atomic import replacing
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.jobs.train import build_module, train
from ocr.models.load import load_detector
from ocr.training.page_teacher import PageTeacher
from ocr.training.teacher import Teacher

STUDENT = ("experiment=receipts", "model.encoder=mobilenetv3_small_050")
TEACHER, ALONE, TAUGHT = "teacher", "without teacher", "with teacher"
PART = "distil"
"""Of the document."""
FORMATS = {"parameters": "{:.2f} M", "ms": "{:.0f}", "steps": "{:.0f}", "minutes": "{:.1f}"}
HEADINGS = ("", "parameters", "ms per page", "steps", "minutes", "H-mean, IoU 0.5", "IoU 0.7")
Row = dict[str, Any]


def main() -> int:
    """Train all students, then score and time them and the teacher with the same pages."""
    options = parse()
    if options.data is None:
        console.print("--data DIR is needed: images/train, images/val and jsons/ of both")
        return 2
    out = options.out or Path(tempfile.mkdtemp(prefix="glyphfeed-distil-"))
    out.mkdir(parents=True, exist_ok=True)
    students = settings_of_students(options)
    plan = plan_steps(students, options, out / "plan.json")
    for name, row in plan.items():
        console.print(f"{name}: {row['steps']} steps in {row['minutes']:.1f} minutes")
    files = {TEACHER: [options.teacher]}
    for name, overrides in students.items():
        files[name] = [
            train_student([*overrides, f"seed={seed}"], plan[name]["steps"], out / f"{name.replace(' ', '-')}-{seed}")
            for seed in options.seeds
        ]
    rows = score(files, options)
    for name, row in plan.items():
        rows[name] |= row
    show(rows, options)
    if options.json:
        write_json(options.json, rows)
    if options.docs:
        replace_part(options.docs, PART, table_lines(HEADINGS, [cells(name, row) for name, row in rows.items()]))
    return 0


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True, help="checkpoint of the teacher")
    parser.add_argument("--images", type=Path, help="folder of pages without labels, for the student with a teacher")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=20, help="of training for each student (default: 20)")
    length.add_argument("--steps", type=int, help="of the student without a teacher, instead of minutes")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help=f"student (default: {' '.join(STUDENT)})")
    parser.add_argument("--pages", type=int, default=1000, help="pages of the split that are scored (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(default: 0 1 2)")
    parser.add_argument("--out", type=Path, help="folder for all runs (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--docs", type=Path, help="document whose table is replaced: docs/training.md")
    add_data_options(parser, rounds=3)
    return parser.parse_args()


def settings_of_students(options: argparse.Namespace) -> dict[str, list[str]]:
    """Both have all but the teacher in common."""
    common = [
        f"dataset_base_path={options.data}",
        f"targets.shrink_ratio={load_detector(options.teacher, '--teacher')[1].targets['shrink_ratio']}",
        "trainer.limit_val_batches=0",
        *(f"callbacks.{name}=null" for name in ("best", "early_stopping", "drawings")),
        *(options.set or STUDENT),
    ]
    taught = [f"teacher={options.teacher}", *([f"distil.images={options.images}"] if options.images else [])]
    return {ALONE: common, TAUGHT: [*common, *taught]}


def plan_steps(students: dict[str, list[str]], options: argparse.Namespace, kept: Path) -> dict[str, Row]:
    """Steps and minutes of each student; measured once for all runs of a folder."""
    asked = [str(getattr(options, name)) for name in ("teacher", "data", "images", "minutes", "steps", "set")]
    if kept.is_file():
        known = json.loads(kept.read_text())
        if known["asked"] != asked:
            raise ConfigError(f"--out {kept.parent} has students of other options: {known['asked']}. Name a new folder")
        found: dict[str, Row] = known["plan"]
        return found
    with tempfile.TemporaryDirectory() as empty:  # Maps of an earlier run would be there at once.
        seconds, once = step_seconds(students, [f"output_dir={empty}", f"cache.folder={empty}"], options.rounds)
    steps = options.steps or max(1, round(60 * options.minutes / seconds[ALONE]))
    counts = {ALONE: steps, TAUGHT: max(1, round((steps * seconds[ALONE] - once) / seconds[TAUGHT]))}
    spent = {ALONE: 0.0, TAUGHT: once}
    plan = {
        name: {"steps": count, "minutes": (count * seconds[name] + spent[name]) / 60} for name, count in counts.items()
    }
    write_json(kept, {"asked": asked, "plan": plan})
    console.print(f"the teacher sees all pages once in {once:.1f} s")
    return plan


def train_student(overrides: Sequence[str], steps: int, folder: Path) -> Path:
    """The last checkpoint of a training of so many steps; the schedule is over them, however many epochs they are."""
    weights = folder / "checkpoints" / "last.ckpt"
    done = folder / "done"
    if not done.exists():
        train(configured(overrides, folder, f"+trainer.max_steps={steps}", "trainer.max_epochs=-1"), console)
        done.touch()
    return weights


def write_json(path: Path, content: Any) -> None:
    with replacing(path) as stream:
        stream.write(json.dumps(content, indent=1).encode())


def configured(overrides: Sequence[str], folder: Path, *more: str) -> DictConfig:
    """The config of a run that writes into a folder."""
    return compose_training([*overrides, f"output_dir={folder}", *more])


def step_seconds(students: dict[str, list[str]], folders: list[str], rounds: int) -> tuple[dict[str, float], float]:
    """Seconds of a training step of each student, of the fastest round; steps alternate, on batches of one shape.

    And what the teacher takes to see all pages once, if it does.
    """
    configs = {name: compose_training([*overrides, *folders]) for name, overrides in students.items()}
    dataset = OCRDataModule(configs[TAUGHT]).dataset("train")
    batch: dict[str, Any] = next(iter(OCRDataModule(configs[ALONE]).loader("train")))
    contenders, once = {}, 0.0
    for name, config in configs.items():
        module = build_module(config).train()
        if module.distillation is not None:
            module.distillation.teacher.start(dataset)
            once = seconds_of_all_pages(module.distillation.teacher, len(dataset))
        images = module.normalization.on_device(batch["images"])
        contenders[name] = Step(module, batch | {"images": images})
    return {name: min(times) for name, times in time_rounds(contenders, rounds).items()}, once


def seconds_of_all_pages(teacher: Teacher, pages: int) -> float:
    """Nothing if the teacher sees every batch instead."""
    if not isinstance(teacher, PageTeacher):
        return 0.0
    started = time.perf_counter()
    for index in range(pages):
        teacher.find(index)
    return time.perf_counter() - started


class Step:
    """One training step up to its gradients."""

    def __init__(self, module: Any, batch: dict[str, Any]) -> None:
        self.module, self.batch = module, batch

    def __call__(self) -> float:
        started = time.perf_counter()
        self.module.training_step(self.batch, 0).backward()
        self.module.zero_grad()
        return time.perf_counter() - started


def score(files: dict[str, list[Path]], options: argparse.Namespace) -> dict[str, Row]:
    """Parameters, time per page on one core and H-means of the detectors of each name."""
    paths, truth = labelled_pages(options.data, options.split, options.pages)
    contenders = {name: [Contender(name, str(path)) for path in each] for name, each in files.items()}
    take_turns([one for each in contenders.values() for one in each], paths, [1], options.rounds)
    found = {}
    for name, each in contenders.items():
        loose, tight = zip(*(contender.hmeans(truth) for contender in each), strict=True)
        parameters = sum(value.numel() for value in load_detector(each[0].model)[0].parameters()) / 1e6
        milliseconds = mean(contender.mean(1) for contender in each)
        found[name] = {"parameters": parameters, "ms": milliseconds, "hmean": loose, "hmean_70": tight}
    return found


def cells(name: str, row: Row) -> list[str]:
    """One row of the table; H-means with the range of the seeds."""
    texts = [text.format(row[key]) if key in row else "" for key, text in FORMATS.items()]
    for key in ("hmean", "hmean_70"):
        values = row[key]
        seeds = f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else ""
        texts.append(f"{mean(values):.3f}{seeds}")
    return [name, *texts]


def show(rows: dict[str, Row], options: argparse.Namespace) -> None:
    """One row per detector."""
    seeds = f"{len(options.seeds)} seed{'s' * (len(options.seeds) > 1)}"
    table = Table(title=f"{options.data}: {options.split}, one core, torch, {seeds}", title_justify="left")
    for column in HEADINGS:
        table.add_column(column, justify="right" if column else "left")
    for name, row in rows.items():
        table.add_row(*cells(name, row))
    console.print(table)


if __name__ == "__main__":
    exit_with(main)
