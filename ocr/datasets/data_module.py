"""OCRDataModule: the splits of a config as Lightning wants them."""

from __future__ import annotations

from typing import Any

import lightning
from omegaconf import DictConfig

from ocr.pipeline.build import build_dataset, make
from ocr.pipeline.loader import Loader


class OCRDataModule(lightning.LightningDataModule):
    """Datasets are made when their split is first asked for, loaders shard them by rank."""

    def __init__(self, config: DictConfig) -> None:
        super().__init__()
        self.config = config
        self.datasets: dict[str, Any] = {}

    def dataset(self, split: str) -> Any:
        """The dataset of a split, made once."""
        if split not in self.datasets:
            self.datasets[split] = build_dataset(self.config, split)
        return self.datasets[split]

    def loader(self, split: str) -> Loader:
        """A loader of this rank's share of a split."""
        trainer = self.trainer
        return Loader(
            self.dataset(split),
            engine=self.config.data.engine,
            batches_ahead=self.config.data.batches_ahead,
            seed=self.config.seed,
            collate_fn=make(self.config.collate_fn, "collate_fn"),
            device=trainer.strategy.root_device if trainer else None,
            rank=trainer.global_rank if trainer else 0,
            ranks=trainer.world_size if trainer else 1,
            **self.config.dataloaders[f"{split}_dataloader"],
        )

    def train_dataloader(self) -> Loader:
        return self.loader("train")

    def val_dataloader(self) -> Loader:
        return self.loader("val")

    def test_dataloader(self) -> Loader:
        return self.loader("test")
