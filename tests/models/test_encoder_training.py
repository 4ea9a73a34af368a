"""How an encoder is trained: with its blocks recomputed in backward, and frozen for the first epochs."""

from copy import deepcopy

import pytest
import torch
from rejection import rejects

from ocr.errors import ConfigError
from ocr.models import TextDetector
from ocr.models.encoder import Encoder

LITE = "mobilenetv3_small_050"
FAMILIES = ["resnet18", LITE, "hgnetv2_b0", "convnext_atto", "tf_efficientnet_lite0", "regnetx_002"]


def step(encoder: Encoder, images: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], list[int]]:
    """Gradients and statistics after one step, and how often each norm ran."""
    calls: list[int] = []
    for module in encoder.modules():
        if "norm" in type(module).__name__.lower():
            module.register_forward_pre_hook(lambda *_: calls.append(1))
    sum(feature.square().mean() for feature in encoder(images)).backward()
    statistics = {name: value for name, value in encoder.named_buffers() if "running" in name}
    return {name: value.grad for name, value in encoder.named_parameters()}, statistics, calls


@pytest.mark.parametrize("name", FAMILIES)
def test_checkpointing_changes_neither_gradients_nor_the_statistics_of_norms(name):
    plain, images = Encoder(name), torch.randn(2, 3, 64, 64)
    checkpointed = Encoder(name, checkpoint_gradients=True)
    checkpointed.load_state_dict(plain.state_dict())
    torch.manual_seed(0)  # Some encoders drop paths at random.
    gradients, statistics, calls = step(plain, images)
    torch.manual_seed(0)
    again, statistics_again, calls_again = step(checkpointed, images)
    assert len(calls_again) > len(calls), "nothing was recomputed"
    for key, gradient in gradients.items():
        torch.testing.assert_close(again[key], gradient, msg=key)
    for key, statistic in statistics.items():
        assert torch.equal(statistics_again[key], statistic), key


def test_statistics_follow_every_step_and_survive_a_copy():
    encoder = deepcopy(Encoder(LITE, checkpoint_gradients=True))
    seen = [encoder.backbone.bn1.running_mean.clone()]
    for _ in range(2):
        step(encoder, torch.randn(2, 3, 64, 64))
        seen.append(encoder.backbone.bn1.running_mean.clone())
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_an_encoder_without_blocks_cannot_be_checkpointed_and_is_named():
    with rejects(ConfigError, setting="checkpoint_gradients", value="vgg11_bn"):
        Encoder("vgg11_bn", checkpoint_gradients=True)


def train_step(detector: TextDetector, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    detector(torch.randn(2, 3, 64, 64)).prob_logits.square().mean().backward()
    optimizer.step()


def changed(detector: TextDetector, before: dict[str, torch.Tensor]) -> set[str]:
    """The parts of a detector that are no longer what they were."""
    return {key.split(".")[0] for key, value in detector.state_dict().items() if not torch.equal(value, before[key])}


def test_the_encoder_is_frozen_for_the_first_epochs_and_then_learns():
    detector = TextDetector(LITE, channels=16, freeze_epochs=2).train()
    optimizer = torch.optim.AdamW(detector.parameters(), lr=0.01, weight_decay=0.1)
    parts = []
    for epoch in range(3):
        before = deepcopy(detector.state_dict())
        detector.start_epoch(epoch)
        train_step(detector, optimizer)
        parts.append(changed(detector, before))
        detector.eval()
        detector.train()
    assert parts == [{"decoder", "head"}, {"decoder", "head"}, {"encoder", "decoder", "head"}]


def test_a_frozen_encoder_keeps_no_graph():
    detector = TextDetector(LITE, channels=16, freeze_epochs=1)
    detector.start_epoch(0)
    assert not any(feature.requires_grad for feature in detector.encoder(torch.randn(2, 3, 32, 32)))
    detector.start_epoch(1)
    assert all(feature.requires_grad for feature in detector.encoder(torch.randn(2, 3, 32, 32)))


def test_a_detector_in_evaluation_stays_there_when_its_encoder_thaws():
    detector = TextDetector(LITE, channels=16, freeze_epochs=1).eval()
    for epoch in (0, 1):
        detector.start_epoch(epoch)
        assert not detector.encoder.training


@pytest.mark.parametrize(
    ("setting", "value"), [("freeze_epochs", -1), ("freeze_epochs", 1.5), ("checkpoint_gradients", "stages")]
)
def test_settings_of_the_encoder_that_cannot_work_are_named(setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        TextDetector(LITE, channels=16, **{setting: value})
