"""A loss that is not finite ends the run one step later, before anything is validated or saved."""

import pytest
import torch
from rejection import rejects
from test_training import Losses, fit, settings

from ocr.errors import DataError
from ocr.training.finite_check import FiniteCheck

NAN = torch.tensor(torch.nan)


def test_the_error_comes_with_the_next_step_and_names_the_step_it_belongs_to():
    check = FiniteCheck()
    check.watch(torch.tensor(1.5), 6, 0, ["a.jpg"])
    check.watch(NAN, 7, 1, ["b.jpg", "c.jpg"])
    assert check.latest == 1.5
    with rejects(DataError, value="nan at step 7, epoch 2", path="b.jpg, c.jpg"):
        check.watch(torch.tensor(2.0), 8, 1, ["d.jpg"])


def test_the_last_step_is_checked_at_the_end_and_only_once():
    check = FiniteCheck()
    check.finish()
    check.watch(torch.tensor(torch.inf), 3, 0, ["a.jpg"])
    with rejects(DataError, value="inf at step 3, epoch 1", path="a.jpg"):
        check.finish()
    check.finish()


@pytest.mark.parametrize("validates", [True, False])
def test_the_last_step_of_an_epoch_is_checked_before_validation_and_before_a_checkpoint(synthetic, tmp_path, validates):
    overrides = ["optimizer.lr=1e30", "trainer.max_epochs=1", "trainer.limit_train_batches=2"]
    overrides += [] if validates else ["trainer.check_val_every_n_epoch=2"]
    with pytest.raises(DataError) as caught:
        fit(settings(synthetic, tmp_path, *overrides), Losses())
    assert caught.value.value in ("nan at step 1, epoch 1", "inf at step 1, epoch 1")
    assert caught.value.path.count(".jpg") == 2
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_checkpoint_within_an_epoch_is_not_written_after_such_a_loss(synthetic, tmp_path):
    recorder = Losses({2: tmp_path / "within.ckpt"})
    with pytest.raises(DataError) as caught:
        fit(settings(synthetic, tmp_path, "optimizer.lr=1e30", "trainer.max_epochs=1"), recorder)
    assert caught.value.value in ("nan at step 1, epoch 1", "inf at step 1, epoch 1")
    assert not (tmp_path / "within.ckpt").exists()
