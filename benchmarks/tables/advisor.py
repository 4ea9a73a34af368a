"""The advisor against the clock: what `ocr advise` predicts, and what a plain loop in a fresh process then takes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.harness import ROOT, Data, Figure, Row, Target, benchmark, fresh_process
from ocr.datasets import OCRDataset
from ocr.errors import DataError
from ocr.tools.synth import synthesize

STEPS: dict[str, float | None] = {"2 ms": 2, "5 ms": 5, "20 ms": 20, "100 ms": 100, "the model": None}
EPOCHS = 3
MEAN_ERROR, LARGEST_ERROR, SLOWER = 10, 20, 1.03
LITE = ("model=lite", "dataloaders.train_dataloader.batch_size=8")


def advise(given: Sequence[str], step_ms: float | None) -> dict[str, Any]:
    """What `ocr advise KEY=VALUE...` writes with json=FILE."""
    with tempfile.TemporaryDirectory(prefix="glyphfeed-advise-") as folder:
        file = Path(folder) / "advice.json"
        step = [] if step_ms is None else [f"step_ms={step_ms:g}"]
        command = [sys.executable, "-m", "ocr.cli", "advise", *given, *step, f"json={file}"]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": path})
        if done.returncode:
            raise DataError(f"{shlex.join(command)} ended with status {done.returncode}; its error is above")
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def plain_epoch(given: Sequence[str], step_ms: float | None) -> float:
    """Seconds of an epoch, the median of three, as somebody else would measure them."""
    from ocr.datasets.data_module import OCRDataModule
    from ocr.jobs.compose import compose_training
    from ocr.jobs.threads import share_cores

    config = compose_training(list(given))
    share_cores(config)
    loader = OCRDataModule(config).loader("train")
    step = _train_step(config) if step_ms is None else lambda batch: time.sleep(step_ms / 1e3)
    seconds = []
    for _ in range(EPOCHS):
        began = time.perf_counter()
        for batch in loader:
            step(batch)
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def _train_step(config: Any) -> Any:
    from ocr.jobs.train import build_module

    module = build_module(config).train()
    optimizer = module.build_optimizer()

    def step(batch: dict[str, Any]) -> None:
        loss, _ = module.loss(module.model(module.normalization.on_device(batch["images"])), batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(given: Sequence[str], step_ms: float | None) -> float:
    """In a process of its own, with the threads that torch takes by itself."""
    os.environ.setdefault("GOMP_SPINCOUNT", "0")  # As `ocr train` has it.
    with fresh_process(None) as process:
        return process.submit(plain_epoch, list(given), step_ms).result()


@benchmark("advice", table="results#advice", pages=("receipts", "forms"), threads=None, rounds=1)
def advice(data: Data) -> Iterator[Row | str]:
    """Epochs that `ocr advise` predicts, and what they take; `--set advice.steps=20 ms,2 ms`: fewer."""
    errors = []
    for place in (data.receipts, data.forms):
        for name in data.setting("advice.steps", ",".join(STEPS)).split(","):
            step_ms = STEPS[name]
            given = [f"dataset_base_path={place}", *(LITE if step_ms is None else ())]
            measured = [measure(given, step_ms)]
            found = advise(given, step_ms)
            overrides = found["best"]["change"]["overrides"] if found["best"] is not None else []
            then = [measure([*given, *overrides], step_ms)] if overrides else []
            # The same loop twice, before and after: how far two runs of it are apart is the noise.
            measured.append(measure(given, step_ms))
            took = fmean(measured)
            errors.append(100 * abs(found["epoch_s"] / took - 1))
            cells: dict[str, Any] = {
                "predicted": Figure(found["epoch_s"], "s"),
                "measured": Figure(took, "s"),
                "error": Target(errors[-1], " %", at_most=LARGEST_ERROR),
                "the loop twice": Figure(100 * (max(measured) / min(measured) - 1), " %"),
                "others": Figure(100 * found["others_share"], " %"),
                "advised": "nothing",
            }
            if then:
                then.append(measure([*given, *overrides], step_ms))
                errors.append(100 * abs(found["best"]["seconds"] / fmean(then) - 1))
                cells |= {
                    "advised": " ".join(overrides),
                    "then": Figure(fmean(then), "s"),
                    "its error": Target(errors[-1], " %", at_most=LARGEST_ERROR),
                    "then / before": Target(fmean(then) / took, at_most=SLOWER),
                }
            yield Row(f"{place.name}, {name}", cells, "Epochs of training with a step of")
    yield Row("mean error", {"error": Target(fmean(errors), " %", at_most=MEAN_ERROR)}, "All predictions")


# -- configurations with a known cause


class SlowDisk(OCRDataset):
    """Pages on a disk that reads one file at a time, in 30 ms."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        lock, read = threading.Lock(), self.source.read

        def slow(index: int) -> Any:
            with lock:
                time.sleep(0.03)
            return read(index)

        object.__setattr__(self.source, "read", slow)


def bad_configurations() -> dict[str, tuple[tuple[str, ...], float | None, str]]:
    """Overrides, milliseconds of a step, and words of the cause that must be named."""
    slow_stage = "{_target_:albumentations.Sharpen,p:1},{_target_:albumentations.MedianBlur,blur_limit:[15,15],p:1}"
    stages = f"[${{transforms.letterbox}},{slow_stage},${{transforms.normalization}}]"
    return {
        "no worker": (("data.num_workers=0",), 20, "no worker"),
        "one thread": (("data.num_workers=1", "data.cache=off"), 5, "worker thread|every page is read and decoded"),
        "no cache on large pages": (("data.cache=off",), 5, "every page is read and decoded"),
        "eight processes": (("data.engine=processes", "data.num_workers=8"), 5, "worker processes"),
        "float pages": (("transforms.normalize=host",), 2, "floats"),
        "tiny batches": (("model=lite", "dataloaders.train_dataloader.batch_size=1"), None, "only 1 page per step"),
        "slow disk": (
            ("data.cache=off", "datasets.train_dataset._target_=benchmarks.tables.advisor.SlowDisk"),
            5,
            "every page is read and decoded",
        ),
        "slow transform": ((f"transforms.train_transform.transforms={stages}",), 2, "Sharpen|MedianBlur|interpreter"),
        "a slow model": ((), 400, "the step of 400 ms"),
        "channels first": ((*LITE, "model.channels_last=false"), None, "channels first"),
    }


@benchmark("bad-settings", table="results#bad-settings", threads=None, pages=(), rounds=1)
def bad_settings(data: Data) -> Iterator[Row]:
    """Ten deliberately bad configurations, and the cause that is named; `--set bad-settings.only=no worker`: one."""
    pages = data.work_folder / "pages"
    synthesize(pages, train=64, val=1, seed=0, megapixels=(4.0, 8.0), show_progress=False)
    chosen = data.setting("bad-settings.only", "").split(",")
    for name, (overrides, step_ms, expected) in bad_configurations().items():
        if not any(word in name for word in chosen):
            continue
        given = [f"dataset_base_path={pages}", f"cache.folder={data.work_folder / 'cache'}", *overrides]
        found = advise(given, step_ms)
        named = found["cause"]
        right = any(words in named for words in expected.split("|"))
        best = found["best_single"]
        cells = {
            "named": named if right else f"{named} (missed: {expected})",
            "right": Target(float(right), at_least=1, digits=0),
            "advised": " ".join(best["change"]["overrides"]) if best else "nothing",
            "times as fast": Figure(best["gain"], " x") if best else None,
        }
        yield Row(name, cells, "64 pages of 4 to 8 megapixels")
