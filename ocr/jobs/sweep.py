"""Sweep: the best settings for the boxes, scored on the same probability maps."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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

from ocr.atomic import replacing
from ocr.checks import Range
from ocr.datasets.build import make
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError
from ocr.evaluation import HmeanIoU
from ocr.evaluation.boxes import BoxesFromMap
from ocr.evaluation.hmean import TIGHT_IOU
from ocr.geometry.polygons import Polygons
from ocr.jobs.run import run_job
from ocr.jobs.scored_split import check_annotated
from ocr.jobs.swept_settings import FLAG, boxes_of_file, refuse_to_replace, write_boxes
from ocr.jobs.train import trained_module
from ocr.training.module import truth_on_page

NAMES = ("thresh", "box_thresh", "unclip_ratio")
SHOWN = ("hmean", "hmean_70")
Setting = float | str
Grid = dict[str, list[Setting]]


@dataclass(frozen=True, slots=True, eq=False)
class PageMap:
    """The probability map of a page and the text that is on it."""

    prob_map: NDArray[np.float32]
    inverse_matrix: NDArray[np.float64]
    size: tuple[int, int]
    truth: Polygons


def sweep(config: DictConfig, console: Console) -> dict[str, Setting]:
    """Score every combination of the grid on the validation split, show it, draw it, and write the best."""
    grid = {name: _values(config, name) for name in NAMES}
    refuse_to_replace(config)
    boxes: BoxesFromMap = make(config.boxes, "boxes")
    shape = tuple(len(values) for values in grid.values())
    # Before the model runs: a value that cannot work is refused here.
    candidates = {cell: replace(boxes, **_chosen(grid, cell)) for cell in np.ndindex(shape)}
    pages = predict_maps(config, console)
    scores = np.zeros((*shape, len(SHOWN)))
    with ThreadPoolExecutor() as threads:
        for cell in track(candidates, "combinations", console=console, transient=True):
            scores[cell] = score(candidates[cell], pages, threads)
        own_boxes = boxes_of_file(config)
        own = None if own_boxes is None else dict(zip(SHOWN, score(own_boxes, pages, threads), strict=True))
    # By both H-means: a gain of a thousandth at IoU 0.5 is not worth boxes that are too large or too small.
    best_cell = tuple(map(int, np.unravel_index(int(scores.mean(axis=-1).argmax()), shape)))
    best = _chosen(grid, best_cell)
    best_scores = dict(zip(SHOWN, scores[best_cell].tolist(), strict=True))
    out = Path(config.output_dir)
    _show(console, grid, scores, best_cell)
    draw_heat_map(out / "sweep.png", grid, scores[..., 0], best_cell[2])
    write_best(out / "boxes.yaml", best, best_scores)
    console.print(Text(f"drawn: {out / 'sweep.png'}\nwritten: {out / 'boxes.yaml'}"))
    given = " ".join(f"boxes.{name}={_text(value)}" for name, value in best.items())
    written = write_boxes(config, candidates[best_cell], best_scores, own)
    console.print(Text(written or f"use them: {given}"), soft_wrap=True)
    return best | best_scores


def _chosen(grid: Grid, cell: tuple[int, ...]) -> dict[str, Any]:
    return {name: grid[name][index] for name, index in zip(NAMES, cell, strict=True)}


def _values(config: DictConfig, name: str) -> list[Setting]:
    values = OmegaConf.select(config, f"grid.{name}")
    if not OmegaConf.is_list(values) or not values:
        raise ConfigError(
            f"grid.{name}={values} needs at least one value, in a list: grid.{name}=[0.3,0.5]",
            setting=f"grid.{name}",
            value=values,
        )
    # What is no number, the boxes themselves accept or refuse.
    return [float(value) if value in Range() else value for value in values]


def _text(value: Setting) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def predict_maps(config: DictConfig, console: Console) -> list[PageMap]:
    """The model's maps of the validation split."""
    data = OCRDataModule(config)
    check_annotated(data.dataset("val"), "val")
    module = trained_module(config).eval()
    fabric = lightning.Fabric(accelerator=config.trainer.accelerator, devices=1, precision=config.trainer.precision)
    model = fabric.setup_module(module.model)
    pages: list[PageMap] = []
    with torch.inference_mode():
        for batch in track(data.loader("val"), "maps", console=console, transient=True):
            if batch is None:
                continue
            images = module.normalization.on_device(batch["images"], fabric.device)
            maps = model(images).prob_map.cpu().numpy()[:, 0]
            for page, prob_map in enumerate(maps):
                truth = truth_on_page(batch, page, *module.model.units)
                pages.append(PageMap(prob_map, batch["inverse_matrix"][page], batch["shape"][page], truth))
    return pages


def score(boxes: BoxesFromMap, pages: list[PageMap], threads: ThreadPoolExecutor) -> list[float]:
    """H-means of all pages: those of `SHOWN`."""
    metric = HmeanIoU(also_at=[TIGHT_IOU])
    found = threads.map(lambda page: boxes(page.prob_map, page.inverse_matrix, page.size), pages)
    for page, detections in zip(pages, found, strict=True):
        metric.update(detections.polygons, page.truth)
    scores = metric.compute()
    return [float(scores[name]) for name in SHOWN]


def _show(console: Console, grid: Grid, scores: NDArray[np.float64], best: tuple[int, ...]) -> None:
    unclip = best[2]
    title = f"H-mean at IoU 0.5 / 0.7, unclip_ratio={_text(grid['unclip_ratio'][unclip])}"
    table = Table(title=title, title_justify="left")
    # In two lines, so that the grid of the config fits a terminal of 80 characters.
    table.add_column("thresh \\\nbox_thresh")
    for value in grid["box_thresh"]:
        table.add_column(_text(value), justify="right")
    for row, thresh in enumerate(grid["thresh"]):
        cells = [f"{hmean:.3f} / {tight:.3f}" for hmean, tight in scores[row, :, unclip]]
        if row == best[0]:
            cells[best[1]] = f"[bold green]{cells[best[1]]}[/]"
        table.add_row(_text(thresh), *cells)
    console.print(table)
    console.print("best by unclip_ratio:", highlight=False)
    for index, value in enumerate(grid["unclip_ratio"]):
        hmean, tight = max(scores[..., index, :].reshape(-1, len(SHOWN)).tolist(), key=sum)
        console.print(f"  {_text(value)}: {hmean:.4f} / {tight:.4f}", highlight=False)


def draw_heat_map(path: Path, grid: Grid, scores: NDArray[np.float64], unclip: int) -> None:
    """thresh against box_thresh, and thresh against unclip_ratio, each at the best value of the third."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    views = (("box_thresh", scores[..., unclip]), ("unclip_ratio", scores.max(axis=1)))
    for axis, (name, values) in zip(axes, views, strict=True):
        picture = axis.imshow(values, aspect="auto", origin="lower", cmap="viridis")
        axis.set_xticks(range(len(grid[name])), [_text(value) for value in grid[name]])
        axis.set_yticks(range(len(grid["thresh"])), [_text(value) for value in grid["thresh"]])
        axis.set(xlabel=name, ylabel="thresh", title="H-mean")
        for row, column in np.ndindex(values.shape):
            axis.text(column, row, f"{values[row, column]:.3f}", ha="center", va="center", color="white", fontsize=8)
        figure.colorbar(picture, ax=axis)
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=110)
    pyplot.close(figure)


def write_best(path: Path, best: dict[str, Setting], scores: dict[str, float]) -> None:
    """A config for configs/experiment/."""
    lines = [
        "# @package _global_",
        "# The best boxes of a sweep: H-mean on the validation split "
        f"{scores['hmean']:.4f} at IoU 0.5, {scores['hmean_70']:.4f} at 0.7.",
        "boxes:",
    ]
    lines += [f"  {name}: {_text(value)}" for name, value in best.items()]
    with replacing(path) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


def main() -> None:
    """`ocr sweep`."""
    # Hydra knows no options of ours.
    sys.argv[1:] = ["keep_original=true" if word == FLAG else word for word in sys.argv[1:]]
    run_job("sweep", sweep)


if __name__ == "__main__":
    main()
