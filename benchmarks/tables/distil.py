"""Students with and without a teacher, trained for the same time on the same pages: size, speed, H-mean.

Steps of both are timed in turns on the same batches, and so is what the teacher takes to see all pages once. The
student with a teacher gets as many fewer steps as this takes longer, so the figures do not depend on what else the
machine does during the training. The last weights are scored, and a student that is done is not trained again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.harness import Data, Figure, Row, Target, benchmark, console, fastest, interleave
from benchmarks.loaders import split_paths
from benchmarks.tables.deploy import Contender, take_turns
from benchmarks.tables.trained import fine_tuned, labelled_pages, write_json
from ocr.datasets.data_module import OCRDataModule
from ocr.jobs.compose import compose_training
from ocr.jobs.train import build_module, train
from ocr.models.load import load_detector
from ocr.training.page_teacher import PageTeacher

STUDENT = ("experiment=receipts", "model.encoder=mobilenetv3_small_050")
TEACHER, ALONE, TAUGHT = "teacher", "without teacher", "with teacher"


@benchmark("distil", table="training#distil")
def distil(data: Data) -> Iterator[Row]:
    """Small students with and without a teacher; `--set students.steps=600`, `students.teacher=FILE` (fine-tuned)."""
    teacher = Path(data.setting("students.teacher", "") or fine_tuned(data))
    students = settings_of(data, teacher)
    plan = plan_steps(students, data)
    files = {TEACHER: [teacher]}
    for name in students:
        files[name] = [train_student(data, name, students[name], plan[name], seed) for seed in range(data.rounds)]
    paths, truth = labelled_pages(*split_paths(data.receipts, "val"))
    contenders = {name: [Contender(name, str(path)) for path in each] for name, each in files.items()}
    take_turns([one for each in contenders.values() for one in each], paths, 2, [1])
    alone = [one.hmeans(truth)[0] for one in contenders[ALONE]]
    for name, each in contenders.items():
        loose, tight = zip(*(one.hmeans(truth) for one in each), strict=True)
        parameters = sum(value.numel() for value in load_detector(each[0].model)[0].parameters()) / 1e6
        cells = {
            "parameters": Figure(parameters, " M", digits=2),
            "ms per page": Figure(1000 * mean(one.mean(1) for one in each), digits=0),
            "steps": plan[name]["steps"] if name in plan else None,
            "minutes": Figure(plan[name]["minutes"], digits=1) if name in plan else None,
            "H-mean, IoU 0.5": with_range(loose),
            "IoU 0.7": with_range(tight),
        }
        if name == TAUGHT:
            cells["gain at IoU 0.5"] = Target(mean(loose) - mean(alone), at_least=0)
        yield Row(name, cells)


def with_range(values: Sequence[float]) -> str:
    """The mean, and the range of the seeds."""
    return f"{mean(values):.3f}" + (f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else "")


def settings_of(data: Data, teacher: Path) -> dict[str, list[str]]:
    """Both students have all but the teacher in common."""
    common = [
        f"dataset_base_path={data.receipts}",
        f"targets.shrink_ratio={load_detector(teacher, 'students.teacher')[1].targets['shrink_ratio']}",
        "trainer.limit_val_batches=0",
        *(f"callbacks.{name}=null" for name in ("best", "early_stopping", "drawings")),
        *STUDENT,
        *(setting for setting in data.settings if not setting.startswith("students.")),
    ]
    return {ALONE: common, TAUGHT: [*common, f"teacher={teacher}"]}


def plan_steps(students: dict[str, list[str]], data: Data) -> dict[str, dict[str, float]]:
    """Steps and minutes of each student; measured once, so that a run that is resumed has the same."""
    kept, asked = data.runs / "distil/plan.json", [students, data.setting("students.steps", "600")]
    if kept.is_file():
        known: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        if known["asked"] == asked:
            return known["plan"]  # type: ignore[no-any-return]
    shutil.rmtree(kept.parent, ignore_errors=True)
    seconds, once = step_seconds(students, data)
    steps = int(str(asked[1]))
    counts = {ALONE: steps, TAUGHT: max(1, round((steps * seconds[ALONE] - once) / seconds[TAUGHT]))}
    spent = {ALONE: 0.0, TAUGHT: once}
    plan = {name: {"steps": n, "minutes": (n * seconds[name] + spent[name]) / 60} for name, n in counts.items()}
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_json(kept, {"asked": asked, "plan": plan})
    return plan


def step_seconds(students: dict[str, list[str]], data: Data) -> tuple[dict[str, float], float]:
    """Seconds of a step of each student, on batches of one shape, and of the teacher's look at all pages."""
    with tempfile.TemporaryDirectory(dir=data.work_folder) as empty:  # Maps of an earlier run would be there at once.
        folders = [f"output_dir={empty}", f"cache.folder={empty}"]
        configs = {name: compose_training([*overrides, *folders]) for name, overrides in students.items()}
        dataset = OCRDataModule(configs[TAUGHT]).dataset("train")
        batch: dict[str, Any] = next(iter(OCRDataModule(configs[ALONE]).loader("train")))
        contenders, once = {}, 0.0
        for name, config in configs.items():
            module = build_module(config).train()
            if module.distillation is not None:
                teacher = module.distillation.teacher
                teacher.start(dataset)
                started = time.perf_counter()
                if isinstance(teacher, PageTeacher):  # Else it sees every batch instead.
                    for index in range(len(dataset)):
                        teacher.find(index)
                    once = time.perf_counter() - started
            contenders[name] = Step(module, batch | {"images": module.normalization.on_device(batch["images"])})
        return fastest(interleave(contenders, 3)), once


class Step:
    """One training step up to its gradients."""

    def __init__(self, module: Any, batch: dict[str, Any]) -> None:
        self.module, self.batch = module, batch

    def __call__(self) -> float:
        started = time.perf_counter()
        self.module.training_step(self.batch, 0).backward()
        self.module.zero_grad()
        return time.perf_counter() - started


def train_student(data: Data, name: str, settings: Sequence[str], plan: dict[str, float], seed: int) -> Path:
    """The last checkpoint of a training of so many steps; the schedule is over them, however many epochs they are."""
    folder = data.runs / "distil" / f"{name.replace(' ', '-')}-{seed}"
    done = folder / "done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        length = (f"+trainer.max_steps={plan['steps']}", "trainer.max_epochs=-1")
        train(compose_training([*settings, *length, f"seed={seed}", f"output_dir={folder}"]), console)
        done.touch()
    return folder / "checkpoints/last.ckpt"
