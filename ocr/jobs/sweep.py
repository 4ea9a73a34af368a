"""Sweep: the best settings for the boxes, scored on the same probability maps."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from ocr.atomic import replacing
from ocr.datasets.build import make
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError
from ocr.evaluation import HmeanIoU
from ocr.evaluation.boxes import BoxesFromMap
from ocr.geometry.polygons import Polygons
from ocr.jobs.run import run_job
from ocr.jobs.train import trained_module
from ocr.training.module import truth_on_page

NAMES = ("thresh", "box_thresh", "unclip_ratio")


@dataclass(frozen=True, slots=True, eq=False)
class PageMap:
    """The probability map of a page and the text that is on it."""

    prob_map: NDArray[np.float32]
    inverse_matrix: NDArray[np.float64]
    size: tuple[int, int]
    truth: Polygons


def sweep(config: DictConfig, console: Console) -> dict[str, float]:
    """Score every combination of the grid on the validation split, show it, draw it, and write the best."""
    grid = {name: [float(value) for value in config.grid[name]] for name in NAMES}
    if not all(grid.values()):
        raise ConfigError(f"grid={grid}: each of {', '.join(NAMES)} needs at least one value")
    pages = predict_maps(config, console)
    boxes: BoxesFromMap = make(config.boxes, "boxes")
    scores = np.zeros(tuple(len(values) for values in grid.values()))
    combinations = list(product(*(range(len(values)) for values in grid.values())))
    with ThreadPoolExecutor() as threads:
        for cell in track(combinations, "combinations", console=console, transient=True):
            settings: dict[str, Any] = {name: grid[name][index] for name, index in zip(NAMES, cell, strict=True)}
            scores[cell] = score(replace(boxes, **settings), pages, threads)
    best_cell = np.unravel_index(int(scores.argmax()), scores.shape)
    best = {name: grid[name][index] for name, index in zip(NAMES, best_cell, strict=True)}
    out = Path(config.output_dir)
    _show(console, grid, scores, best_cell)
    draw_heat_map(out / "sweep.png", grid, scores, int(best_cell[2]))
    write_best(out / "boxes.yaml", best, float(scores.max()))
    console.print(Text(f"drawn: {out / 'sweep.png'}\nwritten: {out / 'boxes.yaml'}"))
    console.print("use them: " + " ".join(f"boxes.{name}={value:g}" for name, value in best.items()), highlight=False)
    return best | {"hmean": float(scores.max())}


def predict_maps(config: DictConfig, console: Console) -> list[PageMap]:
    """The model's maps of the validation split."""
    module = trained_module(config).eval()
    fabric = lightning.Fabric(accelerator=config.trainer.accelerator, devices=1, precision=config.trainer.precision)
    model = fabric.setup_module(module.model)
    pages: list[PageMap] = []
    with torch.inference_mode():
        for batch in track(OCRDataModule(config).loader("val"), "maps", console=console, transient=True):
            if batch is None:
                continue
            images = module.normalization.on_device(batch["images"], fabric.device)
            maps = model(images).prob_map.cpu().numpy()[:, 0]
            for page, prob_map in enumerate(maps):
                truth = truth_on_page(batch, page)
                pages.append(PageMap(prob_map, batch["inverse_matrix"][page], batch["shape"][page], truth))
    return pages


def score(boxes: BoxesFromMap, pages: list[PageMap], threads: ThreadPoolExecutor) -> float:
    """H-mean of all pages."""
    metric = HmeanIoU()
    found = threads.map(lambda page: boxes(page.prob_map, page.inverse_matrix, page.size), pages)
    for page, detections in zip(pages, found, strict=True):
        metric.update(detections.polygons, page.truth)
    return float(metric.compute()["hmean"])


def _show(console: Console, grid: dict[str, list[float]], scores: NDArray[np.float64], best: Any) -> None:
    unclip = int(best[2])
    table = Table(title=f"H-mean at unclip_ratio={grid['unclip_ratio'][unclip]:g}", title_justify="left")
    table.add_column("thresh \\ box_thresh")
    for value in grid["box_thresh"]:
        table.add_column(f"{value:g}", justify="right")
    for row, thresh in enumerate(grid["thresh"]):
        cells = [
            f"[bold green]{value:.4f}[/]" if (row, column, unclip) == tuple(best) else f"{value:.4f}"
            for column, value in enumerate(scores[row, :, unclip])
        ]
        table.add_row(f"{thresh:g}", *cells)
    console.print(table)
    by_unclip = ", ".join(
        f"{value:g}: {scores[..., index].max():.4f}" for index, value in enumerate(grid["unclip_ratio"])
    )
    console.print(f"best by unclip_ratio: {by_unclip}", highlight=False)


def draw_heat_map(path: Path, grid: dict[str, list[float]], scores: NDArray[np.float64], unclip: int) -> None:
    """thresh against box_thresh, and thresh against unclip_ratio, each at the best value of the third."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    views = (("box_thresh", scores[..., unclip]), ("unclip_ratio", scores.max(axis=1)))
    for axis, (name, values) in zip(axes, views, strict=True):
        picture = axis.imshow(values, aspect="auto", origin="lower", cmap="viridis")
        axis.set_xticks(range(len(grid[name])), [f"{value:g}" for value in grid[name]])
        axis.set_yticks(range(len(grid["thresh"])), [f"{value:g}" for value in grid["thresh"]])
        axis.set(xlabel=name, ylabel="thresh", title="H-mean")
        for row, column in np.ndindex(values.shape):
            axis.text(column, row, f"{values[row, column]:.3f}", ha="center", va="center", color="white", fontsize=8)
        figure.colorbar(picture, ax=axis)
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=110)
    pyplot.close(figure)


def write_best(path: Path, best: dict[str, float], hmean: float) -> None:
    """A config for configs/experiment/."""
    lines = [
        "# @package _global_",
        f"# The best boxes of a sweep: H-mean {hmean:.4f} on the validation split.",
        "boxes:",
    ]
    lines += [f"  {name}: {value:g}" for name, value in best.items()]
    with replacing(path) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


def main() -> None:
    """`ocr sweep`."""
    run_job("sweep", sweep)


if __name__ == "__main__":
    main()
