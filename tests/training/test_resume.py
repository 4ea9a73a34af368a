"""A training that is resumed from any checkpoint trains the batches that an uninterrupted one would, each once."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.data_module import OCRDataModule
from ocr.evaluation.boxes import BoxesFromMap
from ocr.models.detector import TextDetector
from ocr.models.loss import DBLoss
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.training.module import OCRPLModule

SMALL = DBTransforms([Letterbox(32), Normalize()], normalize="device")


class Pages(lightning.Callback):
    """The epoch and the pages of every batch that was trained, and checkpoints at every occasion."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.trained: list[tuple[Any, ...]] = []
        self.weights: dict[str, torch.Tensor] = {}

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self._save(trainer, "within")

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.trained.append((trainer.current_epoch, *batch["image_filename"]))
        self._save(trainer, "after")

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self._save(trainer, "epoch")

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        self._save(trainer, "validated")

    def _save(self, trainer: Any, when: str) -> None:
        if self.folder is not None:
            trainer.save_checkpoint(self.folder / f"{when}{len(self.trained)}.ckpt")


def fit(
    train: OCRDataset, val: OCRDataset, pages: Pages, resume: Path | None = None, **limits: Any
) -> list[tuple[Any, ...]]:
    lightning.seed_everything(0, verbose=False)
    nothing_else = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=[pages],
        limit_val_batches=1,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        **dict.fromkeys(nothing_else, False),
        **limits,
    )
    model = TextDetector("mobilenetv3_small_050", channels=8)
    module = OCRPLModule(model, DBLoss(), BoxesFromMap(), lambda weights: torch.optim.SGD(weights, 1e-4))
    data = OCRDataModule(train=train, val=val, batch_size=3, num_workers=1)
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    pages.weights = module.model.state_dict()
    return pages.trained


def assert_same_weights(resumed: Pages, whole: Pages, name: str) -> None:
    differing = [key for key, weights in whole.weights.items() if not torch.equal(resumed.weights[key], weights)]
    assert (name, differing) == (name, [])


@pytest.mark.parametrize(
    "limits", [pytest.param({"max_steps": 7, "max_epochs": 4}, marks=pytest.mark.slow), {"max_epochs": 3}]
)
def test_a_resumed_training_loses_and_repeats_no_batch(synthetic, tmp_path, limits):
    train, val = (
        OCRDataset(synthetic / "images" / split, synthetic / "jsons" / f"{split}.json", SMALL)
        for split in ("train", "val")
    )
    saved, steps, whole = tmp_path / "saved", 3, Pages(tmp_path / "saved")
    trained = fit(train, val, whole, **limits)
    assert [epoch for epoch, *_ in trained] == [step // steps for step in range(len(trained))]
    assert len(trained) >= 2 * steps
    for path in sorted(saved.iterdir()):
        done = int(path.stem.lstrip("abcdefghijklmnopqrstuvwxyz"))
        if 0 < done <= steps + 1:
            resumed = Pages()
            assert (path.stem, fit(train, val, resumed, path, **limits)) == (path.stem, trained[done:])
            assert_same_weights(resumed, whole, path.stem)


def test_a_training_that_accumulates_gradients_resumes_from_its_last_step(synthetic, tmp_path):
    train, val = (
        OCRDataset(synthetic / "images" / split, synthetic / "jsons" / f"{split}.json", SMALL)
        for split in ("train", "val")
    )
    limits, saved, whole = (
        {"max_epochs": 2, "accumulate_grad_batches": 2},
        tmp_path / "saved",
        Pages(tmp_path / "saved"),
    )
    trained = fit(train, val, whole, **limits)
    of_epoch = len(trained) // 2
    assert of_epoch == 3  # A step of two batches, and one of the batch that is left.
    for path in sorted(saved.iterdir()):
        done = int(path.stem.lstrip("abcdefghijklmnopqrstuvwxyz"))
        if 0 < done <= of_epoch + 1:
            resumed = Pages()
            assert (path.stem, fit(train, val, resumed, path, **limits)) == (path.stem, trained[done - done % 3 % 2 :])
            assert_same_weights(resumed, whole, path.stem)
