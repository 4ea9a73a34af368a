"""OCRDataModule: the splits of a config as Lightning wants them."""

from __future__ import annotations

from typing import Any

import lightning
from omegaconf import DictConfig

from ocr.pipeline.build import build_dataset, make
from ocr.pipeline.loader import EpochLoader
from ocr.pipeline.order import EpochBatches


class OCRDataModule(lightning.LightningDataModule):
    """Datasets are made when their split is first asked for, loaders shard them by rank."""

    def __init__(self, config: DictConfig) -> None:
        super().__init__()
        self.config = config
        self._datasets: dict[str, Any] = {}

    def dataset(self, split: str) -> Any:
        """The dataset of a split, made once."""
        if split not in self._datasets:
            self._datasets[split] = build_dataset(self.config, split)
        return self._datasets[split]

    def loader(self, split: str) -> EpochLoader:
        """A loader of this rank's share of a split."""
        dataset = self.dataset(split)
        settings = dict(self.config.dataloaders[f"{split}_dataloader"])
        trainer = self.trainer
        batches = EpochBatches(
            len(dataset),
            settings.pop("batch_size"),
            shuffle=settings.pop("shuffle"),
            drop_last=settings.pop("drop_last"),
            seed=self.config.seed,
            rank=trainer.global_rank if trainer else 0,
            ranks=trainer.world_size if trainer else 1,
        )
        return EpochLoader(dataset, batches, collate_fn=make(self.config.collate_fn, "collate_fn"), **settings)

    def train_dataloader(self) -> EpochLoader:
        return self.loader("train")

    def val_dataloader(self) -> EpochLoader:
        return self.loader("val")

    def test_dataloader(self) -> EpochLoader:
        return self.loader("test")
