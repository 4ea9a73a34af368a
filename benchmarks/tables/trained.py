"""Detectors on labelled pages: the bundled one, trainings by a recipe, each part of it, and what its targets allow.

A training is kept in `data.runs` until its settings change, and the last weights are scored: validation in between is
for the curve alone, so that no page that is scored chooses among epochs.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from omegaconf import OmegaConf

from benchmarks.commands import inspect, ocr, of_pages
from benchmarks.harness import Cell, Data, Figure, Place, Row, Target, benchmark, figure
from benchmarks.loaders import split_paths
from ocr import Detector
from ocr.atomic import replacing
from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.build import make
from ocr.datasets.page_statistics import PageStatistics, measure_pages
from ocr.evaluation.boxes import BoxesFromMap
from ocr.evaluation.hmean import TIGHT_IOU, HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.jobs.compose import compose_training
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.export import folder_pages
from ocr.jobs.recipe import RULES, Recipe
from ocr.jobs.run import quoted_override
from ocr.pipeline.decode import Decode
from ocr.pipeline.targets import Targets
from ocr.report.runs import read_run

SCORES = {"iou_50": "IoU 0.5", "iou_70": "IoU 0.7", "cleval": "CLEval"}
COUNTED = ("matched", "boxes", "words")
HELD_OUT = 5
"""Where something is chosen, every fifth training page is scored instead of val."""
RESAMPLED, GOOD = 2000, 0.9


def inspect_split(folder: Path, split: str, *settings: str) -> dict[str, Any]:
    """What `ocr inspect` writes about the bundled detector on a split."""
    return inspect("glyphfeed", *split_paths(folder, split), *settings)


# -- the bundled detector


@benchmark("scored", table="results#scored", threads=None, pages=("receipts", "forms"))
def scored(data: Data) -> Iterator[Row]:
    """The bundled detector on the validation pages of receipts (lines) and forms (words)."""
    for unit, folder, least in (("lines of receipts", data.receipts, 0.89), ("words of forms", data.forms, 0.88)):
        found = inspect_split(folder, "val")
        pages, labels = len(found["pages"]), found["scores"]["iou_50"]["words"]
        for key, name in SCORES.items():
            parts = {"precision": "precision", "recall": "recall", "H-mean": "hmean"}
            cells: dict[str, Cell] = {
                shown: Figure(found["scores"][key][part], digits=3) for shown, part in parts.items()
            }
            if key == "iou_50":
                cells["H-mean"] = Target(found["scores"][key]["hmean"], at_least=least, digits=3)
            yield Row(f"{unit}, {name}", {"pages": pages, "labels": labels, **cells})


@benchmark("causes", table="inspect#causes", threads=None)
def causes(data: Data) -> Iterator[Row | str]:
    """Errors of the bundled detector on training pages: their causes, and points of H-mean if they were fixed."""
    found = inspect_split(data.receipts, "train")
    for cause in found["causes"]:
        cells = {"missed": cause["missed"], "false": cause["false"], "points": f"{cause['points']:+.2f}"}
        yield Row(cause["cause"], {**cells, "what would help": cause["fix"]})
    explained = Target(100 * found["explained"], " %", at_least=95)
    yield Row("errors that have a cause", {"missed": explained, "false": f"of {len(found['errors'])}"})


@benchmark("exact-boxes", table="training#exact-boxes", threads=None)
def exact_boxes(data: Data) -> Iterator[Row]:
    """The same maps read by the published rule and by the exact one; the bundled detector, training pages."""
    published: dict[str, float] = {}
    for ratio in ("1.5", "exact"):
        cells: dict[str, Cell] = {}
        for shape, use_polygon in (("polygons", "true"), ("rectangles", "false")):
            rule = (f"boxes.unclip_ratio={ratio}", f"boxes.use_polygon={use_polygon}")
            scores = inspect_split(data.receipts, "train", *rule)["scores"]
            for key in ("iou_50", "iou_70"):
                name, hmean = f"{shape}, {SCORES[key]}", scores[key]["hmean"]
                cells[name] = figure(hmean, at_least=published.get(name), digits=3)
                published[name] = hmean
        yield Row(f"boxes.unclip_ratio={ratio}", cells, "H-mean of the same maps")


# -- trainings


def train(
    pages: Path, out: Path, settings: Sequence[str], seed: int, count: int | None = None, held_out: int | None = None
) -> dict[str, Any]:
    """The scores of one training, from its folder if it is done there.

    Of the training pages, `count` are drawn by the seed. With `held_out`, every n-th is scored instead of val and does
    not train.
    """
    done, asked = out / "result.json", [str(pages.resolve()), *settings]
    if done.is_file():
        found: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
        if found["asked"] == asked:
            return found
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    words = json.loads((pages / "jsons/train.json").read_text(encoding="utf-8"))["images"]
    names, scored_by = sorted(words), split_paths(pages, "val")
    if held_out is not None:
        scored_by = pages / "images/train", out / "scored.json"
        write_json(scored_by[1], {"images": {name: words[name] for name in names[::held_out]}})
        names = [name for number, name in enumerate(names) if number % held_out]
    if count is not None:
        names = sorted(np.random.default_rng(seed).choice(names, min(count, len(names)), replace=False).tolist())
    write_json(out / "train.json", {"images": {name: words[name] for name in names}})
    splits = [*of_pages("train", pages / "images/train", out / "train.json"), *of_pages("val", *scored_by)]
    folder = [quoted_override(key, str(out / "run")) for key in ("hydra.run.dir", "output_dir")]
    quiet = [f"callbacks.{name}=null" for name in ("best", "early_stopping", "drawings")]
    ocr("train", f"dataset_base_path={pages.resolve()}", *splits, *settings, f"seed={seed}", *folder, *quiet)
    inspected = inspect(checkpoint(out), *scored_by)
    by_name = sorted(inspected["pages"], key=lambda page: page["page"])
    result = {
        "asked": asked,
        "trained": len(names),
        **{name: inspected["scores"][name]["hmean"] for name in SCORES},
        "counts": [[page[name] for name in COUNTED] for page in by_name],
        "curve": curve(out / "run"),
    }
    write_json(done, result)
    return result


def checkpoint(out: Path) -> Path:
    """The last weights of a training."""
    return out / "run/checkpoints/last.ckpt"


def curve(run: Path) -> list[tuple[float, float]]:
    """Minutes of training and validation so far, and the H-mean of each validation."""
    points, seconds = [], 0.0
    for epoch in read_run(run).epochs:
        seconds += sum(epoch["seconds"].values())
        if epoch.get("hmean") is not None:
            points.append((seconds / 60, epoch["hmean"]))
    return points


def fine_tuned(data: Data) -> Path:
    """The checkpoint of the first seed on all receipts, trained now if it is not there."""
    out = data.runs / "receipts/seed-0"
    if not (out / "result.json").is_file():
        train(data.receipts, out, ["experiment=finetune"], 0)
    return checkpoint(out)


SETS = {"receipts": ("receipts", None, 0.95), "receipts-50": ("receipts", 50, 0.94), "forms": ("forms", None, 0.9)}
"""Pages, how many of them are drawn by the seed, and the least mean of the H-mean."""


@benchmark("trained", table="results#trained", threads=None, pages=("receipts", "forms"))
def trained(data: Data) -> Iterator[Row]:
    """`ocr train experiment=finetune`: a seed per round, each scored once on val; `--set trained.sets=receipts`."""
    for name in data.setting("trained.sets", ",".join(SETS)).split(","):
        pages, count, least = SETS[name]
        settings = ["experiment=finetune", *(one for one in data.settings if not one.startswith("trained."))]
        found = [
            train(getattr(data, pages), data.runs / name / f"seed-{seed}", settings, seed, count)
            for seed in range(data.rounds)
        ]
        mean = Target(float(np.mean([one["iou_50"] for one in found])), at_least=least, digits=3)
        cells: dict[str, Cell] = {"pages": found[0]["trained"], "scored": len(found[0]["counts"]), "mean": mean}
        for key, shown in SCORES.items():
            values = [one[key] for one in found]
            cells[shown] = f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
        low, high = bootstrap(np.array([one["counts"] for one in found], dtype=np.int64))
        cells["95 % of other such pages"] = f"{low:.3f} to {high:.3f}"
        cells["minutes"] = Figure(float(np.mean([one["curve"][-1][0] if one["curve"] else np.nan for one in found])))
        reached = (next((f"{at:.1f}" for at, hmean in one["curve"] if hmean >= GOOD), "never") for one in found)
        cells[f"to {GOOD:.2f}"] = ", ".join(reached)
        yield Row(name, cells, f"H-mean, mean and range of {len(found)} seeds")


def bootstrap(counts: NDArray[np.int64]) -> tuple[float, float]:
    """95 % of the means over seeds of the H-mean, over sets of pages drawn from these (seeds, pages, COUNTED)."""
    pages = counts.shape[1]
    drawn = np.random.default_rng(0).integers(0, pages, (RESAMPLED, pages))
    matched, found, words = np.moveaxis(counts[:, drawn].sum(axis=2), -1, 0)
    low, high = np.percentile((2 * matched / np.maximum(found + words, 1)).mean(axis=0), [2.5, 97.5])
    return float(low), float(high)


# -- each part of the recipe


def with_stage(at: int, name: str, **settings: float) -> tuple[str]:
    """The recipe's list of stages with one more in it."""
    recipe: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "experiment/documents.yaml"))
    stages = recipe["transforms"]["train_transform"]["transforms"]
    stages.insert(at, {"_target_": f"ocr.pipeline.{name}", **settings})
    texts = (one if isinstance(one, str) else json.dumps(one).replace('"', "") for one in stages)
    return (f"transforms.train_transform.transforms=[{','.join(texts)}]",)


RECIPE = "the recipe"
SCRATCH = ("weights=null", "targets.shrink_ratio=0.6")
IMAGENET = ("model.encoder=tf_efficientnet_lite0", "model.weights=imagenet")
CHANGES: dict[str, tuple[str, ...]] = {
    RECIPE: (),
    "from scratch: no synthetic pages first": SCRATCH,
    "EfficientNet-Lite0 from ImageNet": (*SCRATCH, *IMAGENET),
    "square pages": ("transforms.letterbox.shape=square",),
    "640-pixel pages": ("transforms.size=640",),
    "1280-pixel pages": ("transforms.size=1280",),
    "640-pixel windows, three a step: as many pixels": (
        *("transforms.window=640", "dataloaders.train_dataloader.batch_size=3"),
    ),
    "a quarter of the steps": ("steps=0.25",),
    "twice the steps": ("steps=2",),
    "no moving average of the weights": ("callbacks.ema=null",),
    "with perspective": with_stage(3, "suffix.RandomPerspective", degrees=15, p=0.3),
    "with lines of other places": with_stage(1, "copy_paste.CopyPasteLines", lines=8, p=0.3),
    "with quarter turns": with_stage(3, "suffix.QuarterTurn", p=0.5),
    "with shadows": with_stage(5, "suffix.RandomShadow", darkest=0.5, p=0.2),
}
READINGS: dict[str, dict[str, Any]] = {
    "boxes by unclip ratio 1.5 instead of exactly": {"boxes": {"unclip_ratio": 1.5}},
    "maps of three scales averaged: 0.8, 1 and 1.25": {"scales": (1.0, 0.8, 1.25)},
}
"""Of the recipe's detectors; nothing is trained for these rows."""


@benchmark("ablation", table="training#ablation", threads=None)
def ablation(data: Data) -> Iterator[Row | str]:
    """One change of `experiment=finetune` per row; `--set ablation.rows=PART,PART` chooses rows by parts of names."""
    chosen = data.setting("ablation.rows", "").split(",")
    names = [name for name in (*CHANGES, *READINGS) if name == RECIPE or any(part in name for part in chosen)]
    for name in names:  # A change that cannot be composed is an error before the first hour.
        compose_training([f"dataset_base_path={data.receipts}", *settings_of(name, data)])
    base = [scores_of(RECIPE, seed, data) for seed in range(data.rounds)]
    for name in names:
        found = base if name == RECIPE else [scores_of(name, 0, data)]
        means = {SCORES[key]: Figure(float(np.mean([one[key] for one in found])), digits=3) for key in found[0]}
        difference = "" if name == RECIPE else f"{found[0]['iou_50'] - base[0]['iou_50']:+.3f}"
        yield Row(name, {**means, "difference": difference}, f"H-means of every {HELD_OUT}th training page")
    spread = [one["iou_50"] for one in base]
    yield (
        f"{steps_of(data)} steps. The recipe with {len(base)} seeds: {min(spread):.3f} to {max(spread):.3f} at IoU "
        f"0.5; its changes with one, compared with the recipe's of that seed."
    )


def steps_of(data: Data) -> int:
    return int(data.setting("recipe.steps", "400"))


def settings_of(name: str, data: Data) -> list[str]:
    """Of the training of one row."""
    factor = next((float(one.removeprefix("steps=")) for one in CHANGES.get(name, ()) if one.startswith("steps=")), 1)
    changes = [one for one in CHANGES.get(name, ()) if not one.startswith("steps=")]
    given = [one for one in data.settings if not one.startswith(("recipe.steps=", "ablation."))]
    return ["experiment=finetune", f"recipe.steps={max(1, round(factor * steps_of(data)))}", *changes, *given]


def scores_of(name: str, seed: int, data: Data) -> dict[str, float]:
    """H-means on the pages that are held out."""
    row = RECIPE if name in READINGS else name
    out = data.runs / "ablation" / "".join(c if c.isalnum() else "-" for c in row) / f"seed-{seed}"
    found = train(data.receipts, out, settings_of(row, data), seed, held_out=HELD_OUT)
    if name not in READINGS:
        return {key: found[key] for key in SCORES}
    detector = Detector.load(checkpoint(out), **READINGS[name])
    paths, truth = labelled_pages(data.receipts / "images/train", out / "scored.json")
    return dict(zip(SCORES, hmeans([list(page.polygons) for page in detector.stream(paths)], truth), strict=False))


def labelled_pages(images: Path, annotation: Path) -> tuple[list[str], list[Polygons]]:
    """Files of pages, and the text on them, in pixels of the upright page."""
    samples = [page.read(Decode()) for page in folder_pages(str(images), str(annotation), sys.maxsize, "--data")]
    return [sample.path for sample in samples], [sample.polygons for sample in samples]


def hmeans(found: Sequence[Sequence[NDArray[np.float32]]], truth: Sequence[Polygons]) -> tuple[float, float]:
    """Over all pages, at IoU 0.5 and 0.7."""
    loose, tight = HmeanIoU(), HmeanIoU(iou_threshold=TIGHT_IOU)
    for polygons, page in zip(found, truth, strict=True):
        loose.update(polygons, page)
        tight.update(polygons, page)
    return float(loose.compute()["hmean"]), float(tight.compute()["hmean"])


def write_json(file: Path, content: Any) -> None:
    """All or nothing."""
    with replacing(file) as stream:
        stream.write(json.dumps(content, indent=1).encode())


# -- what page size and shrink ratio allow: text that comes back out of the targets themselves, without any model.
# No model is better than its targets. Those of a model are softer, for which a Gaussian stands: kernels that lie close
# together run into one.

SIZES, RATIOS = (640, 800, 960, 1120, 1280), (0.4, 0.5, 0.6, 0.7)
EVERY = 3
SOFT_SIGMA = 1.5
"""Pixels: the width of the edges that a model of stride 4 draws."""


class Page(NamedTuple):
    """The text of a page whose longest side is 1."""

    text: Polygons
    width: float
    height: float


@benchmark(
    "recipe",
    table=(Place("training#derived", caption="Derived"), Place("training#recipe", caption="Recall")),
    pages=("receipts", "forms"),
    rounds=1,
)
def recipe(data: Data) -> Iterator[Row]:
    """What `experiment=documents` derives from training pages, and the recall that sizes and shrink ratios allow."""
    for unit, folder in (("receipts", data.receipts), ("forms", data.forms)):
        dataset = OCRDataset(*split_paths(folder, "train"), DBTransforms([]))
        statistics = measure_pages(dataset)
        yield from derived(folder, statistics, unit)
        chosen = Recipe().size(statistics)[0], Recipe().shrink_ratio(statistics)[0]
        pages = list(read_pages(dataset))
        caption = f"Recall at IoU 0.5/0.7 of exact maps, then of soft ones, {len(pages)} {unit}; * derived from them"
        for size in SIZES:
            cells: dict[str, Figure | str] = {"low text": Figure(statistics.text_height * size, " px", digits=1)}
            for ratio in RATIOS:
                shown = (f"{a:.3f}/{b:.3f}" for a, b in (recalls(pages, size, ratio, s) for s in (0.0, SOFT_SIGMA)))
                cells[f"r = {ratio:g}"] = ", ".join(shown) + "*" * ((size, ratio) == chosen)
            yield Row(str(size), cells, caption)


def derived(folder: Path, pages: PageStatistics, unit: str) -> Iterator[Row]:
    """Each `auto` of the recipe as a number, and why."""
    config = compose_training([f"dataset_base_path={folder.resolve()}", "experiment=documents"])
    rule = make(config.recipe, "recipe")
    caption = f"Derived from {pages.measured} of {pages.pages} {unit}, {pages.words_per_page:.0f} boxes each"
    for setting, derive in RULES.items():
        value, reason = derive(rule, pages, config)
        OmegaConf.update(config, setting, value)
        yield Row(setting, {"value": f"{value:g}", "because": reason}, caption)


def read_pages(dataset: OCRDataset) -> Iterator[Page]:
    """Every third page, by its header and annotation."""
    for index in range(0, len(dataset), EVERY):
        page = dataset.decode.measure(dataset.source.read(index))
        width, height = page.size
        scale = 1 / max(width, height)
        yield Page(page.polygons.moved(np.diag([scale, scale, 1.0])), width * scale, height * scale)


def recalls(pages: Sequence[Page], size: int, shrink_ratio: float, sigma: float, **rule: Any) -> tuple[float, float]:
    """The share of the text whose box, from the map that is drawn of it, has an IoU over 0.5, and over 0.7."""
    targets = Targets(shrink_ratio=shrink_ratio, min_text_size=0.0)
    rule = {"thresh": 0.4, "box_thresh": 0.0, "use_polygon": False, "min_size": 0} | rule
    boxes = BoxesFromMap(shrink_ratio=shrink_ratio, **rule)
    loose, tight = HmeanIoU(iou_threshold=0.5), HmeanIoU(iou_threshold=0.7)
    for page in pages:
        polygons = page.text.moved(np.diag([size, size, 1.0]))
        width, height = (int(np.ceil(side * size)) + 1 for side in (page.width, page.height))
        prob_map = targets.draw(polygons, width, height)["prob_map"]
        found = boxes(cv2.GaussianBlur(prob_map, (0, 0), sigma) if sigma else prob_map).polygons
        for metric in (loose, tight):
            metric.update(found, polygons)
    return float(loose.compute()["recall"]), float(tight.compute()["recall"])


@benchmark("perfect-maps", table="training#perfect-maps", pages=("receipts", "forms"), rounds=1)
def perfect_maps(data: Data) -> Iterator[Row]:
    """Text that comes back out of drawn target maps, by the published rule for boxes and by the exact one."""
    for unit, folder in (("receipts", data.receipts), ("forms", data.forms)):
        pages = list(read_pages(OCRDataset(*split_paths(folder, "train"), DBTransforms([]))))
        for size, shrink_ratio in product((640, 960), (0.4, 0.6)):
            cells = {}
            for (shape, use_polygon), ratio in product((("polygons", True), ("rectangles", False)), (1.5, "exact")):
                rule = {"use_polygon": use_polygon, "unclip_ratio": ratio, "min_size": 2}
                found = recalls(pages, size, shrink_ratio, 0.0, **rule)
                cells[f"{shape}, unclip {ratio}"] = " / ".join(f"{one:.3f}" for one in found)
            yield Row(f"{size}, shrink {shrink_ratio}", cells, f"Recall of perfect maps of {unit}: IoU 0.5 / 0.7")
