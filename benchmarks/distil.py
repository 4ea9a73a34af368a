"""A student with and without a teacher, trained for the same time on the same pages: size, speed, H-mean.

python benchmarks/distil.py --teacher best.ckpt --data DIR --minutes 20
python benchmarks/distil.py --teacher best.ckpt --data DIR --steps 1300 --images FOLDER --set experiment=receipts \
    --set model.encoder=mobilenetv3_small_050

Steps of both are timed in turns on the same batches, and so is what the teacher takes to see all pages once. The
student with a teacher gets as many fewer steps as this takes longer, so the figures do not depend on what else the
machine does during the training.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.deploy import Contender, labelled_pages, take_turns
from benchmarks.measure import add_data_options, console, exit_with, time_rounds
from ocr.atomic import replacing
from ocr.datasets.data_module import OCRDataModule
from ocr.jobs.compose import compose_training
from ocr.jobs.train import build_module, train
from ocr.models.load import load_detector
from ocr.training.page_teacher import PageTeacher
from ocr.training.teacher import Teacher

STUDENT = ("experiment=receipts", "model.encoder=mobilenetv3_small_050")
ALONE, TAUGHT = "without teacher", "with teacher"


def main() -> int:
    """Train both students, then score and time them and the teacher with the same pages."""
    options = parse()
    if options.data is None:
        console.print("--data DIR is needed: images/train, images/val and jsons/ of both")
        return 2
    out = options.out or Path(tempfile.mkdtemp(prefix="glyphfeed-distil-"))
    targets = load_detector(options.teacher, "--teacher")[1].targets
    common = [
        f"dataset_base_path={options.data}",
        f"targets.shrink_ratio={targets['shrink_ratio']}",
        f"seed={options.seed}",
        "trainer.limit_val_batches=0",
        *(f"callbacks.{name}=null" for name in ("best", "early_stopping", "drawings")),
        *(options.set or STUDENT),
    ]
    taught = [f"teacher={options.teacher}", *([f"distil.images={options.images}"] if options.images else [])]
    students = {ALONE: common, TAUGHT: [*common, *taught]}
    with tempfile.TemporaryDirectory() as empty:  # Maps of an earlier run would be there at once.
        seconds, once = step_seconds(students, [f"output_dir={empty}", f"cache.folder={empty}"], options.rounds)
    steps = options.steps or max(1, round(60 * options.minutes / seconds[ALONE]))
    plan = {ALONE: steps, TAUGHT: max(1, round((steps * seconds[ALONE] - once) / seconds[TAUGHT]))}
    console.print(f"the teacher sees all pages once in {once:.1f} s")
    files = {"teacher": options.teacher}
    for name, overrides in students.items():
        folder = out / name.replace(" ", "-")
        console.print(f"{name}: {plan[name]} steps, {seconds[name]:.2f} s each")
        # The schedule is over these steps, however many epochs they are.
        train(configured(overrides, folder, f"+trainer.max_steps={plan[name]}", "trainer.max_epochs=-1"), console)
        files[name] = folder / "checkpoints" / "last.ckpt"
    rows = score(files, options)
    for name, count in plan.items():
        rows[name] |= {"steps": count, "minutes": (count * seconds[name] + once * (name == TAUGHT)) / 60}
    show(rows, options)
    if options.json:
        with replacing(options.json) as stream:
            stream.write(json.dumps(rows, indent=1).encode())
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
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for both runs (default: a temporary one)")
    parser.add_argument("--json", type=Path, help="file for the figures")
    add_data_options(parser, rounds=3)
    return parser.parse_args()


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


def score(files: dict[str, Path], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Parameters, time per page on one core and H-mean of each detector."""
    paths, truth = labelled_pages(options.data, options.split, options.pages)
    contenders = [Contender(name, str(path)) for name, path in files.items()]
    take_turns(contenders, paths, [1], options.rounds)
    found = {}
    for contender in contenders:
        loose, tight = contender.hmeans(truth)
        parameters = sum(value.numel() for value in load_detector(contender.model)[0].parameters()) / 1e6
        found[contender.name] = {
            "parameters": parameters,
            "ms": contender.mean(1),
            "hmean": loose,
            "hmean_70": tight,
        }
    return found


def show(rows: dict[str, dict[str, float]], options: argparse.Namespace) -> None:
    """One row per detector."""
    table = Table(title=f"{options.data}: {options.split}, one core, torch", title_justify="left")
    formats = {
        "parameters": "{:.2f} M",
        "ms": "{:.0f}",
        "steps": "{:.0f}",
        "minutes": "{:.1f}",
        "hmean": "{:.4f}",
        "hmean_70": "{:.4f}",
    }
    for column in ("", "parameters", "ms per page", "steps", "minutes", "H-mean", "at IoU 0.7"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in rows.items():
        table.add_row(name, *(text.format(row[key]) if key in row else "" for key, text in formats.items()))
    console.print(table)


if __name__ == "__main__":
    exit_with(main)
