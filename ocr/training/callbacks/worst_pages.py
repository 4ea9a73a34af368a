"""The pages with the lowest scores: drawn in the loggers every few epochs, listed at the end of the run."""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import lightning
import numpy as np
import torch
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ocr.atomic import replacing
from ocr.checks import check_integer
from ocr.evaluation.boxes import Detections
from ocr.evaluation.drawing import draw_page
from ocr.evaluation.hmean import Counts
from ocr.geometry.polygons import Polygons
from ocr.pipeline.batch import Batch
from ocr.training.callbacks.drawings import to_pixels

FILE = "worst_pages.json"
SHOWN = 10
"""Pages in the table on the screen."""


@dataclass(frozen=True, slots=True)
class ScoredPage:
    """A page, its counts, and its picture if it is one of the worst so far."""

    name: str
    counts: Counts
    tight: Counts
    """At IoU 0.7."""
    picture: bytes | None = None
    """JPEG."""

    @property
    def order(self) -> tuple[float, int, str]:
        """The worst first: the lowest H-mean, then the most errors."""
        return self.counts.hmean, -self.counts.missed - self.counts.false, self.name

    def row(self, epoch: int) -> dict[str, Any]:
        """The page as it is listed."""
        return {
            "page": self.name,
            "hmean": self.counts.hmean,
            "hmean_70": self.tight.hmean,
            "missed": self.counts.missed,
            "false": self.counts.false,
            "epoch": epoch,
        }


class WorstPages(lightning.Callback):
    """Keeps the worst pages of each validation, from the scores that it computes anyway.

    The list is of the best validation, whose weights are in best.ckpt; worst_pages.json is written whenever there is a
    better one. Labels are green in the drawings, boxes red.
    """

    def __init__(
        self,
        folder: str | Path,
        pages: int = 20,
        drawn: int = 4,
        every_validations: int = 3,
        console: Console | None = None,
    ) -> None:
        for name, value, least in (
            ("pages", pages, 1),
            ("drawn", drawn, 0),
            ("every_validations", every_validations, 1),
        ):
            check_integer(f"callbacks.worst_pages.{name}", value, minimum=least)
        self.folder, self.pages, self.drawn, self.every_validations = Path(folder), pages, drawn, every_validations
        self.console = console or Console()
        self.listed: list[dict[str, Any]] = []
        self.best = -1.0
        self._scored: list[ScoredPage] = []
        self._worst: list[tuple[float, int, str]] = []
        self._validations = 0
        self._module: Any = None

    def on_validation_start(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._scored, self._worst, self._module = [], [], pl_module
            pl_module.on_scored_page = self._keep

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        draws = self._draws_now()
        pl_module.on_scored_page = self._module = None
        scored = sorted(gather_pages(self._scored), key=lambda page: page.order)
        self._scored = []
        self._validations += 1
        if not trainer.is_global_zero or not scored:
            return
        if draws:
            log_pictures(trainer, [page for page in scored if page.picture is not None][: self.drawn])
        hmean = sum((page.counts for page in scored), Counts()).hmean
        if hmean > self.best:  # As best.ckpt: of equal validations the first.
            self.best = hmean
            self.listed = [page.row(trainer.current_epoch) for page in scored[: self.pages]]
            with replacing(self.folder / FILE) as stream:
                stream.write(json.dumps(self.listed, indent=1).encode())

    def on_exception(self, trainer: lightning.Trainer, pl_module: Any, exception: BaseException) -> None:
        pl_module.on_scored_page = self._module = None

    def on_fit_end(self, trainer: lightning.Trainer, pl_module: Any) -> None:
        if trainer.is_global_zero and self.listed:
            self.console.print(worst_table(self.listed[:SHOWN]))
            self.console.print(Text(f"worst pages: {self.folder / FILE}"), soft_wrap=True)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "listed": self.listed, "validations": self._validations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.best, self.listed = state_dict["best"], state_dict["listed"]
        self._validations = state_dict["validations"]

    def _draws_now(self) -> bool:
        return self.drawn > 0 and self._validations % self.every_validations == 0

    def _keep(self, batch: Batch, number: int, found: Detections, counts: tuple[Counts, ...]) -> None:
        page = ScoredPage(str(batch["image_filename"][number]), counts[0], counts[1])
        if self._draws_now() and (len(self._worst) < self.drawn or page.order < self._worst[-1]):
            insort(self._worst, page.order)
            del self._worst[self.drawn :]
            page = replace(page, picture=_picture(batch, number, found, self._module))
        self._scored.append(page)


def gather_pages(pages: list[ScoredPage]) -> list[ScoredPage]:
    """The pages of all ranks, each once."""
    parts: list[list[ScoredPage]] = [pages]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        parts = [[] for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather_object(parts, pages)
    return list({page.name: page for part in parts for page in part}.values())


def log_pictures(trainer: lightning.Trainer, pages: Sequence[ScoredPage]) -> None:
    """Pictures for every logger, as it takes them; for the CSV logger, and those it does not know, as files."""
    pictures = [_decoded(page.picture) for page in pages if page.picture is not None]
    if not pictures:
        return
    captions = [f"{page.name}: H-mean {page.counts.hmean:.3f}" for page in pages]
    step = trainer.global_step
    for logger in trainer.loggers:
        if isinstance(logger, TensorBoardLogger):
            for rank, picture in enumerate(pictures, 1):
                logger.experiment.add_image(f"worst_pages/{rank}", picture, step, dataformats="HWC")
            lines = "\n\n".join(f"{rank}. {caption}" for rank, caption in enumerate(captions, 1))
            logger.experiment.add_text("worst_pages", lines, step)
        elif isinstance(logger, MLFlowLogger):
            for rank, picture in enumerate(pictures, 1):
                file = f"worst_pages/step_{step:06d}_{rank}.png"
                logger.experiment.log_image(logger.run_id, picture, artifact_file=file)
            text = "\n".join(captions)
            logger.experiment.log_text(logger.run_id, text, f"worst_pages/step_{step:06d}.txt")
        elif hasattr(logger, "log_image"):  # Weights & Biases, and others as it.
            logger.log_image(key="worst_pages", images=pictures, caption=captions)
        elif logger.log_dir is not None:
            for rank, page in enumerate(pages, 1):
                with replacing(Path(logger.log_dir) / f"worst_pages/step_{step:06d}_{rank}.jpg") as stream:
                    stream.write(page.picture or b"")


def worst_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The worst pages, with the epoch that they were scored in."""
    table = Table(title=f"worst pages of epoch {rows[0]['epoch'] + 1}", title_justify="left")
    table.add_column("page", overflow="fold")
    for name in ("H-mean", "at IoU 0.7", "missed", "false"):
        table.add_column(name, justify="right")
    for row in rows:
        scores = (f"{row['hmean']:.3f}", f"{row['hmean_70']:.3f}")
        table.add_row(escape(row["page"]), *scores, str(row["missed"]), str(row["false"]))
    return table


def _picture(batch: Batch, number: int, found: Detections, module: Any) -> bytes:
    """The page as the model saw it, with labels and boxes."""
    pixels = to_pixels(batch["images"][number : number + 1], module)[0]
    matrix = np.linalg.inv(np.asarray(batch["inverse_matrix"][number], dtype=np.float64))
    truth = Polygons.pack(batch["polygons"][number], batch["ignore"][number])
    drawn = draw_page(pixels, Detections(found.polygons.moved(matrix), found.scores), truth)
    return bytes(cv2.imencode(".jpg", drawn[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 85])[1].tobytes())


def _decoded(picture: bytes) -> NDArray[np.uint8]:
    pixels = cv2.imdecode(np.frombuffer(picture, dtype=np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return np.ascontiguousarray(pixels[:, :, ::-1], dtype=np.uint8)
