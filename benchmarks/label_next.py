"""Pages chosen by `ocr label-next` beside pages chosen at random: the H-mean that as many labels give.

python benchmarks/label_next.py --data DIR --seeds 3
python benchmarks/label_next.py --data DIR --seeds 1 --rounds 2 --steps 20        # smaller

Every fifth page of the split is held out to be scored, the others are the pool. A seed draws the first labelled pages;
both strategies start from them and add as many pages per round. Each point of a curve is a training of its own from the
package's weights, with the same number of steps; the detector of a point chooses the pages of the next. Points are kept
in --out, and the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.distil import configured
from benchmarks.document_parts import replace_part, table_lines
from benchmarks.measure import console, data_or_synthetic, exit_with
from ocr import Detector
from ocr.atomic import replacing
from ocr.deploy.inputs import pages_of
from ocr.deploy.stream import PageStream
from ocr.errors import ConfigError
from ocr.evaluation.hmean import HmeanIoU
from ocr.formats import Annotations, Page, read_annotations, write_native
from ocr.geometry.polygons import Polygons
from ocr.inspect.next_pages import rank_pages
from ocr.jobs.export import folder_pages
from ocr.jobs.label_next import Looks
from ocr.jobs.page_files import PageFiles
from ocr.jobs.train import train
from ocr.pipeline.decode import Decode

RANDOM, CHOSEN = "random", "label-next"
GOAL = 0.7
PART = "label-next"
HEADINGS = ("pages", *(f"{strategy}, {what}" for strategy in (RANDOM, CHOSEN) for what in ("labels", "H-mean")))
# Derived from the training pages otherwise, which differ from point to point.
SETTINGS = ("experiment=finetune", "transforms.size=960", "transforms.saturation=0.3")
NO_VALIDATION = (
    "trainer.limit_val_batches=0",
    "trainer.check_val_every_n_epoch=1",
    "+trainer.enable_progress_bar=false",
    "callbacks.progress=null",
    "logger.tensorboard=null",
    *(f"callbacks.{name}=null" for name in ("best", "early_stopping", "drawings", "worst_pages", "report", "advice")),
)
Point = dict[str, Any]


@dataclass(eq=False)
class Simulation:
    """The pages, and how the points of the curves are made."""

    images: Path
    pages: dict[str, Page]
    held_out: Sequence[str]
    out: Path
    steps: int
    settings: Sequence[str]

    @property
    def pool(self) -> list[str]:
        kept = set(self.held_out)
        return [name for name in self.pages if name not in kept]

    def words(self, names: Sequence[str]) -> int:
        return sum(len(self.pages[name].words) for name in names)

    def point(self, folder: Path, names: Sequence[str], seed: int, add: int) -> Point:
        """Train on these pages, score, and choose the next `add` ones; read from its file if it was done before."""
        file = folder / "point.json"
        given = {"pages": list(names), "seed": seed, "add": add, "steps": self.steps, "settings": list(self.settings)}
        if file.exists():
            known: Point = json.loads(file.read_text())
            if {key: known.get(key) for key in given} != given:
                raise ConfigError(f"{file} is of another run: give another folder with --out, or remove it")
            return known
        checkpoint = self._train(folder, names, seed)
        detector = Detector.load(checkpoint)
        point = given | {"words": self.words(names), "hmean": self._score(detector)}
        point["next"] = self._choose(detector, names, add) if add else []
        shutil.rmtree(folder / "run")
        with replacing(file) as stream:
            stream.write(json.dumps(point, indent=1).encode())
        return point

    def _train(self, folder: Path, names: Sequence[str], seed: int) -> Path:
        # What a run that was stopped left would be mixed with this one.
        shutil.rmtree(folder / "run", ignore_errors=True)
        parts = {"train": names, "val": self.held_out, "test": self.held_out}
        overrides = [f"seed={seed}", f"cache.folder={self.out / 'cache'}", *self.settings, *NO_VALIDATION]
        for part, own in parts.items():
            file = folder / f"{part}.json"
            self.write(file, own)
            paths = {"image_path": self.images.resolve(), "annotation_path": file.resolve()}
            overrides += [f"datasets.{part}_dataset.{key}='{path}'" for key, path in paths.items()]
        limits = (f"+trainer.max_steps={self.steps}", "trainer.max_epochs=-1")
        train(configured(overrides, folder / "run", *limits), console)
        return folder / "run" / "checkpoints" / "last.ckpt"

    def write(self, file: Path, names: Sequence[str]) -> None:
        """The labels of some of the pages as an annotation."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_native(Annotations(str(file), "native", {name: self.pages[name] for name in names}), file)

    @cached_property
    def truth(self) -> list[tuple[str, Polygons]]:
        """Path and labels of each page that is held out, in pixels of the upright page."""
        labels = self.out / "held_out.json"
        self.write(labels, self.held_out)
        pages = folder_pages(str(self.images), str(labels), len(self.held_out), "--every")
        samples = (page.read(Decode()) for page in pages)
        return [(sample.path, sample.polygons) for sample in samples]

    def _score(self, detector: Detector) -> float:
        score = HmeanIoU()
        for path, labels in self.truth:
            score.update(detector(path).polygons, labels)
        return float(score.compute()["hmean"])

    def _choose(self, detector: Detector, names: Sequence[str], count: int) -> list[str]:
        """As the command does: pages of the pool without labels, beside those that have them."""
        looks = Looks(PageFiles(str(self.images), []), detector.boxes)
        paths = [str(self.images / name) for name in self.pool]
        for _ in PageStream(detector, pages_of(paths), watch=looks):
            pass
        labelled = set(names)
        free = [looks.by_name[name] for name in self.pool if name not in labelled]
        ranked = rank_pages(free, [looks.by_name[name] for name in names], count)
        return [page.look.name for page in ranked if page.chosen]


def main() -> int:
    """All points, then a table, a verdict and a picture."""
    options = parse()
    data = data_or_synthetic(options.data, pages=0, train=40)
    images = data / "images" / options.split
    found = read_annotations(data / "jsons" / f"{options.split}.json", image_path=images).pages
    names = [name for name in sorted(found) if (images / name).is_file()][: options.pages]
    pages = {name: found[name] for name in names}
    settings = [*SETTINGS, *(options.set or [])]
    simulation = Simulation(images, pages, names[:: options.every], options.out, options.steps, settings)
    most = options.start + options.rounds * options.add
    if most > len(simulation.pool):
        raise ConfigError(
            f"--start {options.start} --add {options.add} --rounds {options.rounds} need {most} pages, and the pool "
            f"has {len(simulation.pool)}: lower one of them"
        )
    curves = [run_seed(simulation, seed, options) for seed in range(options.seeds)]
    figures = summary(curves)
    show(figures, f"{images}: {len(simulation.pool)} pages, {len(simulation.held_out)} held out, {options.seeds} seeds")
    console.print(verdict(figures), soft_wrap=True)
    with replacing(options.out / "label_next.json") as stream:
        stream.write(json.dumps(figures | {"verdict": verdict(figures)}, indent=1).encode())
    plot(figures, options.plot or options.out / "label_next.png")
    if options.docs:
        plot(figures, options.docs.parent / "pictures" / "label_next.png")
        lines = [*table_lines(HEADINGS, rows(figures)), "", f"{verdict(figures)}.", ""]
        replace_part(options.docs, PART, [*lines, "![H-mean over labelled pages](pictures/label_next.png)"])
    return 0


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--split", default="train", help="split to read (default: train)")
    parser.add_argument("--seeds", type=int, default=3, help="sets of first pages (default: 3)")
    parser.add_argument(
        "--start", type=int, default=20, help="labelled pages at the start, at least a batch (default: 20)"
    )
    parser.add_argument("--add", type=int, default=10, help="pages per round (default: 10)")
    parser.add_argument("--rounds", type=int, default=4, help="of choosing and training (default: 4)")
    parser.add_argument("--steps", type=int, default=50, help="of each training (default: 50)")
    parser.add_argument("--every", type=int, default=5, help="hold out one page in so many (default: 5)")
    parser.add_argument("--pages", type=int, default=None, help="first pages of the split (default: all)")
    parser.add_argument("--set", action="append", metavar="KEY=VALUE", help="of `ocr train`, for every training")
    parser.add_argument("--out", type=Path, default=Path("outputs/label_next"), help="folder for points and results")
    parser.add_argument("--plot", type=Path, help="PNG file (default: label_next.png in --out)")
    parser.add_argument("--docs", type=Path, help="document whose table and picture are replaced: docs/labels.md")
    return parser.parse_args()


def run_seed(simulation: Simulation, seed: int, options: argparse.Namespace) -> dict[str, list[Point]]:
    """The points of both strategies, which share the first."""
    order = [simulation.pool[at] for at in np.random.default_rng(seed).permutation(len(simulation.pool)).tolist()]
    home, start = options.out / f"seed_{seed}", order[: options.start]
    console.print(f"seed {seed}: {len(start)} pages")
    first = simulation.point(home / "start", start, seed, options.add if options.rounds else 0)
    curves = {RANDOM: [first], CHOSEN: [first]}
    for number in range(1, options.rounds + 1):
        for strategy, points in curves.items():
            count = options.start + number * options.add
            names = order[:count] if strategy == RANDOM else [*points[-1]["pages"], *points[-1]["next"]]
            add = options.add if strategy == CHOSEN and number < options.rounds else 0
            console.print(f"seed {seed}, {strategy}: {count} pages")
            points.append(simulation.point(home / f"{strategy}_{count}", names, seed, add))
    return curves


def summary(curves: Sequence[dict[str, list[Point]]]) -> dict[str, Any]:
    """Per strategy: pages, mean number of labels, and the H-mean of every seed, point by point."""
    return {
        strategy: {
            "pages": [len(point["pages"]) for point in curves[0][strategy]],
            "words": [float(np.mean([point["words"] for point in at])) for at in zip(*points, strict=True)],
            "hmeans": [[point["hmean"] for point in at] for at in zip(*points, strict=True)],
        }
        for strategy in (RANDOM, CHOSEN)
        for points in [[curve[strategy] for curve in curves]]
    }


def show(figures: dict[str, Any], title: str) -> None:
    """One row per number of pages."""
    table = Table(title=title, title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for row in rows(figures):
        table.add_row(*row)
    console.print(table)


def rows(figures: dict[str, Any]) -> list[list[str]]:
    """One per number of pages: labels and H-mean with its range, of each strategy."""
    made = []
    for at, pages in enumerate(figures[RANDOM]["pages"]):
        cells = [str(pages)]
        for curve in figures.values():
            mean, low, high = (of(curve["hmeans"][at]) for of in (np.mean, min, max))
            cells += [f"{curve['words'][at]:.0f}", f"{mean:.3f} ({low:.3f} to {high:.3f})"]
        made.append(cells)
    return made


def verdict(figures: dict[str, Any]) -> str:
    """With which share of the labels the choice is as good as all pages at random, in the mean over the seeds."""
    goal = float(np.mean(figures[RANDOM]["hmeans"][-1]))
    shares = {what: labels_needed(figures[CHOSEN], what, goal) for what in ("pages", "words")}
    pages = figures[RANDOM]["pages"][-1]
    if shares["pages"] is None or shares["words"] is None:
        return f"{CHOSEN} does not reach the H-mean of {pages} random pages ({goal:.4f})"
    parts = {what: need / figures[RANDOM][what][-1] for what, need in shares.items() if need is not None}
    is_met = "met" if parts["pages"] <= GOAL else "not met"
    return (
        f"{CHOSEN} reaches the H-mean of {pages} random pages ({goal:.4f}) with {parts['pages']:.0%} of the pages and "
        f"{parts['words']:.0%} of the labelled text: the goal of {GOAL:.0%} is {is_met}"
    )


def labels_needed(curve: dict[str, Any], what: str, goal: float) -> float | None:
    """Where the mean curve first reaches a height, between two points on a straight line; None: nowhere."""
    means, places = [float(np.mean(at)) for at in curve["hmeans"]], curve[what]
    if means[0] >= goal:
        return float(places[0])
    for at in range(1, len(means)):
        if means[at] >= goal:
            share = (goal - means[at - 1]) / (means[at] - means[at - 1])
            return float(places[at - 1] + share * (places[at] - places[at - 1]))
    return None


def plot(figures: dict[str, Any], path: Path) -> None:
    """Mean H-mean against labelled pages, with the spread of the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for (name, curve), colour in zip(figures.items(), ("gray", "tab:blue"), strict=True):
        low, middle, high = (np.array([of(at) for at in curve["hmeans"]]) for of in (min, np.mean, max))
        axes.plot(curve["pages"], middle, marker="o", color=colour, label=name)
        axes.fill_between(curve["pages"], low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xlabel("labelled pages")
    axes.set_ylabel("H-mean at IoU 0.5")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=150)
    pyplot.close(figure)


if __name__ == "__main__":
    exit_with(main)
