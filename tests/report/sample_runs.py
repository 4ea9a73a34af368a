"""Folders as `ocr train` writes them, without the training."""

import csv
import json
from pathlib import Path
from typing import Any

from ocr.report.runs import Run, read_run

AWKWARD = 'run <1> & "co"'
COLUMNS = [
    "epoch",
    "lr-AdamW",
    "memory_gb",
    "samples_per_second",
    "seconds/backward",
    "seconds/data_wait",
    "seconds/forward",
    "step",
]
COLUMNS += ["train/loss", "val/hmean", "val/hmean_70", "val/precision", "val/recall"]
HARDEST = [
    {"page": "b.jpg", "hmean": 0.25, "hmean_70": 0.1, "missed": 7, "false": 2, "epoch": 5},
    {"page": "<a>.jpg", "hmean": 0.5, "hmean_70": 0.4, "missed": 3, "false": 0, "epoch": 5},
]


def metrics(epochs: range, steps: int, hmean: float, wait: float) -> list[dict[str, Any]]:
    """A loss every other step, a validation every other epoch."""
    rows: list[dict[str, Any]] = []
    for epoch in epochs:
        last = (epoch + 1) * steps - 1
        for step in range(epoch * steps + 1, last + 1, 2):
            rows += [{"step": step, "lr-AdamW": 0.001}, {"epoch": epoch, "step": step, "train/loss": 8 / (step + 1)}]
        if epoch % 2:
            scores = {"val/hmean": hmean - 0.5 / (epoch + 1), "val/hmean_70": hmean - 0.1 - 0.5 / (epoch + 1)}
            rows.append({"epoch": epoch, "step": last, "val/precision": 0.9, "val/recall": 0.8, **scores})
        seconds = {"seconds/data_wait": wait, "seconds/forward": 3.0, "seconds/backward": 7.0 - wait}
        rows.append({"epoch": epoch, "step": last, "samples_per_second": 12.5, "memory_gb": 1.5, **seconds})
    return rows


def write_metrics(folder: Path, version: int, rows: list[dict[str, Any]]) -> Path:
    file = folder / f"csv/version_{version}/metrics.csv"
    file.parent.mkdir(parents=True)
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return file


def write_run(
    folder: Path, epochs: int = 6, steps: int = 4, hmean: float = 0.9, wait: float = 0.2, channels: int = 64
) -> Path:
    """A run that has ended."""
    write_metrics(folder, 0, metrics(range(epochs), steps, hmean, wait))
    (folder / ".hydra").mkdir()
    (folder / ".hydra/config.yaml").write_text(
        f"dataset_base_path: /data/<pages>\noutput_dir: {folder.name!r}\nmodel: {{channels: {channels}, k: 50.0}}\n"
        f"key: ${{oc.env:SECRET}}\nsizes: [1, 2]\nstages: [{{p: 0.5}}]\nresume: null\n"
        f"trainer: {{max_epochs: {epochs}}}\n"
    )
    (folder / ".hydra/overrides.yaml").write_text(f"- 'dataset_base_path=/data/<pages>'\n- model.channels={channels}\n")
    (folder / "worst_pages.json").write_text(json.dumps(HARDEST))
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/best.ckpt").write_bytes(bytes(1000))
    return folder


def three_runs(folder: Path) -> list[Run]:
    """A short one, a long one with an awkward name, and one that has only begun."""
    short = write_run(folder / "short")
    long = write_run(folder / AWKWARD, epochs=80, steps=30, hmean=0.95, wait=2.0, channels=128)
    begun = folder / "begun"
    write_metrics(begun, 0, metrics(range(1), 4, 0.9, 0.2)[:4])
    return [read_run(run) for run in (short, long, begun)]
