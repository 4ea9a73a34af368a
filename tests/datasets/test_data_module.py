"""OCRDataModule: from datasets alone, or from a config, with the loaders of each split."""

from pathlib import Path
from typing import Any

import lightning
import torch
from rejection import rejects
from sameness import assert_same

from ocr import DBTransforms, Loader, OCRDataModule, OCRDataset
from ocr.errors import ConfigError
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox


def open_split(data: Path, split: str) -> OCRDataset:
    transform = DBTransforms([Letterbox(64), Normalize()], normalize="device")
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", transform)


class Brightness(lightning.LightningModule):
    """Learns one number; notes what its batches are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.pages = {"train": 0, "val": 0}

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        assert batch["images"].dtype == torch.float32
        self.pages["train"] += len(batch["images"])
        return (self.weight - batch["images"].mean()).square().sum()

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        self.pages["val"] += len(batch["images"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(module: OCRDataModule, folder: Path) -> Brightness:
    model = Brightness()
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, module)
    return model


def test_datasets_alone_are_enough_for_a_fit(synthetic, tmp_path):
    module = OCRDataModule(train=open_split(synthetic, "train"), val=open_split(synthetic, "val"), batch_size=4)
    model = fit(module, tmp_path)
    assert model.pages == {"train": 8, "val": 6}
    assert model.weight.item() != 0


def test_a_fit_without_validation_pages_only_trains(synthetic, tmp_path):
    assert fit(OCRDataModule(train=open_split(synthetic, "train")), tmp_path).pages == {"train": 8, "val": 0}


def test_training_pages_are_shuffled_and_others_are_in_order(synthetic):
    pages = open_split(synthetic, "train")
    module = OCRDataModule(train=pages, val=pages, test=pages, batch_size=3, num_workers=0, seed=5)
    assert_same(list(module.train_dataloader()), list(Loader(pages, 3, 0, shuffle=True, seed=5)))
    in_order = list(Loader(pages, 3, 0))
    assert_same(list(module.val_dataloader()), in_order)
    assert_same(list(module.test_dataloader()), in_order)


def test_what_cannot_be_loaded_is_refused(synthetic):
    with rejects(ConfigError, setting="OCRDataModule.config", value=None):
        OCRDataModule()
    with rejects(ConfigError, setting="OCRDataModule.test"):
        OCRDataModule(train=open_split(synthetic, "train")).test_dataloader()
