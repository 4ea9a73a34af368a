"""OCRDataModule: the splits of a config as Lightning wants them."""

from __future__ import annotations

from typing import Any

import lightning
from omegaconf import DictConfig, OmegaConf

from ocr.datasets.build import build_dataset, make
from ocr.errors import ConfigError
from ocr.loader.loader import Loader


class OCRDataModule(lightning.LightningDataModule):
    """Datasets are made when their split is first asked for, loaders shard them by rank."""

    def __init__(self, config: DictConfig) -> None:
        super().__init__()
        self.config = _without_cache(config) if config.get("use_dali") else config
        self.datasets: dict[str, Any] = {}

    def dataset(self, split: str) -> Any:
        """The dataset of a split, made once."""
        if split not in self.datasets:
            self.datasets[split] = build_dataset(self.config, split)
        return self.datasets[split]

    def loader(self, split: str) -> Loader:
        """A loader of this rank's share of a split."""
        trainer = self.trainer
        settings: dict[str, Any] = {
            "engine": self.config.data.engine,
            "batches_ahead": self.config.data.batches_ahead,
            "seed": self.config.seed,
            "collate_fn": make(self.config.collate_fn, "collate_fn"),
            "device": trainer.strategy.root_device if trainer else None,
            "rank": trainer.global_rank if trainer else 0,
            "world_size": trainer.world_size if trainer else 1,
            **self.config.dataloaders[f"{split}_dataloader"],
        }
        if self.config.get("use_dali"):
            return self._dali_loader(split, **settings)
        return Loader(self.dataset(split), **settings)

    def _dali_loader(self, split: str, batch_size: int, num_workers: int, device: Any, **settings: Any) -> Loader:
        # DALI is optional, and slow to import.
        from ocr.dali.graph import ocr_pipeline
        from ocr.dali.loader import DALIDataLoader

        dataset = self.dataset(split)
        pipeline = ocr_pipeline(
            dataset,
            batch_size,
            max(1, num_workers),
            device_id=getattr(device, "index", None) or 0,
            model_device=device,
            **self.config.dali,
        )
        return DALIDataLoader(pipeline, len(dataset), batch_size, num_workers=num_workers, device=device, **settings)

    def train_dataloader(self) -> Loader:
        return self.loader("train")

    def val_dataloader(self) -> Loader:
        return self.loader("val")

    def test_dataloader(self) -> Loader:
        return self.loader("test")


def _without_cache(config: DictConfig) -> DictConfig:
    """DALI decodes every page in every epoch: what `data.cache=auto` can keep is nothing."""
    if config.data.cache not in ("auto", "off", False):  # Hydra reads a bare `off` as false.
        raise ConfigError(
            f"data.cache={config.data.cache}, but use_dali=true decodes every page in every epoch. "
            "Set data.cache=auto, or use_dali=false"
        )
    merged = OmegaConf.merge(config, {"data": {"cache": "off"}})
    assert isinstance(merged, DictConfig)
    return merged
