"""Exported models, their checkpoint and RapidOCR on the same pages in one run: speed, size, memory, start-up, H-mean.

python benchmarks/deploy.py best.ckpt exported/onnx exported/openvino-int8 --data DIR
python benchmarks/deploy.py best.ckpt exported/* --data DIR --rapidocr .rapidocr/bin/python --plot deploy.png

Each model runs in a process of its own, on one core and on two; rounds alternate, and the fastest of each page counts.
A page is all of it: from the file to its boxes. RapidOCR may be installed elsewhere: python -m venv .rapidocr, then
.rapidocr/bin/pip install rapidocr onnxruntime (its detector, PP-OCRv6 small, comes in the package).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.document_parts import replace_part, table_lines
from benchmarks.measure import add_data_options, console, data_or_synthetic, exit_with
from ocr.atomic import replacing
from ocr.deploy.model_file import CHECKPOINTS
from ocr.errors import ConfigError
from ocr.evaluation.hmean import TIGHT_IOU, HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.jobs.export import folder_pages
from ocr.pipeline.decode import Decode

PART = "deploy"
RAPIDOCR = "rapidocr"
MARKERS = "osD^v"


@dataclass
class Contender:
    """One model, and what was measured of it, per number of cores."""

    name: str
    model: str
    python: str = sys.executable
    milliseconds: dict[int, list[float]] = field(default_factory=dict)
    """Per page, of its fastest round."""
    start_seconds: dict[int, float] = field(default_factory=dict)
    peak_bytes: int = 0
    file_bytes: int = 0
    polygons: list[Any] = field(default_factory=list)

    def run(self, paths: Sequence[str], cores: int) -> None:
        """One round in a new process."""
        command = [self.python, str(ROOT / "benchmarks" / "deploy_worker.py"), self.model]
        task = json.dumps({"paths": list(paths), "cores": cores})
        environment = os.environ | ({"PYTHONPATH": str(ROOT)} if self.model != RAPIDOCR else {})
        done = subprocess.run(command, input=task, capture_output=True, text=True, env=environment)
        if done.returncode:
            reason = (done.stderr.strip() or "no message").splitlines()[-1]
            raise ConfigError(f"{self.name} cannot be measured ({reason}). Try: {' '.join(command)}")
        told = json.loads(done.stdout.splitlines()[-1])
        before = self.milliseconds.get(cores, told["milliseconds"])
        self.milliseconds[cores] = [min(pair) for pair in zip(before, told["milliseconds"], strict=True)]
        self.start_seconds[cores] = min(self.start_seconds.get(cores, np.inf), told["start_seconds"])
        self.peak_bytes = max(self.peak_bytes, told["peak_bytes"])
        self.polygons, self.file_bytes = told["polygons"], told["file_bytes"]

    def mean(self, cores: int) -> float:
        """Milliseconds per page."""
        return float(np.mean(self.milliseconds[cores]))

    def hmeans(self, truth: Sequence[Polygons]) -> tuple[float, float]:
        """At IoU 0.5 and 0.7."""
        scores = HmeanIoU(), HmeanIoU(iou_threshold=TIGHT_IOU)
        for found, page in zip(self.polygons, truth, strict=True):
            for score in scores:
                score.update([np.array(polygon, np.float32) for polygon in found], page)
        loose, tight = (float(score.compute()["hmean"]) for score in scores)
        return loose, tight


def main() -> int:
    """Measure all models in turns, then print, write and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, help="checkpoints and folders or files of `ocr export`")
    parser.add_argument("--pages", type=int, default=16, help="pages of the split (default: 16)")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="numbers of cores (default: 1 2)")
    parser.add_argument("--rapidocr", metavar="PYTHON", help="interpreter of an environment that has rapidocr")
    parser.add_argument("--plot", type=Path, help="PNG file: H-mean against time per page")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--docs", type=Path, help="document whose table and plot are replaced: docs/results.md")
    add_data_options(parser, rounds=3)
    options = parser.parse_args()
    contenders = [Contender(label(path), str(path)) for path in options.models]
    if options.rapidocr:
        contenders.append(Contender("RapidOCR", RAPIDOCR, options.rapidocr))
    paths, truth = labelled_pages(data_or_synthetic(options.data), options.split, options.pages)
    take_turns(contenders, paths, options.cores, options.rounds)
    rows = [figures(contender, truth) for contender in contenders]
    title = f"{len(paths)} pages of {options.split}"
    console.print(table(rows, options.cores, title))
    if options.json:
        with replacing(options.json) as stream:
            stream.write(json.dumps(rows, indent=1).encode())
    if options.plot:
        plot(rows, options.cores, options.plot)
    if options.docs:
        plot(rows, options.cores, options.docs.parent / "pictures/deploy.png")
        picture = "![H-mean against milliseconds](pictures/deploy.png)"
        lines = table_lines(headings(rows, options.cores), cells(rows, options.cores))
        replace_part(options.docs, PART, [f"{title}, the fastest of {options.rounds} rounds:", "", *lines, "", picture])
    return 0


def label(path: Path) -> str:
    """What a model is called in the table: a checkpoint by its name, an export by its folder."""
    return f"{path.stem}, torch" if path.suffix in CHECKPOINTS else (path if path.is_dir() else path.parent).name


def labelled_pages(data: Path, split: str, limit: int) -> tuple[list[str], list[Polygons]]:
    """Files of pages that are spread over a split, and the text on them, in pixels of the upright page."""
    folder, labels = data / "images" / split, data / "jsons" / f"{split}.json"
    samples = [page.read(Decode()) for page in folder_pages(str(folder), str(labels), limit, "--pages")]
    return [sample.path for sample in samples], [sample.polygons for sample in samples]


def take_turns(contenders: Sequence[Contender], paths: Sequence[str], cores: Sequence[int], rounds: int) -> None:
    """Every round measures every model on every number of cores."""
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("rounds", total=rounds * len(contenders) * len(cores))
        for _ in range(rounds):
            for contender in contenders:
                for count in cores:
                    progress.update(bar, description=f"{contender.name}, {count} cores")
                    contender.run(paths, count)
                    progress.advance(bar)


def figures(contender: Contender, truth: Sequence[Polygons]) -> dict[str, Any]:
    """What the table shows of a model."""
    loose, tight = contender.hmeans(truth)
    return {
        "name": contender.name,
        "ms": {str(count): contender.mean(count) for count in contender.milliseconds},
        "start_seconds": min(contender.start_seconds.values()),
        "peak_mb": contender.peak_bytes / 1e6,
        "file_mb": contender.file_bytes / 1e6,
        "hmean": loose,
        "hmean_70": tight,
    }


def headings(rows: Sequence[dict[str, Any]], cores: Sequence[int]) -> list[str]:
    """Of the columns; speeds are beside the last model, which is RapidOCR if it is there."""
    times = [f"ms, {count} {'core' if count == 1 else 'cores'}" for count in cores]
    return ["", *times, f"speed / {rows[-1]['name']}", "H-mean", "at 0.7", "MB", "memory, MB", "s to start"]


def cells(rows: Sequence[dict[str, Any]], cores: Sequence[int]) -> list[list[str]]:
    """One row per model; the speed is that of the last number of cores."""
    last = str(cores[-1])
    return [
        [
            row["name"],
            *(f"{row['ms'][str(count)]:.0f}" for count in cores),
            f"{rows[-1]['ms'][last] / row['ms'][last]:.1f} x",
            *(f"{row[name]:.4f}" for name in ("hmean", "hmean_70")),
            *(f"{row['file_mb']:.1f}", f"{row['peak_mb']:.0f}", f"{row['start_seconds']:.1f}"),
        ]
        for row in rows
    ]


def table(rows: Sequence[dict[str, Any]], cores: Sequence[int], title: str) -> Table:
    """On the console."""
    shown = Table(title=title, title_justify="left")
    for heading in headings(rows, cores):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for row in cells(rows, cores):
        shown.add_row(*row)
    return shown


def plot(rows: Sequence[dict[str, Any]], cores: Sequence[int], path: Path) -> None:
    """H-mean against milliseconds per page: the best is at the top left."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    colours = pyplot.get_cmap("tab20").colors
    for row, colour in zip(rows, itertools.cycle(colours), strict=False):
        points = [row["ms"][str(count)] for count in cores]
        axes.plot(points, [row["hmean"]] * len(points), color=colour, label=row["name"])
        for milliseconds, marker in zip(points, MARKERS, strict=False):
            axes.scatter(milliseconds, row["hmean"], marker=marker, color=colour, zorder=3)
    for count, marker in zip(cores, MARKERS, strict=False):
        axes.scatter([], [], marker=marker, color="gray", label=f"{count} {'core' if count == 1 else 'cores'}")
    axes.set_xscale("log")
    for which in (axes.xaxis.set_major_formatter, axes.xaxis.set_minor_formatter):
        which("{x:.0f}")
    axes.set_xlabel("milliseconds per page, from the file to its boxes")
    axes.set_ylabel("H-mean at IoU 0.5")
    axes.grid(alpha=0.3, which="both")
    figure.legend(loc="outside right upper")
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=150)
    pyplot.close(figure)


if __name__ == "__main__":
    exit_with(main)
