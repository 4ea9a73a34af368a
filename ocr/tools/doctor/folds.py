"""Cross-fitting: every page is judged by a detector that has not learnt its labels."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from ocr.atomic import replacing
from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.formats import Annotations, Page, write_native
from ocr.jobs.run import quoted_override
from ocr.tools.doctor.findings import Report, Split
from ocr.tools.doctor.fix import usable_pages
from ocr.tools.doctor.labels import LabelChecker

EXPERIMENT = "experiment=finetune"
# Nothing is chosen by the labels of the fold: no validation, and the last weights are taken.
SETTINGS = (
    "decode.annotation_frame=upright",
    "trainer.limit_val_batches=0",
    *(f"callbacks.{name}=null" for name in ("best", "early_stopping", "drawings", "worst_pages")),
)
FINISHED = "finished.json"


def cross_fit(report: Report, folds: int, work: Path, settings: Sequence[str], console: Console) -> list[LabelChecker]:
    """Train a detector per fold on the pages of all others, and return which pages each may judge.

    `work` holds the detectors, by the labels and the settings that they come from: the same call goes on where it was
    stopped, and trains nothing twice.
    """
    check_integer("--folds", folds, minimum=2)
    checkers = []
    for split in report.splits:
        pages = usable_pages(split)
        if not pages:
            continue
        if len(pages) < folds:
            raise ConfigError(
                f"--folds {folds}: {split.folder} has {len(pages)} readable pages. Set fewer folds",
                setting="--folds",
                value=folds,
                path=split.folder,
            )
        home = work / f"{split.name}-{_digest(split, pages, folds, settings)}"
        for number, own in enumerate(_assign(list(pages), folds), 1):
            told = f"fold {number} of {folds} of {split.name}"
            model = _train(split, pages, own, home / f"fold_{number}", settings, told, console)
            checkers.append(LabelChecker(model, {split.name: own}))
    return checkers


def _assign(names: list[str], folds: int) -> list[list[str]]:
    """Pages by fold, at random, the same in every call."""
    order = np.random.default_rng(0).permutation(len(names))
    return [[names[at] for at in sorted(order[fold::folds])] for fold in range(folds)]


def _digest(split: Split, pages: dict[str, Page], folds: int, settings: Sequence[str]) -> str:
    """Other labels, images or settings: other detectors."""
    digest = blake2b(digest_size=8)
    digest.update(json.dumps([str(split.folder.resolve()), folds, *settings]).encode())
    for name, page in pages.items():
        labels = [[word.key, word.points, word.ignore] for word in page.words]
        digest.update(json.dumps([name, split.images[name].byte_count, labels]).encode())
    return digest.hexdigest()


def _train(
    split: Split,
    pages: dict[str, Page],
    own: Sequence[str],
    home: Path,
    settings: Sequence[str],
    told: str,
    console: Console,
) -> Path:
    """The checkpoint of a detector that was trained on all pages but its own."""
    checkpoint = home / "run" / "checkpoints" / "last.ckpt"
    if (home / FINISHED).exists() and checkpoint.exists():
        console.print(Text(f"{told}: trained before, {checkpoint}"), soft_wrap=True)
        return checkpoint
    left_out = set(own)
    parts = {"train": [name for name in pages if name not in left_out], "val": own}
    for part, names in parts.items():
        file = home / f"{part}.json"
        write_native(Annotations(str(file), "native", {name: pages[name] for name in names}), file)
    paths = {"image_path": str(split.folder.resolve())}
    overrides = [
        quoted_override(f"datasets.{part}_dataset.{key}", value)
        for part, file in (("train", "train"), ("val", "val"), ("test", "val"))
        for key, value in (paths | {"annotation_path": str((home / f"{file}.json").resolve())}).items()
    ]
    run = quoted_override("hydra.run.dir", str((home / "run").resolve()))
    resume = [quoted_override("resume", str(checkpoint.resolve()))] if checkpoint.exists() else []
    command = [sys.executable, "-m", "ocr.jobs.train", EXPERIMENT, *SETTINGS, *overrides, run, *resume, *settings]
    console.print(Text(f"{told}: training on {len(parts['train'])} pages to judge {len(own)}"), soft_wrap=True)
    # On the screen of the errors: the other one may carry the report.
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode or not checkpoint.exists():
        raise ConfigError(
            f"{told}: training ended with status {done.returncode}. The same command goes on from there",
            setting="--folds",
            value=done.returncode,
            path=home,
        )
    with replacing(home / FINISHED) as stream:
        stream.write(json.dumps({"checkpoint": str(checkpoint), "pages": len(parts["train"])}).encode())
    return checkpoint
