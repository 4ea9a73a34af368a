"""What each part of `experiment=finetune` brings: one change per row, scored on training pages that did not train.

python benchmarks/ablation.py --data DIR --out OUT                             # all rows, hours
python benchmarks/ablation.py --data DIR --out OUT --only recipe --only ema    # some of them
python benchmarks/ablation.py --data DIR --out OUT --docs docs/training.md     # also writes the table there

Every row trains as many steps as the recipe, except those whose change is the number of steps. The last rows train
nothing: they read the recipe's detectors in another way. The recipe is trained with all seeds, which shows what a
difference is worth; its changes with the first ones. What is done is not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.document_parts import replace_part, table_lines
from benchmarks.measure import console, exit_with
from benchmarks.trained import one_seed
from ocr import Detector
from ocr.evaluation.hmean import TIGHT_IOU, HmeanIoU
from ocr.jobs.compose import compose_training
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.export import folder_pages
from ocr.pipeline.decode import Decode

PART = "ablation"
RECIPE = "recipe"
HELD_OUT = 5
SCORED = ("iou_50", "iou_70", "cleval")

Scores = dict[str, float]


def stage(at: int, name: str, **settings: float) -> str:
    """The recipe's list of stages with one more in it."""
    recipe: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "experiment/documents.yaml"))
    stages = recipe["transforms"]["train_transform"]["transforms"]
    stages.insert(at, {"_target_": f"ocr.pipeline.{name}", **settings})
    texts = (one if isinstance(one, str) else json.dumps(one).replace('"', "") for one in stages)
    return f"transforms.train_transform.transforms=[{','.join(texts)}]"


TRAINED = {
    RECIPE: ("the recipe", ()),
    "scratch": ("from scratch: no synthetic pages before", ("weights=null", "targets.shrink_ratio=0.6")),
    "imagenet": (
        "EfficientNet-Lite0 from ImageNet",
        ("weights=null", "model.encoder=tf_efficientnet_lite0", "model.weights=imagenet", "targets.shrink_ratio=0.6"),
    ),
    "square": ("square pages", ("transforms.letterbox.shape=square",)),
    "size-640": ("pages of 640", ("transforms.size=640",)),
    "size-1280": ("pages of 1280", ("transforms.size=1280",)),
    "window-640": (
        "windows of 640, three a step: as many pixels",
        ("transforms.window=640", "dataloaders.train_dataloader.batch_size=3"),
    ),
    "fewer-steps": ("a quarter of the steps", ("steps=0.25",)),
    "more-steps": ("twice the steps", ("steps=2",)),
    "ema": ("no moving average of the weights", ("callbacks.ema=null",)),
    "perspective": ("with perspective", (stage(3, "turns.RandomPerspective", degrees=15, p=0.3),)),
    "copy-paste": ("with lines of other places", (stage(1, "copy_paste.CopyPasteLines", lines=8, p=0.3),)),
    "turns": ("with quarter turns", (stage(3, "turns.QuarterTurn", p=0.5),)),
    "shadow": ("with shadows", (stage(5, "suffix.RandomShadow", darkest=0.5, p=0.2),)),
}
READ: dict[str, tuple[str, dict[str, Any]]] = {
    "unclip": ("boxes by unclip ratio 1.5 instead of exactly", {"boxes": {"unclip_ratio": 1.5}}),
    "scales": ("maps of three scales averaged: 0.8, 1 and 1.25", {"scales": (1.0, 0.8, 1.25)}),
}


def main() -> int:
    """Train what is not done, then show all rows."""
    options = parse()
    names = [name for name in (*TRAINED, *READ) if not options.only or name in (RECIPE, *options.only)]
    for name in names:
        if name in TRAINED:  # A change that cannot be composed is told before the first hour.
            compose_training([f"dataset_base_path={options.data}", *settings(name, options.steps), *options.set])
    rows = {}
    for name in names:
        seeds = options.seeds if name == RECIPE else options.seeds[: options.changes]
        score = trained if name in TRAINED else read
        rows[name] = [score(name, seed, options) for seed in seeds]
    show(rows, options)
    if options.docs:
        replace_part(options.docs, PART, document(rows, options))
    return 0


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="images/train and jsons/train.json")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--only", action="append", choices=[*TRAINED, *READ], help="may be repeated (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the recipe (default: 0 1 2)")
    parser.add_argument("--changes", type=int, default=1, help="so many of these for every change (default: 1)")
    parser.add_argument("--steps", type=int, default=400, help="of training (default: 400, as in the recipe)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of all rows")
    parser.add_argument("--docs", type=Path, help="document whose table is replaced: docs/training.md")
    return parser.parse_args()


def settings(name: str, steps: int) -> list[str]:
    """Of the training of one row."""
    changes = list(TRAINED[name][1])
    for change in [one for one in changes if one.startswith("steps=")]:
        changes.remove(change)
        steps = round(steps * float(change.removeprefix("steps=")))
    return ["experiment=finetune", f"recipe.steps={steps}", *changes]


def trained(name: str, seed: int, options: argparse.Namespace) -> Scores:
    """The scores of one training on the pages that are held out."""
    out = options.out / name
    out.mkdir(parents=True, exist_ok=True)
    chosen = [*settings(name, options.steps), *options.set]
    task = argparse.Namespace(data=options.data, out=out, pages=None, held_out=HELD_OUT, set=chosen)
    return {key: value for key, value in one_seed(seed, task).items() if key in SCORED}


def read(name: str, seed: int, options: argparse.Namespace) -> Scores:
    """The scores of the recipe's detector, read in another way."""
    folder = options.out / RECIPE / f"seed-{seed}"
    detector = Detector.load(folder / "run/checkpoints/last.ckpt", **READ[name][1])
    pages = folder_pages(str(options.data / "images/train"), str(folder / "scored.json"), sys.maxsize, "--data")
    samples = [page.read(Decode()) for page in pages]
    scores = {"iou_50": HmeanIoU(), "iou_70": HmeanIoU(iou_threshold=TIGHT_IOU)}
    for found, sample in zip(detector.stream([sample.path for sample in samples]), samples, strict=True):
        for score in scores.values():
            score.update(list(found.polygons), sample.polygons)
    return {key: float(score.compute()["hmean"]) for key, score in scores.items()}


def cells(scores: Sequence[Scores], base: Sequence[Scores]) -> list[str]:
    """Mean H-means, and the difference to the recipe with the same seeds."""
    means = {key: float(np.mean([score[key] for score in scores])) for key in scores[0]}
    difference = float(np.mean([one["iou_50"] - other["iou_50"] for one, other in zip(scores, base, strict=False)]))
    shown = [f"{means[key]:.3f}" if key in means else "" for key in SCORED]
    return [*shown, "" if scores is base else f"{difference:+.3f}"]


HEADINGS = ["", "IoU 0.5", "IoU 0.7", "CLEval", "difference"]


def show(rows: dict[str, list[Scores]], options: argparse.Namespace) -> None:
    """On the console."""
    table = Table(title=f"{options.data}: every {HELD_OUT}th training page, H-means", title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading else "left")
    for name, scores in rows.items():
        table.add_row((TRAINED | READ)[name][0], *cells(scores, rows[RECIPE]))
    console.print(table)


def document(rows: dict[str, list[Scores]], options: argparse.Namespace) -> list[str]:
    """For the documentation: the table, and what a difference is worth."""
    base = [score["iou_50"] for score in rows[RECIPE]]
    told = (
        f"{options.steps} steps. The recipe with {len(base)} seeds: {min(base):.3f} to {max(base):.3f} at IoU 0.5. "
        f"Its changes with {min(options.changes, len(base))}, beside the recipe's of the same seed:"
    )
    body = [[(TRAINED | READ)[name][0], *cells(scores, rows[RECIPE])] for name, scores in rows.items()]
    return [told, "", *table_lines(HEADINGS, body)]


if __name__ == "__main__":
    exit_with(main)
