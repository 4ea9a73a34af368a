"""`glyphfeed test tune=true`: the best settings for the boxes of a detector, as a new file next to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from ocr.checks import Range
from ocr.datasets.build import make
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError
from ocr.evaluation import CLEvalMetric, HmeanIoU
from ocr.evaluation.boxes import BoxesFromMap
from ocr.evaluation.hmean import TIGHT_IOU
from ocr.geometry.polygons import Polygons
from ocr.jobs.detector_settings import settings_of
from ocr.jobs.scored_split import check_annotated
from ocr.jobs.stored_settings import chosen_file
from ocr.jobs.train import trained_module
from ocr.models.load import read_detector, write_settings
from ocr.models.packaged import packaged_detector
from ocr.training.module import truth_on_page

NAMES = ("thresh", "box_thresh", "unclip_ratio")
CLEVAL = "cleval_det_h"
MOST_LOST = 0.005
"""Of CLEval's H-mean: a setting that gains at IoU 0.5 and loses more than this cuts or merges text."""
SHOWN = {
    "precision": "precision",
    "recall": "recall",
    "hmean": "H-mean",
    "hmean_70": "at 0.7",
    CLEVAL: "CLEval",
}
Scores = Mapping[str, float]
Scored = tuple[Scores, BoxesFromMap]


@dataclass(frozen=True, slots=True, eq=False)
class PageMap:
    """The probability map of a page and the text that is on it."""

    prob_map: NDArray[np.float32]
    inverse_matrix: NDArray[np.float64]
    size: tuple[int, int]
    truth: Polygons


def tune(config: DictConfig, console: Console) -> dict[str, float]:
    """Score every combination of the grid on the validation split, and write the best if it is better.

    All are scored on the same probability maps. Returns the scores of the boxes that are the best.
    """
    candidates = list(_candidates(config))
    stored = read_detector(*_chosen(config))
    if stored.settings is None:
        raise ConfigError(f"{stored.source} does not carry its settings. Train it again", path=stored.path)
    target = _target(config, stored.path)
    module = trained_module(config).eval()
    pages = predict_maps(config, module, console)
    own_boxes = stored.settings.build("boxes", BoxesFromMap)
    with ThreadPoolExecutor() as threads:
        own = score(own_boxes, pages, threads, with_cleval=True)
        scored = [
            (score(boxes, pages, threads), boxes)
            for boxes in track(candidates, "combinations", console=console, transient=True)
        ]
        full = partial(score, pages=pages, threads=threads, with_cleval=True)
        (best, boxes), refused = choose((own, own_boxes), scored, full)
    _show(console, len(pages), {"now": (own_boxes, own), "best": (boxes, best)})
    if refused:
        console.print(
            f"{refused} combinations with a higher H-mean lower CLEval by more than {MOST_LOST}: refused",
            highlight=False,
        )
    if boxes is own_boxes:
        console.print(Text(f"{stored.path} has the best boxes already: nothing is written"), soft_wrap=True)
        return dict(best)
    settings = settings_of(config, stored.settings.architecture)
    if settings is None:
        given = " ".join(f"boxes.{name}={getattr(boxes, name)}" for name in NAMES)
        console.print(Text(f"transforms.val_transform has other stages, which no file can carry. Use {given}"))
        return dict(best)
    provenance = replace(stored.settings.provenance, scores=dict(best))
    write_settings(stored.path, replace(settings, boxes=asdict(boxes), provenance=provenance), target)
    console.print(Text(f"written: {target} ({stored.path} stays as it is)"), soft_wrap=True)
    return dict(best)


def choose(own: Scored, scored: Sequence[Scored], full: Callable[[BoxesFromMap], Scores]) -> tuple[Scored, int]:
    """The best boxes whose CLEval is not lower than that of the present ones, and how many better ones lower it."""
    refused = 0
    for scores, candidate in sorted(scored, key=lambda pair: -_rank(pair[0])):
        if _rank(scores) <= _rank(own[0]):
            break
        scores = full(candidate)
        if scores[CLEVAL] >= own[0][CLEVAL] - MOST_LOST:
            return (scores, candidate), refused
        refused += 1
    return own, refused


def _chosen(config: DictConfig) -> tuple[Path, str]:
    chosen = chosen_file(config)
    if chosen is None:
        raise ConfigError("tune=true needs a detector. Set checkpoint_path=.../best.ckpt", setting="checkpoint_path")
    return chosen


def _target(config: DictConfig, path: Path) -> Path:
    """A new file next to the detector; next to the run for the bundled one."""
    folder = Path(config.output_dir) if path == packaged_detector() else path.parent
    target = folder / f"{path.stem}.tuned{path.suffix}"
    if target.exists():
        raise ConfigError(
            f"tune=true would replace {target}. Rename or remove it", setting="tune", value=True, path=target
        )
    return target


def _candidates(config: DictConfig) -> Iterator[BoxesFromMap]:
    """Every combination of the grid, checked before the model runs."""
    boxes: BoxesFromMap = make(config.boxes, "boxes")
    for values in product(*(_values(config, name) for name in NAMES)):
        yield replace(boxes, **dict(zip(NAMES, values, strict=True)))


def _values(config: DictConfig, name: str) -> list[Any]:
    values = OmegaConf.select(config, f"grid.{name}")
    if not OmegaConf.is_list(values) or not values:
        raise ConfigError(
            f"grid.{name}={values} needs at least one value, in a list: grid.{name}=[0.3,0.5]",
            setting=f"grid.{name}",
            value=values,
        )
    return [float(value) if value in Range() else value for value in values]


def predict_maps(config: DictConfig, module: Any, console: Console) -> list[PageMap]:
    """The model's maps of the validation split."""
    data = OCRDataModule(config)
    check_annotated(data.dataset("val"), "val")
    fabric = lightning.Fabric(accelerator=config.trainer.accelerator, devices=1, precision=config.trainer.precision)
    model = fabric.setup_module(module.model)
    pages: list[PageMap] = []
    with torch.inference_mode():
        for batch in track(data.loader("val"), "maps", console=console, transient=True):
            if batch is None:
                continue
            images = module.normalization.on_device(batch["images"], fabric.device)
            maps = model(images, with_threshold=False).prob_map.float().cpu().numpy()[:, 0]
            for page, prob_map in enumerate(maps):
                matrix = np.asarray(batch["inverse_matrix"][page], dtype=np.float64)
                pages.append(PageMap(prob_map, matrix, batch["shape"][page], truth_on_page(batch, page)))
    return pages


def score(
    boxes: BoxesFromMap, pages: Sequence[PageMap], threads: ThreadPoolExecutor, with_cleval: bool = False
) -> dict[str, float]:
    """The scores of all pages with these boxes; CLEval's take much longer than the others."""
    hmean, cleval = HmeanIoU(also_at=[TIGHT_IOU]), CLEvalMetric() if with_cleval else None
    found = threads.map(lambda page: boxes(page.prob_map, page.inverse_matrix, page.size), pages)
    for page, detections in zip(pages, found, strict=True):
        hmean.update(detections.polygons, page.truth)
        if cleval is not None:
            cleval.update(detections.polygons, page.truth)
    scores = {name: float(value) for name, value in hmean.compute().items()}
    if cleval is not None:
        scores |= {f"cleval_{name}": float(value) for name, value in cleval.compute().items() if name[:4] == "det_"}
    return scores


def _rank(scores: Scores) -> float:
    """By both H-means: a gain of a thousandth at IoU 0.5 is not worth boxes that are too large or too small."""
    return scores["hmean"] + scores["hmean_70"]


def _show(console: Console, pages: int, rows: Mapping[str, tuple[BoxesFromMap, Scores]]) -> None:
    table = Table(title=f"{pages} validation pages", title_justify="left")
    table.add_column("boxes")
    for name in (*NAMES, *SHOWN.values()):
        table.add_column(name, justify="right")
    for row, (boxes, scores) in rows.items():
        settings = (getattr(boxes, field.name) for field in fields(boxes) if field.name in NAMES)
        table.add_row(row, *map(str, settings), *(f"{scores[name]:.4f}" for name in SHOWN))
    console.print(table)
