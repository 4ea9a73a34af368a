"""How a training ends that was interrupted, or that was given what Lightning refuses."""

import signal
from pathlib import Path
from typing import Any

import lightning
import pytest
from hydra import compose, initialize_config_dir
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.demos.boring_classes import BoringModel
from rejection import rejects

from ocr.errors import ConfigError
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.train import check_monitored, lightning_errors
from ocr.training.callbacks.drawings import DrawPredictions


class Interrupted(lightning.Callback):
    def on_train_batch_end(self, *_: Any) -> None:
        raise KeyboardInterrupt


def fit(folder: Path, *callbacks: lightning.Callback) -> None:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(max_epochs=1, default_root_dir=folder, callbacks=list(callbacks), **quiet)
    with lightning_errors(trainer):
        trainer.fit(BoringModel())


def test_an_interrupt_of_the_training_is_one_of_the_command(tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path, Interrupted())
    finally:
        signal.signal(signal.SIGINT, handler)  # Lightning ignores all that follow.


def test_what_lightning_refuses_is_an_error_of_the_config(tmp_path):
    with rejects(ConfigError, setting="trainer") as caught:
        fit(tmp_path, ModelCheckpoint(tmp_path, monitor="nowhere"))
    assert "nowhere" in str(caught.value)


def test_a_score_that_no_validation_logs_is_refused_before_the_training():
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("train", ["callbacks.early_stopping.monitor=val/hmeen"])
    with rejects(ConfigError, setting="callbacks.early_stopping.monitor", value="val/hmeen"):
        check_monitored(config, ["val/hmean", "val/recall"])
    config.callbacks.early_stopping.monitor = "train/loss"
    config.callbacks.best = None
    check_monitored(config, ["val/hmean"])


@pytest.mark.parametrize("wrong", [{"pages": 0}, {"pages": "4"}, {"every_epochs": 0}, {"every_epochs": None}])
def test_drawings_of_no_pages_or_at_no_time_are_refused(wrong):
    ((name, value),) = wrong.items()
    with rejects(ConfigError, setting=f"callbacks.drawings.{name}", value=value):
        DrawPredictions("drawings", **wrong)
