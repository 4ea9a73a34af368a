"""Every preset of configs/model builds the detector that it names."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig

from ocr.models import DBLoss, TextDetector

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PRESETS = sorted(file.stem for file in (CONFIGS / "model").glob("*.yaml"))


def config(preset: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(f"model/{preset}", list(overrides))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_builds_a_detector_and_its_loss(preset):
    composed = config(preset)
    detector = instantiate(composed.model)
    assert isinstance(detector, TextDetector)
    assert isinstance(instantiate(composed.loss), DBLoss)
    assert detector.architecture["encoder"] == composed.model.encoder
    assert detector.eval()(torch.zeros(1, 3, 32, 32)).prob_map.shape == (1, 1, 32, 32)


def test_the_lite_preset_is_small():
    assert sum(instantiate(config("lite").model).parameter_counts.values()) < 500_000


def test_settings_reach_the_detector_and_the_loss():
    composed = config("lite", "model.decoder=pan", "model.scale_fusion=true", "model.k=20", "loss.negative_ratio=5")
    detector = instantiate(composed.model)
    assert (detector.architecture["decoder"], detector.scale_fusion is None, detector.head.k) == ("pan", False, 20)
    assert instantiate(composed.loss).negative_ratio == 5
