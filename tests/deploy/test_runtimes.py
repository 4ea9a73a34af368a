"""Model files and what runs them: what a file needs, and settings in it that cannot be used."""

import sys

import numpy as np
import pytest
import torch
from rejection import rejects

from ocr.deploy.graph import exportable
from ocr.deploy.model_file import ModelInfo
from ocr.deploy.runtimes import open_model
from ocr.errors import ConfigError, MissingExtraError
from ocr.models.detector import TextDetector
from ocr.models.load import save_detector
from ocr.models.settings import DetectorSettings
from ocr.pipeline.device import Normalize

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


@pytest.mark.parametrize(("name", "library"), [("model.onnx", "onnxruntime"), ("model.xml", "openvino")])
def test_a_missing_library_is_named_with_the_file_that_needs_it(tmp_path, monkeypatch, name, library):
    (tmp_path / name).write_bytes(b"a model")
    monkeypatch.setitem(sys.modules, library, None)
    with rejects(MissingExtraError, setting="export", value=library) as caught:
        open_model(tmp_path / name)
    assert name in str(caught.value)


@pytest.mark.parametrize("encoder", ["tf_efficientnet_lite0", "test_resnet"])
@pytest.mark.parametrize("size", [(64, 96), (128, 32)])
def test_an_exportable_graph_gives_the_maps_of_the_detector_at_every_multiple_of_32(encoder, size):
    torch.manual_seed(0)
    detector = TextDetector(encoder, channels=16).eval()
    pages = torch.randint(0, 256, (2, *size, 3), dtype=torch.uint8)
    with torch.inference_mode():
        expected = detector(Normalize().on_device(pages.permute(0, 3, 1, 2))).prob_map[:, 0]
        found = exportable(detector, Normalize())(pages)
    assert np.allclose(found, expected, atol=1e-6)
    assert float(expected.std()) > 0


def test_half_precision_is_between_a_normalisation_and_a_sigmoid_in_float32_and_leaves_the_detector_alone():
    detector = TextDetector("test_resnet", channels=16).eval()
    graph = exportable(detector, Normalize(), torch.bfloat16)
    maps = graph(torch.zeros(1, 32, 32, 3, dtype=torch.uint8))
    assert maps.dtype == graph.offset.dtype == torch.float32
    assert {weight.dtype for weight in graph.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in detector.parameters()} == {torch.float32}
