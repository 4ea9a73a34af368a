"""Detectors as they are deployed, and RapidOCR's, on the same pages: speed, size, memory, start-up, H-mean.

Each runs in a process of its own, on one core and on two; rounds alternate, and the fastest of each page counts. A page
is all of it: from the file to its boxes.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import exported
from benchmarks.harness import ROOT, Data, Figure, Result, Row, benchmark, figure
from benchmarks.loaders import split_paths
from benchmarks.pictures import picture
from benchmarks.tables.trained import fine_tuned, hmeans, labelled_pages
from ocr.errors import DataError
from ocr.geometry.polygons import Polygons
from ocr.models.packaged import packaged_detector

CORES = (1, 2)
RAPIDOCR = "rapidocr"
FORMATS = {
    "onnx": ("fp16", "fp32", "int8"),
    "openvino": ("bf16", "fp16", "fp32", "int8"),
    "torchscript": ("fp32",),
}
FINE_TUNED = (("onnx", "int8"), ("openvino", "int8"))
LOSS = 0.002
"""Of the H-mean that an export can have at most, as `ocr export` allows."""


@dataclass
class Contender:
    """A model, and what was measured of it, per number of cores."""

    name: str
    model: str
    python: str = sys.executable
    seconds: dict[int, list[float]] = field(default_factory=dict)
    """Per page, of its fastest round."""
    start_seconds: float = float("inf")
    peak_bytes: int = 0
    file_bytes: int = 0
    polygons: list[Any] = field(default_factory=list)

    def run(self, paths: Sequence[str], cores: int) -> None:
        """One round in a new process."""
        command = [self.python, str(ROOT / "benchmarks/deploy_worker.py")]
        task = json.dumps({"model": self.model, "paths": list(paths), "cores": cores})
        environment = os.environ | ({"PYTHONPATH": str(ROOT)} if self.model != RAPIDOCR else {})
        done = subprocess.run(command, input=task, capture_output=True, text=True, env=environment)
        if done.returncode:
            reason = (done.stderr.strip() or "no message").splitlines()[-1]
            raise DataError(f"{self.name} cannot be measured: {reason}", value=self.model)
        told = json.loads(done.stdout.splitlines()[-1])
        before = self.seconds.get(cores, told["seconds"])
        self.seconds[cores] = [min(pair) for pair in zip(before, told["seconds"], strict=True)]
        self.start_seconds = min(self.start_seconds, told["start_seconds"])
        self.peak_bytes = max(self.peak_bytes, told["peak_bytes"])
        self.polygons, self.file_bytes = told["polygons"], told["file_bytes"]

    def mean(self, cores: int) -> float:
        """Seconds per page."""
        return float(np.mean(self.seconds[cores]))

    def hmeans(self, truth: Sequence[Polygons]) -> tuple[float, float]:
        """At IoU 0.5 and 0.7."""
        return hmeans([[np.array(polygon, np.float32) for polygon in page] for page in self.polygons], truth)


def draw(result: Result, target: Path) -> None:
    """H-mean against milliseconds per page: the best is at the top left."""
    from matplotlib import colormaps

    with picture(target, dpi=150, figsize=(9, 4.5)) as (drawing, axes):
        for row, colour in zip(result.rows, itertools.cycle(colormaps["tab20"].colors), strict=False):
            points, hmean = [row.value(heading(count)) for count in CORES], row.value("H-mean")
            axes.plot(points, [hmean] * len(points), color=colour, label=row.name)
            for milliseconds, marker in zip(points, "os", strict=True):
                axes.scatter(milliseconds, hmean, marker=marker, color=colour, zorder=3)
        for count, marker in zip(CORES, "os", strict=True):
            axes.scatter([], [], marker=marker, color="gray", label=heading(count).removeprefix("ms, "))
        axes.set(xscale="log", xlabel="milliseconds per page, from the file to its boxes", ylabel="H-mean at IoU 0.5")
        for which in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
            which("{x:.0f}")
        axes.grid(alpha=0.3, which="both")
        drawing.legend(loc="outside right upper")


@benchmark("deploy", table="results#deploy", threads=None, rounds=2, pictures={"pictures/deploy.png": draw})
def deploy(data: Data) -> Iterator[Row | str]:
    """Exports of the bundled detector, a fine-tuned one, and RapidOCR's; `--set deploy.models=onnx-int8`: some."""
    contenders, notes = [], []
    chosen = data.setting("deploy.models", "").split(",")
    for name, weights, exports in models(data, chosen):
        contenders += [Contender(f"{name}, torch", str(weights))]
        for to, precision in exports:
            try:
                contenders.append(Contender(f"{name}, {to}-{precision}", str(exported(data, weights, to, precision))))
            except DataError as error:
                notes.append(f"{name}, {to}-{precision}: {error}")
    reference = Contender("RapidOCR", RAPIDOCR, data.setting("deploy.rapidocr", str(ROOT / ".rapidocr/bin/python")))
    if Path(reference.python).exists():
        contenders.append(reference)
    else:
        reference = contenders[0]
        notes.append(
            "RapidOCR is not there: python -m venv .rapidocr && .rapidocr/bin/pip install rapidocr onnxruntime."
        )
    paths, truth = labelled_pages(*split_paths(data.receipts, "val"))
    take_turns(contenders, paths, data.rounds)
    least = None
    for one in contenders:
        loose, tight = one.hmeans(truth)
        hmean = figure(loose, at_least=None if one is reference else least, digits=4)
        if one.name.endswith(", torch"):  # The weights that the following ones were made of.
            hmean, least = Figure(loose, digits=4), loose - LOSS
        cells = {
            **{heading(count): Figure(1000 * one.mean(count), digits=0) for count in CORES},
            f"speed / {reference.name}": Figure(reference.mean(CORES[-1]) / one.mean(CORES[-1]), " x", digits=1),
            "H-mean": hmean,
            "at 0.7": Figure(tight, digits=4),
            "MB": Figure(one.file_bytes / 1e6, digits=1),
            "memory, MB": Figure(one.peak_bytes / 1e6, digits=0),
            "s to start": Figure(one.start_seconds, digits=1),
        }
        yield Row(one.name, cells, f"{len(paths)} pages of val, the fastest of {data.rounds} rounds")
    yield from notes
    yield ""
    yield "![H-mean against milliseconds](pictures/deploy.png)"


def heading(cores: int) -> str:
    return f"ms, {cores} core{'s' * (cores > 1)}"


def models(data: Data, chosen: Sequence[str]) -> Iterator[tuple[str, Path, list[tuple[str, str]]]]:
    """Name, weights and exports of each; the fine-tuned detector only if all are wanted."""
    exports = [(to, precision) for to, precisions in FORMATS.items() for precision in precisions]
    wanted = [one for one in exports if any(part in "-".join(one) for part in chosen)]
    yield "glyphfeed", Path(packaged_detector()), wanted
    if wanted == exports:
        yield "fine-tuned", fine_tuned(data), [*FINE_TUNED]


def take_turns(
    contenders: Sequence[Contender], paths: Sequence[str], rounds: int, cores: Sequence[int] = CORES
) -> None:
    """Every round measures every model on every number of cores."""
    for _, one, count in itertools.product(range(rounds), contenders, cores):
        one.run(paths, count)
