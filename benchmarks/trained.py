"""Detectors trained by a recipe with several seeds, each scored once: H-mean at IoU 0.5 and 0.7, CLEval, minutes.

python benchmarks/trained.py --data DIR --out OUT                    # experiment=finetune, three seeds, scored on val
python benchmarks/trained.py --data DIR --out OUT --pages 50 --set experiment=documents --set weights=glyphfeed
python benchmarks/trained.py --data DIR --out OUT --held-out 5 --set optimizer.lr=0.001  # choose here, not on val

With --docs and --part, the table and the curve of the documentation are replaced: the part trained-receipts of
docs/results.md, for example.

The last weights are scored, so that no page that is scored chooses among epochs; validation in between is for the
curve alone. With --held-out, every n-th training page is scored instead of val, and the others train. A seed that is
done is not trained again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.document_parts import replace_part, table_lines
from benchmarks.measure import console, exit_with
from ocr.advisor.report.run_folder import read_run
from ocr.atomic import replacing
from ocr.errors import DataError

PARTS = "trained-"
"""What the names of its parts of a document begin with."""
HEADINGS = ("", "mean", "lowest", "highest")
SCORES = {"iou_50": "H-mean, IoU 0.5", "iou_70": "H-mean, IoU 0.7", "cleval": "H-mean, CLEval"}
RESAMPLED = 2000
COUNTED = ("matched", "boxes", "words")


@dataclass(frozen=True, slots=True)
class Pages:
    """Which pages train, and which are scored."""

    folder: Path
    train: Path
    """Annotation of the pages that train."""
    scored: Path
    scored_images: Path

    @classmethod
    def choose(cls, data: Path, out: Path, seed: int, count: int | None, held_out: int | None) -> Pages:
        """Those of the splits; or `count` of the training pages; or all but every n-th, which is then scored."""
        words = json.loads((data / "jsons/train.json").read_text())["images"]
        names = sorted(words)
        scored, images = data / "jsons/val.json", data / "images/val"
        if held_out is not None:
            scored, images = out / "scored.json", data / "images/train"
            _write_json(scored, {"images": {name: words[name] for name in names[::held_out]}})
            names = [name for number, name in enumerate(names) if number % held_out]
        if count is not None and count > len(names):
            raise DataError(f"--pages {count}, but {data} has {len(names)} pages to train on. Give a smaller number")
        if count is not None:
            names = sorted(np.random.default_rng(seed).choice(names, count, replace=False).tolist())
        _write_json(out / "train.json", {"images": {name: words[name] for name in names}})
        return cls(data, out / "train.json", scored, images)

    def settings(self) -> list[str]:
        """As settings of `ocr train`, `test` and `inspect`."""
        scored = [
            f"datasets.{split}_dataset.{key}={value}"
            for split in ("val", "test")
            for key, value in (("annotation_path", self.scored), ("image_path", self.scored_images))
        ]
        return [f"dataset_base_path={self.folder}", f"datasets.train_dataset.annotation_path={self.train}", *scored]


def main() -> int:
    """Train and score every seed that is not done, then show all."""
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    results = [one_seed(seed, options) for seed in options.seeds]
    summary = summarize(results)
    show(summary, results, options)
    draw(results, options.out / "curve.png")
    _write_json(options.out / "trained.json", {"settings": options.set, **summary, "seeds": results})
    console.print(f"written: {options.out}/trained.json, curve.png")
    if options.docs:
        pictures = options.docs.parent / "pictures"
        pictures.mkdir(exist_ok=True)
        draw(results, pictures / f"{options.part}.png")
        lines = [*table_lines(HEADINGS, rows(summary)), "", f"{told(summary, results)}.", ""]
        replace_part(options.docs, options.part, [*lines, f"![H-mean over minutes](pictures/{options.part}.png)"])
    return 0


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="images/{train,val} and jsons/{train,val}.json")
    parser.add_argument("--pages", type=int, help="of the training pages, drawn anew for every seed (default: all)")
    parser.add_argument("--held-out", type=int, help="score every n-th training page instead of val")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(default: 0 1 2)")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="(default: experiment=finetune)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs, the table and the curve")
    parser.add_argument("--docs", type=Path, help="document whose table and curve are replaced: docs/results.md")
    parser.add_argument("--part", help=f"of that document: {PARTS}receipts, for example")
    options = parser.parse_args()
    options.set = options.set or ["experiment=finetune"]
    if options.docs and not (options.part or "").startswith(PARTS):
        parser.error(f"--docs needs --part {PARTS}NAME")
    return options


def one_seed(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The scores of one training, from its folder if it is done."""
    out: Path = options.out / f"seed-{seed}"
    done = out / "result.json"
    if done.is_file():
        found: dict[str, Any] = json.loads(done.read_text())
        return found
    out.mkdir(exist_ok=True)
    pages = Pages.choose(options.data, out, seed, options.pages, options.held_out).settings()
    folder = out / "run"
    quiet = ["callbacks.best=null", "callbacks.early_stopping=null", "callbacks.drawings=null"]
    _run("train", *pages, *options.set, f"seed={seed}", f"hydra.run.dir={folder}", f"output_dir={folder}", *quiet)
    weights = folder / "checkpoints/last.ckpt"
    _run("inspect", f"checkpoint_path={weights}", *pages, f"out={out}", f"hydra.run.dir={out}", "atlas=false")
    inspected = json.loads((out / "inspection.json").read_text())
    pages_by_name = sorted(inspected["pages"], key=lambda page: page["page"])
    result = {
        "seed": seed,
        **{name: inspected["scores"][name]["hmean"] for name in SCORES},
        "counts": [[page[name] for name in COUNTED] for page in pages_by_name],
        "curve": _curve(folder),
    }
    _write_json(done, result)
    return result


def _run(command: str, *settings: str) -> None:
    subprocess.run([sys.executable, "-m", "ocr.cli", command, *settings], check=True)


def _curve(folder: Path) -> list[tuple[float, float]]:
    """Minutes of training and validation so far, and the H-mean of each validation."""
    points, seconds = [], 0.0
    for epoch in read_run(folder)["epochs"]:
        seconds += sum(epoch["seconds"].values())
        if epoch.get("hmean") is not None:
            points.append((seconds / 60, epoch["hmean"]))
    return points


def summarize(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and range over the seeds, and the interval of the mean if other pages had been drawn."""
    low, high = bootstrap(np.array([result["counts"] for result in results], dtype=np.int64))
    figures = {
        name: {"mean": float(np.mean(values)), "low": min(values), "high": max(values)}
        for name in SCORES
        if (values := [result[name] for result in results])
    }
    return {"scores": figures, "interval": [low, high], "minutes": float(np.mean([minutes(r) for r in results]))}


def bootstrap(counts: NDArray[np.int64], seed: int = 0) -> tuple[float, float]:
    """95 % of the means over seeds of the H-mean, over sets of pages drawn from these (seeds, pages, COUNTED).

    >>> bootstrap(np.tile([8, 10, 10], (2, 5, 1)))
    (0.8, 0.8)
    """
    pages = counts.shape[1]
    drawn = np.random.default_rng(seed).integers(0, pages, (RESAMPLED, pages))
    matched, found, words = np.moveaxis(counts[:, drawn].sum(axis=2), -1, 0)
    hmeans = (2 * matched / np.maximum(found + words, 1)).mean(axis=0)
    low, high = np.percentile(hmeans, [2.5, 97.5])
    return float(low), float(high)


def minutes(result: dict[str, Any], hmean: float | None = None) -> float:
    """Of the whole training, or until a validation reached an H-mean."""
    reached = [time for time, score in result["curve"] if hmean is None or score >= hmean]
    return float((reached[-1] if hmean is None else reached[0]) if reached else np.nan)


def rows(summary: dict[str, Any]) -> list[list[str]]:
    """One row per score."""
    return [
        [SCORES[name], *(f"{figures[key]:.4f}" for key in ("mean", "low", "high"))]
        for name, figures in summary["scores"].items()
    ]


def told(summary: dict[str, Any], results: Sequence[dict[str, Any]]) -> str:
    """What is not in the rows."""
    low, high = summary["interval"]
    first = ", ".join(f"{minutes(result, 0.9):.1f}" for result in results)
    return (
        f"95 % of the means at IoU 0.5 over other sets of such pages: {low:.3f} to {high:.3f}; "
        f"{summary['minutes']:.1f} minutes, H-mean 0.90 reached after {first}"
    )


def show(summary: dict[str, Any], results: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    """On the console."""
    scored = f"every {options.held_out}th training page" if options.held_out else "val"
    title = f"{options.data}: {' '.join(options.set)}, {len(results)} seeds, {scored}"
    table = Table(title=title, title_justify="left", caption=told(summary, results))
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left")
    for row in rows(summary):
        table.add_row(*row)
    console.print(table)


def draw(results: Sequence[dict[str, Any]], target: Path) -> None:
    """H-mean over minutes, a line per seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for result in results:
        if result["curve"]:
            axis.plot(*zip(*result["curve"], strict=True), marker="o", label=f"seed {result['seed']}")
    axis.set(xlabel="minutes", ylabel="H-mean at IoU 0.5")
    axis.grid(alpha=0.3)
    axis.legend()
    with replacing(target) as stream:
        figure.savefig(stream, format="png", dpi=110)
    pyplot.close(figure)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    with replacing(file) as stream:
        stream.write(json.dumps(content, indent=1).encode())


if __name__ == "__main__":
    exit_with(main)
