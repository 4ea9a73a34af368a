"""A run of `glyphfeed train` as its folder shows it: metrics, settings, checkpoints and hardest pages."""

from __future__ import annotations

import csv
import json
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ocr.errors import DataError
from ocr.report.charts import Point

LOSS, WAIT = "train/loss", "data_wait"
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
"""Larger numbers are not counts: a float does not distinguish them from their neighbours."""


@dataclass(frozen=True)
class Run:
    """What a run wrote into its folder. Epochs count from 1."""

    name: str
    folder: Path
    written: str
    command: str
    data: str | None
    losses: Sequence[Point]
    """Epochs trained until a step, with a fraction, and its loss."""
    epochs: Sequence[Mapping[str, Any]]
    """`epoch`, the EPOCH_FIGURES that were logged, and `seconds` by part."""
    max_epochs: int | None
    settings: Mapping[str, str]
    hardest: Sequence[Mapping[str, Any]] | None
    """Pages with the lowest scores, worst first; None if the run kept no list."""
    checkpoints: Sequence[tuple[str, int]]
    """Names and bytes."""

    @property
    def trained(self) -> int:
        """How many epochs have ended."""
        return max((epoch["epoch"] for epoch in self.epochs), default=0)

    @property
    def last_loss(self) -> float | None:
        """The mean of the last epoch that has ended."""
        last = [loss for at, loss in self.losses if self.trained - 1 < at <= self.trained]
        return fmean(last) if last else None

    def curve(self, figure: str) -> list[Point]:
        """Epochs trained so far, and a figure of the epoch; those without one are left out."""
        return [(epoch["epoch"], epoch[figure]) for epoch in self.epochs if figure in epoch]

    @cached_property
    def best(self) -> Mapping[str, Any]:
        """The epoch with the highest H-mean; empty if nothing was validated."""
        return max((e for e in self.epochs if "hmean" in e), key=lambda epoch: epoch["hmean"], default={})

    @cached_property
    def wait_shares(self) -> list[Point]:
        """Epochs trained so far, and the share of the epoch in which the model waited for data."""
        timed = [(epoch["epoch"], epoch["seconds"]) for epoch in self.epochs if WAIT in epoch.get("seconds", {})]
        return [(at, spent[WAIT] / sum(spent.values())) for at, spent in timed if sum(spent.values())]

    @property
    def wait_share(self) -> float | None:
        return median_of(self.wait_shares)

    @property
    def samples_per_s(self) -> float | None:
        return median_of(self.curve("samples_per_s"))

    @property
    def most_bytes(self) -> float | None:
        """The largest memory after an epoch; None if the run did not log it."""
        return max((1e9 * size for _, size in self.curve("memory_gb")), default=None)

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Of each part of an epoch, the mean over all epochs."""
        timed = [epoch["seconds"] for epoch in self.epochs if "seconds" in epoch]
        parts = dict.fromkeys(part for spent in timed for part in spent)
        return {part: fmean(spent.get(part, 0.0) for spent in timed) for part in parts}

    @property
    def total_seconds(self) -> float | None:
        return sum(sum(epoch.get("seconds", {}).values()) for epoch in self.epochs) or None


def median_of(points: Sequence[Point]) -> float | None:
    return median(value for _, value in points) if points else None


def read_run(folder: Path) -> Run:
    """A run from its folder; DataError if that is not the output_dir of a training."""
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
    return Run(
        name=folder.resolve().name,
        folder=folder,
        written=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(files[-1].stat().st_mtime)),
        command=shlex.join(["glyphfeed", "train", *map(str, typed)]) if isinstance(typed, list) else "",
        data=settings.get("dataset_base_path"),
        losses=metrics.losses_by_epoch(),
        epochs=[{"epoch": epoch + 1, **figures} for epoch, figures in sorted(metrics.epochs.items())],
        max_epochs=trainer.get("max_epochs") if isinstance(trainer, dict) else None,
        settings=dict(_flat(settings)) if settings else {},
        hardest=_read_hardest(folder / HARDEST),
        checkpoints=[(file.name, file.stat().st_size) for file in sorted(folder.glob("checkpoints/*.ckpt"))],
    )


class _Metrics:
    """The rows of one or more metrics files: a resumed run has one more, which can repeat the last steps."""

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

    def losses_by_epoch(self) -> list[Point]:
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
        return [(float(epoch), self._losses[step]) for epoch, step in zip(done, at, strict=True)]


def _rows(file: Path) -> Iterator[dict[str, float]]:
    """Rows that belong to an epoch, without empty cells; the last can be incomplete while the run lasts."""
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
            f"{file}: epoch {epoch:g}, step {step:g} must be counts. Restore it", value=(epoch, step), path=file
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

    References such as ${oc.env:KEY} are left as they are: what they stand for might be a secret.
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
