"""Which parameters decay, how fast the encoder learns, and checkpoints from before there were groups."""

from functools import partial
from pathlib import Path

import pytest
import torch
from rejection import rejects
from test_training import Losses, fit, settings

from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError
from ocr.jobs.train import build_module, build_trainer, train
from ocr.models import TextDetector
from ocr.training.module import OCRPLModule
from ocr.training.parameter_groups import build_optimizer, parameter_groups
from ocr.training.schedule import build_schedule

LITE = "mobilenetv3_small_050"
ADAMW = partial(torch.optim.AdamW, lr=0.1, weight_decay=0.5)


@pytest.fixture(scope="module")
def detector() -> TextDetector:
    return TextDetector(LITE, channels=16)


def test_every_parameter_is_in_one_group_and_only_weights_of_two_or_more_dimensions_decay(detector):
    optimizer = build_optimizer(detector, ADAMW)
    grouped = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(id(parameter) for parameter in detector.parameters())
    for group in optimizer.param_groups:
        decays = {parameter.ndim > 1 for parameter in group["params"]}
        assert decays == {group["weight_decay"] == 0.5}
        assert group["weight_decay"] in (0, 0.5)


def test_without_gradients_weights_shrink_and_norms_and_biases_do_not():
    detector = TextDetector(LITE, channels=16)
    before = {name: value.detach().clone() for name, value in detector.named_parameters()}
    for parameter in detector.parameters():
        parameter.grad = torch.zeros_like(parameter)
    build_optimizer(detector, ADAMW).step()
    kept = {name for name, value in detector.named_parameters() if torch.equal(value, before[name]) and value.any()}
    assert kept == {name for name, value in before.items() if value.ndim <= 1 and value.any()}


@pytest.mark.parametrize("make", [ADAMW, partial(torch.optim.SGD, lr=0.1)], ids=["AdamW", "SGD"])
def test_the_encoder_learns_at_its_own_rate_through_the_whole_schedule(detector, make):
    optimizer = build_optimizer(detector, make, encoder_lr_factor=0.25)
    schedule = build_schedule(optimizer, "one_cycle", steps=10)
    for _ in range(5):
        rates = {group["name"].split("_")[0]: group["lr"] for group in optimizer.param_groups}
        assert rates["encoder"] == pytest.approx(0.25 * rates["rest"])
        optimizer.step()
        schedule.step()


@pytest.mark.parametrize("factor", [0, -1.0, float("nan"), "slow", True, None])
def test_a_factor_that_cannot_work_is_named(detector, factor):
    with rejects(ConfigError, setting="optimizer.encoder_lr_factor", value=factor):
        build_optimizer(detector, ADAMW, encoder_lr_factor=factor)


def test_an_optimizer_that_cannot_take_the_groups_or_an_argument_is_a_config_error(detector):
    with rejects(ConfigError, setting="optimizer") as caught:
        build_optimizer(detector, partial(torch.optim.SGD, lr=0.1, momentun=0.9))
    assert isinstance(caught.value.__cause__, TypeError)
    with rejects(ConfigError, setting="optimizer") as caught:
        build_optimizer(detector, partial(torch.optim.LBFGS, lr=0.1))
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_factor_of_the_config_reaches_the_optimizer_and_no_other_argument_is_lost(synthetic, tmp_path):
    config = settings(synthetic, tmp_path, "optimizer.encoder_lr_factor=0.5", "optimizer.weight_decay=0.3")
    optimizer = build_module(config).build_optimizer()
    assert {(group["name"], group["lr"], group["weight_decay"]) for group in optimizer.param_groups} == {
        ("encoder", 0.0005, 0.3),
        ("encoder_undecayed", 0.0005, 0.0),
        ("rest", 0.001, 0.3),
        ("rest_undecayed", 0.001, 0.0),
    }


class OneGroup(OCRPLModule):
    """The module as it was when all parameters were one group."""

    def build_optimizer(self) -> torch.optim.Optimizer:
        return self.optimizer(self.model.parameters())


@pytest.fixture(scope="module")
def old_checkpoint(synthetic, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("old")
    config = settings(synthetic, out, "trainer.max_epochs=1")
    module = build_module(config)
    module.__class__ = OneGroup
    trainer = build_trainer(config)
    trainer.callbacks.append(Losses({3: out / "old.ckpt"}))
    trainer.fit(module, datamodule=OCRDataModule(config))
    return out / "old.ckpt"


def test_a_checkpoint_with_one_group_goes_on_with_the_state_of_each_parameter(
    old_checkpoint, synthetic, tmp_path, caplog
):
    config = settings(synthetic, tmp_path, "trainer.max_epochs=1", "optimizer.encoder_lr_factor=0.5")
    recorder = Losses()
    trainer = fit(config, recorder, old_checkpoint)
    assert len(recorder.seen) == 1
    assert "the checkpoint has one parameter group: its state continues in 4 groups" in caplog.text
    (optimizer,) = trainer.optimizers
    assert {float(state["step"]) for state in optimizer.state.values()} == {4.0}
    assert all(state["exp_avg"].shape == parameter.shape for parameter, state in optimizer.state.items())
    rates = {group["name"]: group["lr"] for group in optimizer.param_groups}
    assert rates["encoder"] == pytest.approx(0.5 * rates["rest"])


def test_the_state_of_a_parameter_is_its_own_after_regrouping(old_checkpoint, synthetic, tmp_path):
    module = build_module(settings(synthetic, tmp_path))
    checkpoint = torch.load(old_checkpoint, weights_only=True)
    old = checkpoint["optimizer_states"][0]["state"]
    module.on_load_checkpoint(checkpoint)
    optimizer = module.build_optimizer()
    optimizer.load_state_dict(checkpoint["optimizer_states"][0])
    for index, parameter in enumerate(module.model.parameters()):
        assert torch.equal(optimizer.state[parameter]["exp_avg"], old[index]["exp_avg"])
    assert len(parameter_groups(module.model)) == len(checkpoint["lr_schedulers"][0]["base_lrs"]) == 4


def test_a_frozen_encoder_with_ddp_needs_the_strategy_that_looks_for_unused_parameters(synthetic, tmp_path):
    config = settings(synthetic, tmp_path, "model.freeze_epochs=1", "trainer.devices=2", "trainer.strategy=ddp")
    module = build_module(config)
    module.trainer = build_trainer(config, training=False)
    with rejects(ConfigError, setting="model.freeze_epochs", value=1):
        module.setup("fit")
    config.trainer.strategy = "ddp_find_unused_parameters_true"
    module.trainer = build_trainer(config, training=False)
    module.setup("fit")


def test_a_run_that_resumes_within_a_frozen_epoch_keeps_the_encoder_frozen_until_its_end(synthetic, tmp_path):
    overrides = ("trainer.max_epochs=2", "model.freeze_epochs=1", "callbacks.ema=null")
    whole, part = Losses({2: tmp_path / "two.ckpt"}), Losses({4: tmp_path / "four.ckpt"})
    fit(settings(synthetic, tmp_path / "whole", *overrides), whole)
    fit(settings(synthetic, tmp_path / "part", *overrides), part, tmp_path / "two.ckpt")
    assert part.seen == whole.seen[2:]
    two, four = (torch.load(tmp_path / f"{name}.ckpt", weights_only=True)["state_dict"] for name in ("two", "four"))
    moved = {key.split(".")[1] for key in two if not torch.equal(two[key], four[key])}
    assert moved == {"decoder", "head"}


def test_a_compiled_model_is_not_checkpointed_by_hand(synthetic, tmp_path):
    with rejects(ConfigError, setting="model.checkpoint_gradients", value=True):
        train(settings(synthetic, tmp_path, "compile_model=true", "model.checkpoint_gradients=true"), None)
