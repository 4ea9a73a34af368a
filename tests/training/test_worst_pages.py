"""The worst pages of a run: listed in a file and on the screen, drawn in the loggers, from validation's own scores."""

import json
from pathlib import Path

import lightning
import numpy as np
import pytest
from rich.console import Console
from test_training import settings
from torch.utils.tensorboard import SummaryWriter

from ocr.evaluation.hmean import Counts
from ocr.jobs.train import train
from ocr.training.callbacks.worst_pages import FILE, ScoredPage, WorstPages, worst_table

KEYS = ["page", "hmean", "hmean_70", "missed", "false", "epoch"]


def run(data: Path, out: Path, *overrides: str) -> None:
    train(settings(data, out, "trainer.max_epochs=1", *overrides), Console(quiet=True))


def test_a_run_lists_its_worst_pages_and_draws_them_for_tensorboard(synthetic, tmp_path, monkeypatch, capsys):
    images: dict[str, np.ndarray] = {}
    monkeypatch.setattr(SummaryWriter, "add_image", lambda self, tag, picture, *_, **__: images.update({tag: picture}))
    tensorboard = [
        "logger.tensorboard={_target_: lightning.pytorch.loggers.TensorBoardLogger, save_dir: " + str(tmp_path) + "}"
    ]
    tensorboard += ["trainer.limit_train_batches=1"]
    run(synthetic, tmp_path, *tensorboard, "callbacks.worst_pages.drawn=2", "callbacks.worst_pages.pages=5")
    listed = json.loads((tmp_path / FILE).read_text())
    assert len(listed) == 5
    assert [list(row) for row in listed] == [KEYS] * 5
    assert [row["hmean"] for row in listed] == sorted(row["hmean"] for row in listed)
    assert {row["epoch"] for row in listed} == {0}
    assert set(images) == {"worst_pages/1", "worst_pages/2"}
    assert all(picture.shape[2] == 3 and picture.dtype == np.uint8 for picture in images.values())
    assert "worst pages of epoch 1" in capsys.readouterr().out


def test_a_run_without_validation_lists_nothing(synthetic, tmp_path):
    off = ("trainer.limit_val_batches=0", "callbacks.best=null", "callbacks.early_stopping=null")
    run(synthetic, tmp_path, "trainer.limit_train_batches=1", *off)
    assert not (tmp_path / FILE).exists()


def test_a_page_is_worse_by_its_score_and_then_by_its_errors():
    few, many, good = (
        ScoredPage(name, counts, counts)
        for name, counts in (("few", Counts(0, 1, 1)), ("many", Counts(0, 9, 9)), ("good", Counts(3, 3, 4)))
    )
    assert [page.name for page in sorted([good, few, many], key=lambda page: page.order)] == ["many", "few", "good"]
    assert good.row(7) == {"page": "good", "hmean": pytest.approx(6 / 7), "hmean_70": pytest.approx(6 / 7)} | {
        "missed": 1, "false": 0, "epoch": 7
    }  # fmt: skip


def test_of_equal_validations_the_first_is_listed_as_it_is_the_first_that_best_ckpt_has(tmp_path):
    trainer, module, worst = (
        lightning.Trainer(logger=False, accelerator="cpu"),
        lightning.LightningModule(),
        WorstPages(tmp_path),
    )
    for epoch in range(2):
        trainer.fit_loop.epoch_progress.current.processed = epoch
        worst.on_validation_start(trainer, module)
        worst._scored.append(ScoredPage("a", Counts(1, 2, 2), Counts(0, 2, 2)))
        worst.on_validation_end(trainer, module)
    assert [row["epoch"] for row in worst.listed] == [0]


def test_the_list_of_the_best_validation_survives_a_resume(tmp_path):
    before, after = WorstPages(tmp_path), WorstPages(tmp_path)
    before.best, before.listed = 0.8, [ScoredPage("a", Counts(1, 2, 2), Counts(0, 2, 2)).row(3)]
    after.load_state_dict(before.state_dict())
    assert (after.best, after.listed) == (0.8, before.listed)
    assert worst_table(after.listed).row_count == 1
