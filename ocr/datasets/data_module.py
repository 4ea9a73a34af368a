"""OCRDataModule: the splits of a config, or given datasets, as Lightning needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning
from omegaconf import DictConfig, OmegaConf

from ocr.datasets.build import build_dataset, make
from ocr.errors import ConfigError
from ocr.loader.loader import Loader


class OCRDataModule(lightning.LightningDataModule):
    """The splits of a config, or of datasets that exist already, as loaders of each rank's share.

    `OCRDataModule(config)` makes the dataset of a split when it is first needed. `OCRDataModule(train=dataset,
    val=dataset)` takes any map-style datasets; training pages are shuffled, and `settings` go to `Loader`.
    """

    def __init__(
        self,
        config: DictConfig | None = None,
        *,
        train: Any = None,
        val: Any = None,
        test: Any = None,
        batch_size: int = 16,
        num_workers: int = 2,
        **settings: Any,
    ) -> None:
        super().__init__()
        given = {"train": train, "val": val, "test": test}
        self.datasets: dict[str, Any] = {split: dataset for split, dataset in given.items() if dataset is not None}
        if (config is None) == (not self.datasets) or (config is not None and settings):
            raise ConfigError(
                "OCRDataModule needs either a config or datasets. Pass OCRDataModule(config), or "
                "OCRDataModule(train=dataset, val=dataset, batch_size=16)",
                setting="OCRDataModule.config",
                value=config,
            )
        self.config = _without_cache(config) if config is not None and config.get("use_dali") else config
        self._settings = {"batch_size": batch_size, "num_workers": num_workers, **settings}

    def dataset(self, split: str) -> Any:
        """The dataset of a split, made once."""
        if split not in self.datasets:
            if self.config is None:
                raise ConfigError(
                    f"OCRDataModule has no {split} dataset. Pass {split}=dataset", setting=f"OCRDataModule.{split}"
                )
            self.datasets[split] = build_dataset(self.config, split)
        return self.datasets[split]

    def loader(self, split: str) -> Loader:
        """A loader of this rank's share of a split."""
        settings = self._settings_of(split) | self._where()
        if self.config is not None and self.config.get("use_dali"):
            return self._dali_loader(split, self.config.dali, **settings)
        return Loader(self.dataset(split), **settings)

    def _settings_of(self, split: str) -> dict[str, Any]:
        if self.config is None:
            return {"shuffle": split == "train", **self._settings}
        return {
            "engine": self.config.data.engine,
            "batches_ahead": self.config.data.batches_ahead,
            "batch_shapes": self.config.data.batch_shapes,
            "batch_pixels": self.config.data.batch_pixels,
            "seed": self.config.seed,
            "collate_fn": make(self.config.collate_fn, "collate_fn"),
            **self.config.dataloaders[f"{split}_dataloader"],
        }

    def _where(self) -> dict[str, Any]:
        """The device and the rank of the trainer, if there is one."""
        if self.trainer is None:
            return {}
        trainer = self.trainer
        device = trainer.strategy.root_device
        return {"device": device, "rank": trainer.global_rank, "world_size": trainer.world_size}

    def _dali_loader(
        self,
        split: str,
        dali: Mapping[str, Any],
        batch_size: int,
        num_workers: int,
        device: Any = None,
        **settings: Any,
    ) -> Loader:
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
            **dali,
        )
        return DALIDataLoader(pipeline, len(dataset), batch_size, num_workers=num_workers, device=device, **settings)

    def train_dataloader(self) -> Loader:
        return self.loader("train")

    def val_dataloader(self) -> Loader | list[Loader]:
        # Lightning skips validation without loaders.
        return [] if self.config is None and "val" not in self.datasets else self.loader("val")

    def test_dataloader(self) -> Loader:
        return self.loader("test")


def _without_cache(config: DictConfig) -> DictConfig:
    """DALI decodes every page in every epoch, so `data.cache=auto` keeps nothing."""
    merged = OmegaConf.merge(config, {"data": {"cache": "off"}})
    assert isinstance(merged, DictConfig)
    return merged
