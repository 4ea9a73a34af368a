"""A run of `glyphfeed train` as a result for the report: its metrics, settings, checkpoints and hardest pages."""

from __future__ import annotations

import csv
import json
import math
import shlex
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from ocr.errors import DataError

LOSS = "train/loss"
EPOCH_FIGURES = {
    "hmean": "val/hmean",
    "hmean_70": "val/hmean_70",
    "precision": "val/precision",
    "recall": "val/recall",
    "samples_per_s": "samples_per_second",
    "memory_gb": "memory_gb",
}
"""Names in the report, and in the metrics."""
SECONDS = "seconds/"
HARDEST = "worst_pages.json"
MAX_STEPS = 1 << 53
"""Larger numbers are no counts: a float cannot tell them from their neighbours."""


def read_run(folder: Path) -> dict[str, Any]:
    """What a run wrote into its folder; DataError if that is not the output_dir of a training."""
    files = sorted(folder.glob("csv/version_*/metrics.csv"), key=_version)
    if not files:
        raise DataError(
            f"{folder} has no csv/version_0/metrics.csv, which training writes into its output_dir. Name that folder, "
            "or train with logger=csv",
            path=folder,
        )
    metrics = _Metrics()
    for file in files:
        metrics.add(file)
    settings, typed = _read_yaml(folder / ".hydra/config.yaml"), _read_yaml(folder / ".hydra/overrides.yaml")
    settings = settings if isinstance(settings, dict) else {}
    trainer = settings.get("trainer")
    data = {"place": settings.get("dataset_base_path"), "split": "train"}
    return {
        "kind": "run",
        "name": folder.resolve().name,
        "folder": str(folder),
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(files[-1].stat().st_mtime)),
        "command": shlex.join(["glyphfeed", "train", *map(str, typed)]) if isinstance(typed, list) else "",
        "machine": {},
        "data": data,
        "losses": metrics.losses_by_epoch(),
        "epochs": [{"epoch": epoch, **figures} for epoch, figures in sorted(metrics.epochs.items())],
        "max_epochs": trainer.get("max_epochs") if isinstance(trainer, dict) else None,
        "settings": dict(_flat(settings)) if settings else {},
        "hardest": _read_hardest(folder / HARDEST),
        "checkpoints": [
            {"name": file.name, "bytes": file.stat().st_size} for file in sorted(folder.glob("checkpoints/*.ckpt"))
        ],
    }


class _Metrics:
    """The rows of one or more metrics files: a resumed run has one more, which may repeat the last steps."""

    def __init__(self) -> None:
        self.epochs: dict[int, dict[str, Any]] = {}
        self._losses: dict[int, float] = {}
        self._last_steps: dict[int, int] = {}

    def add(self, file: Path) -> None:
        """Add a file; what it starts over replaces what was there."""
        rows = list(_rows(file))
        if not rows:
            return
        first_step, first_epoch = min(row["step"] for row in rows), min(int(row["epoch"]) for row in rows)
        self._losses = {step: loss for step, loss in self._losses.items() if step < first_step}
        for kept in (self.epochs, self._last_steps):
            for epoch in [epoch for epoch in kept if epoch >= first_epoch]:
                del kept[epoch]
        for row in rows:
            self._add_row(row)

    def _add_row(self, row: Mapping[str, float]) -> None:
        epoch, step = int(row["epoch"]), int(row["step"])
        if LOSS in row:
            self._losses[step] = row[LOSS]
        figures = {name: row[key] for name, key in EPOCH_FIGURES.items() if key in row}
        seconds = {key.removeprefix(SECONDS): value for key, value in row.items() if key.startswith(SECONDS)}
        if figures or seconds:
            self.epochs.setdefault(epoch, {}).update(figures | ({"seconds": seconds} if seconds else {}))
            self._last_steps[epoch] = step

    def losses_by_epoch(self) -> list[list[float]]:
        """Pairs of the epochs trained so far, with a fraction, and the loss of that step."""
        if not self._last_steps:
            return []
        ends = sorted((step + 1, epoch + 1) for epoch, step in self._last_steps.items())
        steps, epochs = (list(column) for column in zip((0, 0), *ends, strict=False))
        # Of an epoch that has not ended: as long as the one before.
        steps.append(2 * steps[-1] - steps[-2])
        epochs.append(2 * epochs[-1] - epochs[-2])
        at = sorted(self._losses)
        done = np.interp([step + 1 for step in at], steps, epochs)
        return [[float(epoch), self._losses[step]] for epoch, step in zip(done, at, strict=True)]


def _rows(file: Path) -> Iterator[dict[str, float]]:
    """Rows that belong to an epoch, without empty cells; the last may be incomplete while the run goes on."""
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                figures = {str(key): number for key, text in row.items() if (number := _number(text)) is not None}
                if {"epoch", "step"} <= figures.keys():
                    _check_counts(figures["epoch"], figures["step"], file)
                    yield figures
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read ({error}). Name the folder of a run", path=file) from error


def _check_counts(epoch: float, step: float, file: Path) -> None:
    if max(abs(epoch), abs(step)) > MAX_STEPS:
        raise DataError(
            f"{file}: epoch {epoch:g}, step {step:g} are no counts. Restore it", value=(epoch, step), path=file
        )


def _number(text: Any) -> float | None:
    try:
        number = float(text)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _version(file: Path) -> int:
    number = file.parent.name.removeprefix("version_")
    return int(number) if number.isdecimal() else -1


def _read_yaml(file: Path) -> Any:
    """The content of a config as it was written; None if there is none.

    References such as ${oc.env:KEY} are left as they are: what they stand for may be a secret.
    """
    try:
        return OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, YAMLError, OmegaConfBaseException) as error:
        raise DataError(f"{file} cannot be read ({error}). Restore it, or remove it", path=file) from error


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every setting under its full name.

    >>> dict(_flat({"model": {"channels": 64}, "sizes": [1, 2], "resume": None}))
    {'model.channels': '64', 'sizes': '[1, 2]', 'resume': 'null'}
    """
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for at, inner in enumerate(value):
            yield from _flat(inner, f"{name}.{at}")
    else:
        yield name, value if isinstance(value, str) else json.dumps(value, default=str)


def _read_hardest(file: Path) -> list[dict[str, Any]] | None:
    """The pages with the lowest scores, worst first; None if the run kept no list of them."""
    try:
        pages = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read ({error}). Restore it, or remove it", path=file) from error
    if not isinstance(pages, list):
        raise DataError(
            f"{file} must be a list of pages, as training writes it. Restore it, or remove it",
            value=pages,
            path=file,
        )
    return [page for page in pages if isinstance(page, dict)]
