"""OCRPLModule: a detector, its loss and its scores as a Lightning module."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn

from ocr.datasets.data_fingerprint import fingerprint_data
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError
from ocr.evaluation import CLEvalMetric, HmeanIoU
from ocr.evaluation.boxes import BoxesFromMap, BoxPool, Detections
from ocr.evaluation.hmean import TIGHT_IOU, Counts
from ocr.geometry.kernels.warm_up import warm_up
from ocr.geometry.polygons import Polygons
from ocr.models.detector import TextDetector
from ocr.models.settings import CHECKPOINT_KEY, DetectorSettings
from ocr.pipeline.batch import Batch
from ocr.pipeline.device import Normalize
from ocr.training.distillation import Distillation
from ocr.training.finite_check import FiniteCheck
from ocr.training.parameter_groups import build_optimizer, regroup_checkpoint
from ocr.training.resume import save_trained_batches
from ocr.training.schedule import build_schedule
from ocr.training.stopwatch import Stopwatch
from ocr.training.training_record import TrainingRecord

CLEVAL_SCORES = ("det_p", "det_r", "det_h")
NAMES = ("polygons", "ignore", "transcriptions", "units")
"""Of what a batch lists about the words of a page."""
PageListener = Callable[[Batch, int, Detections, tuple[Counts, ...]], None]
"""Takes each page that was scored: its batch, its number there, its boxes, and its counts at IoU 0.5 and 0.7."""


class OCRPLModule(lightning.LightningModule):
    """Train and score a detector; boxes are found in threads while the model works on the next batch."""

    def __init__(
        self,
        model: TextDetector,
        loss: nn.Module,
        boxes: BoxesFromMap,
        optimizer: Any = None,
        schedule: Mapping[str, Any] | None = None,
        normalization: Normalize | None = None,
        cleval: bool = False,
        encoder_lr_factor: float = 1.0,
        settings: DetectorSettings | None = None,
        distillation: Distillation | None = None,
    ) -> None:
        """`settings` are those that checkpoints carry, for prediction to need nothing else."""
        super().__init__()
        self.model, self.loss, self.boxes = model, loss, boxes
        self.optimizer, self.schedule = optimizer, dict(schedule or {"name": "constant"})
        self.encoder_lr_factor = encoder_lr_factor
        self.normalization = normalization or Normalize()
        self.hmean = HmeanIoU(also_at=[TIGHT_IOU])
        self.cleval = CLEvalMetric() if cleval else None
        units = model.units if len(model.units) > 1 else ()
        self.of_units = {unit: UnitScores(cleval) for unit in units}
        self._registered = nn.ModuleList(self.of_units.values())  # Metrics follow the module to its device.
        self.distillation = distillation
        self.settings = settings
        self.run: dict[str, Any] | None = None
        """The config and the command line, for checkpoints to carry: `train resume=CKPT` takes them from there."""
        self.record = TrainingRecord(distillation.teacher.about if distillation is not None else None)
        self.planned_steps = 0
        """Of the whole training, unless it stops early."""
        self.stopwatch = Stopwatch()
        self.finite = FiniteCheck()
        self.left_out = 0
        self.on_scored_page: PageListener | None = None
        self._buffers_at_step: dict[str, torch.Tensor] = {}
        """Of the model, after the last step of the optimizer: a forward pass updates running averages at once."""
        self._pool: BoxPool | None = None
        self._pages: list[tuple[Batch, str]] = []
        """Each batch once per unit, in the order of the maps."""

    def setup(self, stage: str) -> None:
        # Before the first batch, which would count the compiler as waiting for data.
        warm_up()
        if stage == "fit":
            self._check_strategy()

    def on_after_batch_transfer(self, batch: Batch | None, dataloader_idx: int) -> Batch | None:
        if batch is not None:
            batch["images"] = self.normalization.on_device(batch["images"])
        return batch

    def on_train_batch_start(self, batch: Batch | None, batch_idx: int) -> None:
        if batch_idx % self.trainer.accumulate_grad_batches == 0:
            self._buffers_at_step = {f"model.{name}": buffer.clone() for name, buffer in self.model.named_buffers()}

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        # Not once per epoch: a run that resumes within an epoch does not start it.
        self.model.start_epoch(self.current_epoch)
        with self.stopwatch.measure("forward"):
            prediction = self.model(batch["images"])
            loss, parts = self.loss(prediction, batch)
            if self.distillation is not None:
                distance, of_teacher = self.distillation(batch, prediction)
                loss = loss + distance
                parts |= {f"teacher_{name}": part for name, part in of_teacher.items()}
        self.finite.watch(loss, self.global_step, self.current_epoch, list(batch["image_filename"]))
        size = len(batch["images"])
        # Not for the progress bar, which would read it at once.
        self.log("train/loss", loss.detach(), batch_size=size)
        self.log_dict({f"train/loss_{name}": part for name, part in parts.items()}, batch_size=size)
        result: torch.Tensor = loss
        return result

    def on_train_start(self) -> None:
        self.finite = FiniteCheck()
        data = getattr(self.trainer, "datamodule", None)
        dataset = data.dataset("train") if isinstance(data, OCRDataModule) else None
        self.record.start(fingerprint_data(dataset))
        if self.distillation is not None:
            self.distillation.teacher.start(dataset)

    def on_train_epoch_end(self) -> None:
        self.finite.finish()

    def on_validation_epoch_start(self) -> None:
        self.finite.finish()
        # What a validation that failed has left must not be scored with this one.
        self._close_pool()
        self._pool = BoxPool(self.boxes)
        self.left_out = 0

    def validation_step(self, batch: Batch | None, batch_idx: int) -> None:
        # Every page of the batch was skipped, and counted in the ledger of the dataset.
        if batch is None:
            return
        assert self._pool is not None
        with self.stopwatch.measure("forward"):
            prediction = self.model(batch["images"], with_threshold=False)
            prob_maps = prediction.prob_map.cpu()
        with self.stopwatch.measure("boxes"):
            for number, unit in enumerate(self.of_units or self.model.units or ("",)):
                self._pool.submit(prob_maps[:, number, None], batch["inverse_matrix"], batch["shape"])
                self._pages.append((batch, unit))
        self._score(keep=max(1, len(self.of_units)))

    def on_validation_epoch_end(self) -> None:
        assert self._pool is not None
        self._score(keep=0)
        self._close_pool()
        with self.stopwatch.measure("scores"):
            scores = self._scores_of_units() if self.of_units else _scores(self.hmean, self.cleval)
        self.log_dict(scores, prog_bar=False, sync_dist=False, rank_zero_only=False)
        self.record.score(self.global_step, scores)
        self.hmean.reset()
        if self.cleval is not None:
            self.cleval.reset()
        for scored in self.of_units.values():
            scored.reset()

    @property
    def score_names(self) -> list[str]:
        """What a validation logs, for callbacks to monitor."""
        tight = f"_{round(TIGHT_IOU * 100)}"
        names = [f"val/{name}{at}" for at in ("", tight) for name in ("precision", "recall", "hmean")]
        names += [f"val/cleval_{name}" for name in CLEVAL_SCORES if self.cleval is not None]
        return names + [f"{name}_{unit}" for unit in self.of_units for name in names]

    # A test is a validation on another split.
    on_test_epoch_start = on_validation_epoch_start
    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end

    def predict_step(self, batch: Batch | None, batch_idx: int) -> list[Detections]:
        if batch is None:
            return []
        maps = self.model(batch["images"], with_threshold=False).prob_map
        return self.boxes.batch(maps[:, :1], batch["inverse_matrix"], batch["shape"])

    def configure_optimizers(self) -> Any:
        optimizer = self.build_optimizer()
        self.planned_steps = self._total_steps()
        schedule = build_schedule(optimizer, steps=self.planned_steps, **self.schedule)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def build_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the config, with its parameter groups."""
        return build_optimizer(self.model, self.optimizer, self.encoder_lr_factor)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        regroup_checkpoint(checkpoint, self.model, self.encoder_lr_factor)
        self.record.resume(checkpoint)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.finite.finish()
        checkpoint["architecture"] = dict(self.model.architecture)
        if self.settings is not None:
            checkpoint[CHECKPOINT_KEY] = self.record.complete(self.settings, self.global_step).to_dict()
        if self.run is not None:
            checkpoint["run"] = self.run
        save_trained_batches(checkpoint, self.trainer.accumulate_grad_batches, self._buffers_at_step)

    def _check_strategy(self) -> None:
        strategy = self.trainer.strategy
        if not self.model.freeze_epochs or not isinstance(strategy, DDPStrategy):
            return
        if not strategy._ddp_kwargs.get("find_unused_parameters"):
            raise ConfigError(
                f"model.freeze_epochs={self.model.freeze_epochs} makes ddp wait for gradients of the frozen encoder. "
                "Set trainer.strategy=ddp_find_unused_parameters_true",
                setting="model.freeze_epochs",
                value=self.model.freeze_epochs,
            )

    def _total_steps(self) -> int:
        trainer = self.trainer
        data = getattr(trainer, "datamodule", None)
        if not isinstance(data, OCRDataModule):
            return int(trainer.estimated_stepping_batches)
        # Lightning's own estimate opens the loader before a resumed run has restored its position.
        batches, limit = len(data.loader("train")), trainer.limit_train_batches
        batches = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
        bounds = [trainer.max_steps] if trainer.max_steps > 0 else []
        if trainer.max_epochs != -1:
            bounds.append(math.ceil(batches / trainer.accumulate_grad_batches) * int(trainer.max_epochs or 1))
        if not bounds:
            raise ConfigError(
                f"schedule: the number of steps is unknown with trainer.max_epochs={trainer.max_epochs}. Set "
                "trainer.max_epochs=N or trainer.max_steps=N",
                setting="trainer.max_steps",
                value=trainer.max_steps,
            )
        return min(bounds)

    def _score(self, keep: int) -> None:
        assert self._pool is not None
        pending = self._pool.drain(keep)
        while len(self._pages) > keep:
            with self.stopwatch.measure("boxes"):
                found = next(pending)
            with self.stopwatch.measure("scores"):
                self._score_batch(*self._pages.pop(0), found)

    def _score_batch(self, batch: Batch, unit: str, found: list[Detections]) -> None:
        for page, detections in enumerate(found):
            truth = truth_on_page(batch, page, unit, unsaid=not self.of_units)
            if not len(truth) and len(batch["polygons"][page]):
                continue  # It is labelled in the other unit.
            if unit in self.of_units:
                self.of_units[unit].update(detections.polygons, truth)
                if unit != next(iter(self.of_units)):
                    continue
            self.left_out += detections.left_out
            self.hmean.update(detections.polygons, truth)
            if self.on_scored_page is not None:
                self.on_scored_page(batch, page, detections, self.hmean.last_page)
            if self.cleval is not None:
                self.cleval.update(detections.polygons, truth)

    def _close_pool(self) -> None:
        if self._pool is not None:
            self._pool.__exit__(None, None, None)
            self._pool = None
            self._pages.clear()

    def _scores_of_units(self) -> dict[str, torch.Tensor]:
        """Of each unit that pages are labelled in, and their means."""
        found = {unit: _scores(scored.hmean, scored.cleval) for unit, scored in self.of_units.items() if scored.pages}
        names = next(iter(found.values()), {})
        means = {name: torch.stack([scores[name] for scores in found.values()]).mean() for name in names}
        return means | {f"{name}_{unit}": score for unit, scores in found.items() for name, score in scores.items()}


class UnitScores(nn.Module):
    """Scores of one unit, over the pages that are labelled in it."""

    def __init__(self, cleval: bool) -> None:
        super().__init__()
        self.hmean = HmeanIoU(also_at=[TIGHT_IOU])
        self.cleval = CLEvalMetric() if cleval else None
        self.pages = 0

    def update(self, found: Polygons, truth: Polygons) -> None:
        self.pages += 1
        self.hmean.update(found, truth)
        if self.cleval is not None:
            self.cleval.update(found, truth)

    def reset(self) -> None:
        self.pages = 0
        self.hmean.reset()
        if self.cleval is not None:
            self.cleval.reset()


def _scores(hmean: HmeanIoU, cleval: CLEvalMetric | None) -> dict[str, torch.Tensor]:
    scores = {f"val/{name}": score for name, score in hmean.compute().items()}
    if cleval is not None:
        scores |= {f"val/cleval_{name}": score for name, score in cleval.compute().items() if name in CLEVAL_SCORES}
    return scores


def truth_on_page(batch: Batch, page: int, unit: str = "", unsaid: bool = True) -> Polygons:
    """Every annotated polygon of one page of a batch, in source page coordinates; of one unit if one is given.

    With `unsaid`, labels that do not say their unit are of it.
    """
    shown = _packed({name: batch[name][page] for name in NAMES if name in batch})
    truth = shown.moved(np.asarray(batch["inverse_matrix"][page]))
    unseen = batch["unseen"][page] if "unseen" in batch else None
    truth = truth if unseen is None else truth.followed_by(_packed(unseen))
    return truth.of_unit(unit, unsaid) if unit else truth


def _packed(words: Batch) -> Polygons:
    units = words.get("units")
    return Polygons.pack(words["polygons"], words["ignore"], words["transcriptions"], () if units is None else units)
