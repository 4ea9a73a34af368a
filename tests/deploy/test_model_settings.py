"""Settings in a model file that cannot be used: refused with the name of the file, before a page is read."""

import pytest
from rejection import rejects

from ocr.deploy.model_file import ModelInfo
from ocr.deploy.runtimes import open_model
from ocr.errors import ConfigError
from ocr.models.detector import TextDetector
from ocr.models.load import save_detector
from ocr.models.settings import DetectorSettings

ARCHITECTURE = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}
BAD = {
    "letterbox": {"size": "large"},
    "normalization": {"mean": [0.5, 0.5]},
    "boxes": {"thresh": "high"},
}


@pytest.mark.parametrize("part", BAD)
def test_a_model_whose_settings_cannot_be_used_is_refused_by_its_name(tmp_path, part):
    settings = DetectorSettings(ARCHITECTURE, **{part: BAD[part]})
    with rejects(ConfigError, setting=part, path="model.onnx"):
        ModelInfo.from_metadata(ModelInfo(settings, "onnx").to_metadata(), "model.onnx")
    save_detector(tmp_path / "a.safetensors", TextDetector(**ARCHITECTURE), settings)
    with rejects(ConfigError, setting=part, path=tmp_path / "a.safetensors"):
        open_model(tmp_path / "a.safetensors")


def test_settings_that_are_nested_without_end_are_refused():
    metadata = ModelInfo(DetectorSettings(ARCHITECTURE), "onnx").to_metadata()
    for key in metadata:
        with rejects(ConfigError, path="model.onnx"):
            ModelInfo.from_metadata(metadata | {key: "[" * 100_000}, "model.onnx")
