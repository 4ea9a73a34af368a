"""Train: from a config to `checkpoints/best.ckpt`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from ocr.datasets.build import make
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError, near_names
from ocr.geometry.kernels.warm_up import warm_up
from ocr.jobs.detector_settings import settings_of
from ocr.jobs.recipe import AUTO
from ocr.jobs.resumed_run import run_to_store
from ocr.jobs.run import run_job
from ocr.jobs.stored_settings import read_chosen
from ocr.jobs.teacher import build_distillation
from ocr.models.card import write_card
from ocr.models.detector import TextDetector
from ocr.models.load import read_detector
from ocr.optional import require
from ocr.training.module import OCRPLModule


def train(config: DictConfig, console: Console) -> dict[str, float]:
    """Train, validate every epoch, and leave `checkpoints/best.ckpt` and `last.ckpt` in the run's folder."""
    lightning.seed_everything(config.seed, workers=True, verbose=False)
    if config.compile_model and config.model.get("checkpoint_gradients"):
        raise ConfigError(
            "compile_model=true and model.checkpoint_gradients=true: torch.compile itself chooses what to recompute "
            "in backward. Set one of them to false",
            setting="model.checkpoint_gradients",
            value=True,
        )
    stored = read_chosen(config)
    data = OCRDataModule(config)
    data.dataset("train"), data.dataset("val")
    module = build_module(config)
    module.run = run_to_store(config)
    if stored is not None:
        stored.load_into(module.model)
    elif module.distillation is not None and config.distil.inherit:
        taken = len(module.model.inherit(module.distillation.teacher.model))
        console.print(f"training starts with {taken} tensors of the teacher's decoder and head: those that fit")
    check_monitored(config, module.score_names)
    if module.settings is None:
        console.print(
            "transforms.val_transform is not a letterbox and a normalisation: checkpoints cannot carry it. Pass the "
            "same settings to test",
            highlight=False,
        )
    if config.compile_model:
        module.model.compile()
        if module.distillation is not None:
            module.distillation.teacher.model.compile()
    console.print(f"[bold]{escape(config.model.encoder)}[/] {escape(module.model.extra_repr())}", highlight=False)
    trainer = build_trainer(config)
    log_settings(trainer, config)
    with lightning_errors(trainer):
        resume = None if config.resume is None else str(config.resume)
        trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    if trainer.is_global_zero:
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and callback.best_model_path:
                _write_card(Path(callback.best_model_path))
                console.print(Text(f"{Path(callback.best_model_path).stem}: {callback.best_model_path}"))
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _write_card(checkpoint: Path) -> None:
    """README.md next to the checkpoint, if it carries its settings."""
    settings = read_detector(checkpoint).settings
    if settings is not None:
        write_card(checkpoint.parent, checkpoint.name, settings)


def check_monitored(config: DictConfig, scores: list[str]) -> None:
    """Raise if a callback of Lightning waits for a score that no validation logs: it would say so an epoch later."""
    for name, node in config.callbacks.items():
        is_theirs = node and str(node.get("_target_")).startswith("lightning.")
        monitored = str(node.get("monitor") or "") if is_theirs else ""
        if monitored and not monitored.startswith("train/") and monitored not in scores:
            raise ConfigError(
                f"callbacks.{name}.monitor={monitored} is unknown. {near_names(monitored, scores)}",
                setting=f"callbacks.{name}.monitor",
                value=monitored,
            )


@contextmanager
def lightning_errors(trainer: lightning.Trainer) -> Iterator[None]:
    """An interrupt and a setting that Lightning refuses end as those of every other command do."""
    try:
        yield
    except SystemExit as end:
        # Lightning catches the interrupt, lets callbacks save, and exits with status 1.
        if not trainer.interrupted:
            raise
        raise KeyboardInterrupt from end
    except MisconfigurationException as error:
        raise ConfigError(f"trainer or callbacks: {error}", setting="trainer") from error


def build_module(config: DictConfig) -> OCRPLModule:
    """The detector, its loss and its scores."""
    # Before any other progress bar.
    warm_up()
    # The rest of the node are arguments of torch's optimizer.
    own = {"encoder_lr_factor": config.optimizer.get("encoder_lr_factor", 1.0)}
    optimizer = OmegaConf.masked_copy(config.optimizer, [str(key) for key in config.optimizer if key not in own])
    model: TextDetector = make(config.model, "model")
    return OCRPLModule(
        model=model,
        loss=make(config.loss, "loss"),
        boxes=make(config.boxes, "boxes"),
        optimizer=make(optimizer, "optimizer"),
        schedule=OmegaConf.to_container(config.schedule, resolve=True),  # type: ignore[arg-type]
        normalization=make(config.transforms.normalization, "transforms.normalization"),
        cleval=config.cleval,
        settings=settings_of(config, model.architecture),
        distillation=build_distillation(config),
        **own,
    )


def build_trainer(config: DictConfig, training: bool = True) -> lightning.Trainer:
    """Lightning's trainer with the callbacks and loggers of the config; without them if nothing is trained."""
    nodes = (config.get("logger") or {}) if training else {}
    for name in nodes.keys() & {"wandb", "mlflow"}:
        require(name, f"logger={name}")
    loggers: Any = [make(node, f"logger.{name}") for name, node in nodes.items() if node]
    names = [name for name in config.callbacks if name != "lr_monitor" or loggers] if training else ["progress"]
    callbacks = [make(config.callbacks[name], f"callbacks.{name}") for name in names if config.callbacks.get(name)]
    given = config.trainer
    if not training:  # What is still `auto` is derived where a detector is trained.
        scoring = config.copy()
        scoring._set_flag("struct", False)
        given = scoring.trainer
        for key in [key for key, value in given.items() if value == AUTO]:
            del given[key]
    trainer: lightning.Trainer = make(
        given,
        "trainer",
        callbacks=callbacks,
        logger=loggers,
        enable_checkpointing=training,
        _convert_="object",
    )
    return trainer


def log_settings(trainer: lightning.Trainer, config: DictConfig) -> None:
    """Tell services that compare runs what this one was given; the folder of the run has it anyway."""
    for logger in trainer.loggers:
        if not isinstance(logger, CSVLogger | TensorBoardLogger):
            logger.log_hyperparams(OmegaConf.to_container(config, resolve=True))  # type: ignore[arg-type]


def trained_module(config: DictConfig, several_units: bool = False) -> OCRPLModule:
    """The module of a config with the weights of its detector file."""
    if not several_units and len(config.units or ()) > 1:
        raise ConfigError(
            "units=[lines,words]: this command looks at one map. Set units=[lines] or units=[words]",
            setting="units",
            value=list(config.units),
        )
    stored = read_chosen(config)
    if stored is None:
        raise ConfigError(
            "checkpoint_path is not set. Set it to a file that `glyphfeed train` wrote: checkpoint_path=.../best.ckpt",
            setting="checkpoint_path",
        )
    module = build_module(config)
    stored.load_into(module.model)
    return module


def main() -> None:
    """`glyphfeed train`."""
    run_job("train", train)


if __name__ == "__main__":
    main()
