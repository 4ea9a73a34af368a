"""Train: from a config to `checkpoints/best.ckpt`."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from ocr.datasets.build import make
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.jobs.run import run_job
from ocr.training.module import OCRPLModule


def train(config: DictConfig, console: Console) -> dict[str, float]:
    """Train, validate every epoch, and leave `checkpoints/best.ckpt` and `last.ckpt` in the run's folder."""
    lightning.seed_everything(config.seed, workers=True, verbose=False)
    resume = _existing(config.resume, "resume")
    if config.compile_model and config.model.get("checkpoint_gradients"):
        raise ConfigError(
            "compile_model=true and model.checkpoint_gradients=true: torch.compile itself chooses what backward "
            "computes again. Set one of them to false"
        )
    data = OCRDataModule(config)
    data.dataset("train"), data.dataset("val")
    module = build_module(config)
    if config.checkpoint_path:
        load_checkpoint(module, _existing(config.checkpoint_path, "checkpoint_path"))
    if config.compile_model:
        module.model.compile()
    console.print(f"[bold]{escape(config.model.encoder)}[/] {escape(module.model.extra_repr())}", highlight=False)
    trainer = build_trainer(config)
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    if trainer.is_global_zero:
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.best_model_path:
                console.print(Text(f"{Path(callback.best_model_path).stem}: {callback.best_model_path}"))
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def build_module(config: DictConfig) -> OCRPLModule:
    """The detector, its loss and its scores."""
    # Before any other progress bar.
    warm_up()
    # The rest of the node are arguments of torch's optimizer.
    own = {"encoder_lr_factor": config.optimizer.get("encoder_lr_factor", 1.0)}
    optimizer = OmegaConf.masked_copy(config.optimizer, [str(key) for key in config.optimizer if key not in own])
    return OCRPLModule(
        model=make(config.model, "model"),
        loss=make(config.loss, "loss"),
        boxes=make(config.boxes, "boxes"),
        optimizer=make(optimizer, "optimizer"),
        schedule=OmegaConf.to_container(config.schedule, resolve=True),  # type: ignore[arg-type]
        normalization=make(config.transforms.normalization, "transforms.normalization"),
        cleval=config.cleval,
        **own,
    )


def build_trainer(config: DictConfig, training: bool = True) -> lightning.Trainer:
    """Lightning's trainer with the callbacks and loggers of the config; without them if nothing is trained."""
    callbacks = [make(node, f"callbacks.{name}") for name, node in config.callbacks.items() if node] if training else []
    loggers: Any = [make(node, f"logger.{name}") for name, node in config.logger.items() if node] if training else False
    trainer: lightning.Trainer = make(
        config.trainer,
        "trainer",
        callbacks=callbacks,
        logger=loggers,
        enable_checkpointing=training,
        _convert_="object",
    )
    return trainer


def trained_module(config: DictConfig) -> OCRPLModule:
    """The module of a config with the weights of `checkpoint_path`, in the architecture of the checkpoint."""
    path = _existing(config.checkpoint_path, "checkpoint_path")
    if path is None:
        raise ConfigError(
            "checkpoint_path is not set. Set it to a file that `ocr train` wrote: checkpoint_path=.../best.ckpt"
        )
    module = build_module(config)
    load_checkpoint(module, path)
    return module


def load_checkpoint(module: OCRPLModule, path: str | None) -> None:
    """Load the weights of a checkpoint; a ConfigError if it has another architecture."""
    try:
        checkpoint = torch.load(str(path), map_location="cpu", weights_only=True)
        weights = checkpoint["state_dict"]
    except (OSError, RuntimeError, KeyError, EOFError, ValueError, TypeError, UnpicklingError) as error:
        raise ConfigError(f"checkpoint_path={path} is not a checkpoint that `ocr train` wrote ({error})") from error
    own = {key.removeprefix("model."): value for key, value in weights.items() if key.startswith("model.")}
    module.model.load_weights(own, checkpoint.get("architecture"), f"checkpoint_path={path}")


def _existing(path: str | None, setting: str) -> str | None:
    if path is not None and not Path(path).is_file():
        raise ConfigError(f"{setting}={path} is not a file. Checkpoints are in outputs/<day>/<time>/checkpoints/")
    return path


def main() -> None:
    """`ocr train`."""
    run_job("train", train)


if __name__ == "__main__":
    main()
