"""What a training shows: a line per epoch, a table where something was validated, and how long it will take."""

import io
import logging
import re
from types import SimpleNamespace

import lightning
import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from rich.console import Console
from test_training import Losses, fit, settings

from ocr.datasets.data_module import OCRDataModule
from ocr.jobs.train import build_module, build_trainer
from ocr.training.callbacks.epoch_report import HMEAN, EpochReport
from ocr.training.callbacks.progress import WaitingBar
from ocr.training.callbacks.wait_report import WaitReport
from ocr.training.stopwatch import RunClock, Stopwatch

HALF = ("trainer.max_epochs=4", "trainer.check_val_every_n_epoch=2", "trainer.limit_train_batches=2")


@pytest.fixture(scope="module")
def shown(synthetic, tmp_path_factory):
    """Four epochs, every other one validated: what is printed, and the rows."""
    config = settings(synthetic, tmp_path_factory.mktemp("run"), *HALF, "callbacks.data_report=null")
    config.callbacks.report = None
    report = EpochReport(Console(file=(out := io.StringIO()), width=100))
    trainer = build_trainer(config)
    trainer.callbacks.append(report)
    trainer.fit(build_module(config), datamodule=OCRDataModule(config))
    return out.getvalue(), report.history


def test_an_epoch_is_a_line_and_a_validated_one_a_table(shown):
    text, _ = shown
    names = re.findall(r"epoch \d/4", text)
    assert names == ["epoch 1/4", "epoch 2/4", "epoch 3/4", "epoch 4/4"]
    lines = [line for line in text.splitlines() if line.startswith(("epoch 1/4", "epoch 3/4"))]
    assert all("loss" in line and "samples/s" in line and "left" in line for line in lines)
    assert len(lines) == 2
    assert text.count("H-mean at IoU 0.7") == 2
    assert "left" not in text[text.index("epoch 4/4") :]


def test_scores_of_an_earlier_validation_are_not_shown_again(shown):
    assert [HMEAN in row for row in shown[1]] == [False, True, False, True]


def test_an_epoch_that_is_resumed_in_the_middle_counts_from_there(synthetic, tmp_path):
    saved = {3: tmp_path / "step3.ckpt"}
    fit(settings(synthetic, tmp_path / "whole", "trainer.max_epochs=1"), Losses(saved))
    trainer = fit(settings(synthetic, tmp_path / "rest", "trainer.max_epochs=1"), Losses(), saved[3])
    (report,) = [callback for callback in trainer.callbacks if isinstance(callback, EpochReport)]
    (row,) = report.history
    assert 0 < row["epoch seconds"] < 1000
    assert row["samples/s"] > 0.01


def test_the_clocks_of_a_resumed_run_start_when_it_does():
    module = SimpleNamespace(stopwatch=Stopwatch(), planned_steps=10)
    trainer = SimpleNamespace(global_step=4)
    for callback in (EpochReport(Console(quiet=True)), WaitReport(Console(quiet=True))):
        callback.on_train_start(trainer, module)
        assert callback._started > 0


def test_the_time_left_is_that_of_the_steps_of_this_process():
    assert RunClock(total_steps=100, first_step=50, started=0.0).left(60, now=5.0) == 20.0
    assert RunClock(total_steps=100, first_step=50, started=0.0).left(50, now=5.0) is None
    assert RunClock(total_steps=0).left(7, now=5.0) is None


class Logging(lightning.Callback):
    def on_train_batch_end(self, *_):
        logging.getLogger().warning("a line of the log")
        print("a line that is printed")


def test_lines_are_not_glued_to_the_bar_of_a_terminal(tmp_path, monkeypatch):
    terminal = io.StringIO()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.__stdout__", terminal)
    handler = logging.StreamHandler(terminal)
    logging.getLogger().addHandler(handler)
    try:
        bar = WaitingBar(Console(force_terminal=True, width=100))
        trainer = lightning.Trainer(
            max_epochs=1,
            limit_train_batches=3,
            limit_val_batches=2,
            callbacks=[bar, Logging()],
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            accelerator="cpu",
            default_root_dir=tmp_path,
        )
        trainer.fit(BoringModel())
        assert handler.stream is terminal
    finally:
        logging.getLogger().removeHandler(handler)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    for line in ("a line of the log", "a line that is printed"):
        found = re.findall(rf"(.?){line}(.?)", plain, flags=re.DOTALL)
        assert len(found) == 3
        assert {before for before, _ in found} <= {"\n", "\r", ""}
        assert {after for _, after in found} == {"\n"}
    assert "epoch 1/1" in plain


def test_in_a_file_there_is_no_bar():
    bar = WaitingBar(Console(file=(out := io.StringIO())))
    trainer = SimpleNamespace(is_global_zero=True)
    bar.setup(trainer, torch.nn.Module(), "fit")
    bar.teardown(trainer, torch.nn.Module(), "fit")
    assert out.getvalue() == ""
