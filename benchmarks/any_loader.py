"""Advice for loaders that are not ours: pipelines of public packages with a known bottleneck; predicted and run.

python benchmarks/any_loader.py                            # all; needs an otherwise idle machine
python benchmarks/any_loader.py --only timm --only datasets
python benchmarks/any_loader.py --docs docs/advisor.md     # also write the table into the documentation

Each runs `ocr.advisor.advise(loader, step, verify=True)` in an environment that has its packages, made now if one is
missing. The bottleneck must be named, and the epochs before and after what was advised must come within 15 % of what
they then take. What was measured is kept: --again measures a pipeline anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.document_parts import replace_part, table_line
from benchmarks.foreign_pipelines import PIPELINES
from benchmarks.measure import console
from benchmarks.peer_process import ENVIRONMENT, ROOT, PeerError, last_line, make_environment, version_of
from benchmarks.peer_worker import MARK
from ocr.advisor.measure.other_processes import CpuOfOthers, warning
from ocr.atomic import replacing
from ocr.checks import check_integer
from ocr.system import usable_cores

PART = "any-loader"
"""Of the document that --docs names."""
WITHIN = 0.15
HEADINGS = (
    *("pipeline", "bottleneck built in", "named", "an epoch predicted", "measured", "error"),
    *("advised", "then predicted", "measured", "error"),
)
Figures = dict[str, Any]


def make_images(folder: Path, count: int) -> None:
    """JPEGs of two classes, with a label per image as ultralytics reads them."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / "images" / "ab"[number % 2] / f"{number:04d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(rng.integers(0, 256, (480, 640, 3), dtype=np.uint8))
        noise.filter(ImageFilter.GaussianBlur(2)).save(path, quality=90)
        label = folder / "labels" / path.parent.name / f"{path.stem}.txt"
        label.parent.mkdir(parents=True, exist_ok=True)
        label.write_text(f"{number % 2} 0.5 0.5 0.4 0.4\n", encoding="ascii")


def run_pipeline(name: str, folder: Path, options: argparse.Namespace) -> Figures:
    """What the advisor told of one pipeline, and its epochs; or the error."""
    pipeline = PIPELINES[name]
    try:
        python = make_environment(pipeline.peer, options.environments)
    except PeerError as error:
        return {"error": str(error)}
    command = [python, "-m", "benchmarks.foreign_pipelines", name, str(folder), str(options.items)]
    own = {"PYTHONPATH": str(ROOT), "YOLO_OFFLINE": "true", "YOLO_CONFIG_DIR": str(folder)}
    environment = os.environ | ENVIRONMENT | own
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    # Not splitlines(): the mark would end a line.
    told = [json.loads(line[len(MARK) :]) for line in done.stdout.split("\n") if line.startswith(MARK)]
    if not told:
        return {"error": last_line(done.stderr) or f"code {done.returncode}"}
    if options.show:
        console.print(done.stdout.partition(MARK)[0].rstrip(), markup=False, highlight=False)
    figures: Figures = told[-1]["result"]
    return figures | {"version": version_of(python, pipeline.peer)}


def errors(figures: Figures) -> list[float]:
    """Of the predictions for the present pipeline and, if something was advised, for that."""
    names = ("present", figures["best"])
    return [predicted / measured - 1 for name, predicted, measured in figures["verified"] if name in names]


def is_right(name: str, figures: Figures) -> bool:
    """Whether the bottleneck was named, and what matters was predicted."""
    named = figures.get("bottleneck") == PIPELINES[name].bottleneck
    return named and all(abs(error) <= WITHIN for error in errors(figures))


def row(name: str, figures: Figures) -> list[str]:
    """A line of the table."""
    pipeline = PIPELINES[name]
    if "error" in figures:
        return [pipeline.title, pipeline.built_in, f"not run: {figures['error']}", *[""] * 7]
    times = {one: (predicted, measured) for one, predicted, measured in figures["verified"]}
    advised = figures["best"] or "nothing"
    cells = [_times(*times["present"]), _times(*times[advised]) if advised in times else ["", "", ""]]
    shown = f"{advised}: {figures['change']}" if figures["change"] else advised
    return [pipeline.title, pipeline.built_in, figures["bottleneck"], *cells[0], shown, *cells[1]]


def in_words(cells: list[str]) -> str:
    """A line of the table for the screen, which has no room for its columns."""
    title, *rest = cells
    told = [f"{heading} {cell}" for heading, cell in zip(HEADINGS[1:], rest, strict=True) if cell]
    return f"{title}: {', '.join(told)}"


def _times(predicted: float, measured: float) -> list[str]:
    return [f"{predicted:.2f} s", f"{measured:.2f} s", f"{predicted / measured - 1:+.0%}"]


def write_table(kept: dict[str, Figures], path: Path, options: argparse.Namespace) -> None:
    """Replace what is between the marks of a document."""
    ran = [figures for figures in kept.values() if "error" not in figures]
    every = [abs(each) for figures in ran for each in errors(figures)]
    others = [abs(predicted / measured - 1) for figures in ran for _, predicted, measured in figures["verified"]]
    versions = [
        f"{PIPELINES[name].packages[0]} {figures['version']}"
        for name, figures in kept.items()
        if figures.get("version")
    ]
    right = sum(is_right(name, figures) for name, figures in kept.items())
    lines = [
        f"{date.today().isoformat()}, {usable_cores()} CPU cores, {options.images} images"
        f"{', ' + options.remark if options.remark else ''}: `python benchmarks/any_loader.py`. "
        f"{right} of {len(kept)} have the right name and every error here within {WITHIN:.0%}; the mean of these "
        f"{len(every)} errors is {np.mean(every):.0%}, and of all {len(others)} configurations that were tried "
        f"{np.mean(others):.0%}.",
        "",
        table_line(HEADINGS),
        table_line(["---"] * 3 + ["---:"] * 3 + ["---"] + ["---:"] * 3),
        *(table_line(row(name, figures)) for name, figures in kept.items()),
        "",
        f"Versions: {', '.join(dict.fromkeys(versions))}.",
    ]
    replace_part(path, PART, lines)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[*PIPELINES], help="may be repeated (default: all)")
    parser.add_argument("--again", action="append", choices=[*PIPELINES], help="measure anew; may be repeated")
    parser.add_argument("--images", type=int, default=192, help="JPEGs that are made (default: 192)")
    parser.add_argument("--items", type=int, default=32, help="items that the advisor measures (default: 32)")
    parser.add_argument("--folder", type=Path, default=Path("data/any_loader"), help="figures (default: %(default)s)")
    parser.add_argument(
        "--environments",
        type=Path,
        default=Path("data/peers/environments"),
        help="folder of the environments, shared with benchmarks/peers.py (default: %(default)s)",
    )
    parser.add_argument("--show", action="store_true", help="also show all that the advisor says")
    parser.add_argument("--remark", default="", help="said of the measurement in the document")
    parser.add_argument("--docs", type=Path, help="document whose table is replaced: docs/advisor.md")
    return parser.parse_args()


def main() -> int:
    options = parse()
    for name in ("images", "items"):
        check_integer(f"--{name}", getattr(options, name), 1)
    file = options.folder / "figures.json"
    kept: dict[str, Figures] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    options.folder.mkdir(parents=True, exist_ok=True)
    others = CpuOfOthers()
    with tempfile.TemporaryDirectory(prefix="glyphfeed-bench-") as folder, console.status("making images") as status:
        make_images(Path(folder), options.images)
        for name in options.only or PIPELINES:
            if name in kept and "error" not in kept[name] and name not in (options.again or []):
                continue
            status.update(PIPELINES[name].title)
            kept[name] = run_pipeline(name, Path(folder), options)
            kept = {each: kept[each] for each in PIPELINES if each in kept}
            with replacing(file) as stream:
                stream.write((json.dumps(kept, indent=1) + "\n").encode())
    for name, figures in kept.items():
        console.print(in_words(row(name, figures)), markup=False, highlight=False, soft_wrap=True)
    console.print(warning(others.share()) or "")
    if options.docs:
        write_table(kept, options.docs, options)
    wrong = [
        PIPELINES[name].title for name, figures in kept.items() if "error" in figures or not is_right(name, figures)
    ]
    console.print(f"wrong: {', '.join(wrong)}" if wrong else "every answer is right")
    return 1 if wrong else 0


if __name__ == "__main__":
    measure.exit_with(main)
