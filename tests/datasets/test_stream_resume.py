"""A resumed training goes on with the batch after those that were trained, also of shards without an index."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from test_webdataset import folder, write_shards

from ocr.datasets import DBTransforms
from ocr.datasets.data_module import OCRDataModule
from ocr.datasets.webstream import OCRWebStream
from ocr.evaluation.boxes import BoxesFromMap
from ocr.loader.protocol import LoadableDataset
from ocr.models.detector import TextDetector
from ocr.models.loss import DBLoss
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.shards.storage import Storage
from ocr.training.module import OCRPLModule

SMALL = DBTransforms([Letterbox(32), Normalize()], normalize="device")


class Pages(lightning.Callback):
    """The epoch and the pages of every batch that was trained, and checkpoints at every occasion."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.trained: list[tuple[Any, ...]] = []

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
    train: LoadableDataset, val: LoadableDataset, pages: Pages, resume: Path | None = None, **limits: Any
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
    return pages.trained


@pytest.fixture(scope="module")
def val(synthetic) -> LoadableDataset:
    return folder(synthetic, "val", SMALL)


@pytest.fixture(scope="module")
def stream(synthetic, tmp_path_factory) -> OCRWebStream:
    out = write_shards(folder(synthetic, "train"), tmp_path_factory.mktemp("shards"), "train", per_shard=2)
    urls = [str(path) for path in sorted(out.glob("*.tar"))]
    return OCRWebStream(urls, Storage(out / "kept"), SMALL, shuffle_buffer=3)


@pytest.mark.parametrize(
    ("kind", "limits"),
    [
        ("stream", {"max_steps": 7}),
        ("stream", {"max_epochs": 3, "limit_train_batches": 2}),
        ("folder", {"max_steps": 7, "max_epochs": 4}),
        ("folder", {"max_epochs": 3}),
    ],
)
def test_a_resumed_training_loses_and_repeats_no_batch(synthetic, stream, val, tmp_path, kind, limits):
    train = stream if kind == "stream" else folder(synthetic, "train", SMALL)
    trained = fit(train, val, Pages(tmp_path), **limits)
    steps = limits.get("limit_train_batches", 3)
    assert [epoch for epoch, *_ in trained] == [step // steps for step in range(len(trained))]
    assert len(trained) >= 2 * steps
    for path in sorted(tmp_path.iterdir()):
        done = int(path.stem.lstrip("abcdefghijklmnopqrstuvwxyz"))
        if 0 < done <= steps + 1:
            assert (path.stem, fit(train, val, Pages(), path, **limits)) == (path.stem, trained[done:])
