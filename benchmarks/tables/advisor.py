"""The advisor against the clock: what `ocr advise` predicts, and what these configurations then take.

The consumer is a step of a few milliseconds, as a GPU has it, or the real model on this machine. Nothing but the
command, its JSON and the data of `ocr train` is used, so that the advisor is not measured with its own tools.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from omegaconf import DictConfig

from benchmarks.artificial import SlowDisk
from benchmarks.harness import ROOT, Data, Figure, Row, Target, benchmark
from benchmarks.tables.any_loader import prediction
from ocr.datasets import OCRDataset
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import DataError, GlyphFeedError
from ocr.jobs.compose import compose_training
from ocr.jobs.threads import share_cores
from ocr.jobs.train import build_module
from ocr.tools.synth import synthesize

CONSUMERS: dict[str, float | None] = {"2 ms": 2, "5 ms": 5, "20 ms": 20, "100 ms": 100, "the model": None}
MAX_SECONDS = 20.0
"""Of a longer epoch, the rest is taken to be like what was run."""
MEAN_ERROR, SLOWER = 12, 1.05
Batch = dict[str, Any]

# -- predictions


def advise(given: Sequence[str], step_ms: float | None, skip: Sequence[str] = ()) -> dict[str, Any]:
    """What `ocr advise KEY=VALUE...` writes with --json."""
    with tempfile.TemporaryDirectory(prefix="glyphfeed-advise-") as folder:
        file = Path(folder) / "advice.json"
        options = ["--json", str(file), *(["--step-ms", f"{step_ms:g}"] if step_ms is not None else [])]
        options += [text for word in skip for text in ("--skip", word)]
        run([sys.executable, "-m", "ocr.cli", "advise", *given, *options])
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def run(command: Sequence[str]) -> None:
    """In the repository, so that configs can name the stages of this module."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": path})
    if done.returncode:
        raise DataError(f"{shlex.join(command)} ended with status {done.returncode}; its error is above")


# -- what it then takes


class ModelStep:
    """Forward, backward and the optimizer of the model of a config."""

    def __init__(self, config: DictConfig) -> None:
        self.module = build_module(config).train()
        self.optimizer = self.module.build_optimizer()
        if config.compile_model:
            self.module.model.compile()
        is_half = str(config.trainer.precision).startswith("bf16")
        self.precision = torch.autocast("cpu", torch.bfloat16) if is_half else nullcontext()

    def __call__(self, batch: Batch) -> None:
        images = self.module.normalization.on_device(batch["images"])
        with self.precision:
            loss, _ = self.module.loss(self.module.model(images), batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def measure(given: Sequence[str], step_ms: float | None, rounds: int, work: Path) -> float:
    """Seconds of a later epoch of training with these settings; the fastest of a few."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        config = compose_training([*given, f"cache.folder={folder}"])
        share_cores(config)
        loader = OCRDataModule(config).loader("train")
        step = ModelStep(config) if step_ms is None else lambda batch: time.sleep(step_ms / 1e3)
        seen: set[torch.Size] = set()
        for batch in loader:  # The first epoch fills the cache; a model gets warm, or is compiled for all shapes.
            if not seen or (step_ms is None and config.compile_model and batch["images"].shape not in seen):
                step(batch)
            seen.add(batch["images"].shape)
        return min(epoch_seconds(loader, step) for _ in range(rounds))


def epoch_seconds(loader: Any, step: Callable[[Batch], None]) -> float:
    """Of all batches with a step for each."""
    begin, done = time.perf_counter(), 0
    with closing(iter(loader)) as batches:
        for batch in batches:
            step(batch)
            done += 1
            if time.perf_counter() - begin > MAX_SECONDS:
                break
    return (time.perf_counter() - begin) * len(loader) / max(1, done)


@dataclass(frozen=True)
class Trial:
    """A configuration, what was predicted of its later epochs, and what they took."""

    name: str
    predicted: float
    measured: float
    is_ready: bool = True
    """Whether the advisor may choose it: it needs no other command, and the model learns the same."""

    @property
    def error(self) -> float:
        """Of the prediction, in percent."""
        return 100 * (self.predicted / self.measured - 1)

    def __str__(self) -> str:
        return f"{Figure(self.predicted, 's')} / {Figure(self.measured, 's')}: {self.error:+.0f} %"


def try_all(
    given: Sequence[str], advice: dict[str, Any], step_ms: float | None, rounds: int, work: Path
) -> tuple[list[Trial], list[str]]:
    """The present configuration and every remedy that fits, and why some could not be run."""
    seconds = measure(given, step_ms, rounds, work)
    trials, notes = [Trial("present", advice["present"]["epoch_s"], seconds)], []
    for remedy in advice["remedies"]:
        command, overrides = remedy["command"], remedy["overrides"]
        if not remedy["fits"] or (command and "SHARDS" not in command):
            continue  # What writes next to the pages is not run.
        with tempfile.TemporaryDirectory(dir=work) as folder:
            if command:
                words = shlex.split(command.replace("SHARDS", f"{folder}/shards"))
                run([sys.executable, "-m", "ocr.cli", *words[1:]])
                overrides = [one.replace("SHARDS", f"{folder}/shards") for one in overrides]
            try:
                seconds = measure([*given, *overrides], step_ms, rounds, work)
            except GlyphFeedError as error:
                notes.append(f"{remedy['name']} cannot be run: {error}")
                continue
        is_ready = not command and remedy["hmean"] == "same"
        trials.append(Trial(remedy["name"], remedy["epoch_s"], seconds, is_ready))
    return trials, notes


@benchmark("remedies", table="results#remedies", threads=None, rounds=2)
def remedies(data: Data) -> Iterator[Row | str]:
    """A plain `ocr advise dataset_base_path=DIR`; `--set advise.consumers=20 ms,2 ms`, `advise.skip=compiled`: less."""
    chosen = data.setting("advise.consumers", ",".join(CONSUMERS)).split(",")
    skip = [word for word in data.setting("advise.skip", "").split(",") if word]
    given = [f"dataset_base_path={data.receipts}"]
    cells: dict[str, dict[str, str]] = {}
    for consumer in chosen:
        advice = advise(given, CONSUMERS[consumer], skip)
        trials, notes = try_all(given, advice, CONSUMERS[consumer], data.rounds, data.work_folder)
        yield from (f"{consumer}: {note}" for note in notes)
        for one in trials:
            cells.setdefault(one.name, {})[consumer] = str(one)
        errors = [abs(one.error) for one in trials]
        # Advice to leave everything as it is, is advice too.
        advised = next((one for one in trials if one.name == advice["best"]), trials[0])
        slower = advised.measured / min(one.measured for one in trials if one.is_ready)
        yield Row(
            consumer,
            {
                "configurations": len(trials),
                "mean error": Target(fmean(errors), " %", at_most=MEAN_ERROR),
                "largest error": Figure(max(errors), " %"),
                "advised": advised.name,
                "time / that of the fastest": Target(slower, " x", at_most=SLOWER),
            },
            "Epochs of training with a step of",
        )
    for name, shown in cells.items():
        yield Row(name, shown, "Predicted / measured, and the error of the prediction")


# -- pipelines with a known bottleneck


class SlowDiskDataset(OCRDataset):
    """Pages on a disk that reads one file at a time."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.source = SlowDisk(self.source, 0.05)  # type: ignore[assignment]


def stage(name: str, seconds: float) -> str:
    return f"{{_target_:benchmarks.artificial.{name},seconds:{seconds}}}"


def cases() -> dict[str, tuple[list[str], str, float, str]]:
    """Stages, class of the dataset, milliseconds of a step, and the stage that must be named."""
    folder, slow_disk = "ocr.datasets.OCRDataset", "benchmarks.tables.advisor.SlowDiskDataset"
    short, long = stage("Burn", 0.02), stage("Burn", 0.05)
    return {
        "sleep": ([stage("Sleep", 0.08), short], folder, 20, "Sleep"),
        "CPU": ([long, stage("Sleep", 0.004)], folder, 20, "Burn"),
        "GIL": ([stage("HoldInterpreter", 0.04), short], folder, 20, "HoldInterpreter"),
        "slow disk": ([short], slow_disk, 20, "source"),
        "slow consumer": ([short], folder, 600, "model"),
    }


@benchmark("bottlenecks", table="results#bottlenecks", threads=None, pages=(), rounds=3)
def bottlenecks(data: Data) -> Iterator[Row]:
    """Pipelines with one known bottleneck: whether it is named, and predictions for them and for what is advised."""
    pages = data.work_folder / "pages"
    synthesize(pages, train=64, val=1, seed=0, megapixels=(0.1, 0.2), show_progress=False)
    chosen = data.setting("advise.cases", "").split(",")
    for name, (stages, dataset, step_ms, expected) in cases().items():
        if not any(word in name for word in chosen):
            continue
        letterbox = "{_target_:ocr.pipeline.prefix.Letterbox,size:64}"
        given = [
            f"dataset_base_path={pages}",
            "data.cache=off",
            "dataloaders.train_dataloader.batch_size=8",
            f"transforms.train_transform.transforms=[{','.join([letterbox, *stages])}]",
            f"datasets.train_dataset._target_={dataset}",
        ]
        advice = advise(given, step_ms)
        best = next((one for one in advice["remedies"] if one["name"] == advice["best"]), None)
        seconds = measure(given, step_ms, data.rounds, data.work_folder)
        named = advice["present"]["bottleneck"]
        cells: dict[str, Figure | Target | str] = {
            "named": named if named == expected else f"{named} (missed: it is {expected})",
            **prediction(advice["present"]["epoch_s"], seconds),
            "advised": "nothing" if best is None else best["name"],
        }
        if best is not None:
            seconds = measure([*given, *best["overrides"]], step_ms, data.rounds, data.work_folder)
            cells |= prediction(best["epoch_s"], seconds, "then ")
        yield Row(name, cells, "64 pages; the bottleneck that was built in")
