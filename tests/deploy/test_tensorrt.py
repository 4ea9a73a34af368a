"""TensorRT as far as a machine without a GPU can tell."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from rejection import rejects

from ocr.deploy import formats
from ocr.deploy.graph import exportable
from ocr.deploy.model_file import ModelInfo
from ocr.deploy.runtimes import open_model, tensorrt_runtime
from ocr.errors import ConfigError, MissingExtraError
from ocr.models.load import load_detector
from ocr.models.settings import DetectorSettings
from ocr.pipeline.device import Normalize

SETTINGS = DetectorSettings({"encoder": "resnet18"}, {"shape": "square"})
INFO = ModelInfo(SETTINGS, "tensorrt", "fp16", {"pages": 3}, {"tensorrt": "10"})


def test_an_engine_file_gives_its_metadata_and_its_engine_back():
    assert tensorrt_runtime.unpack(tensorrt_runtime.pack(INFO, b"engine"), "x") == (INFO, b"engine")


@pytest.mark.parametrize("content", [b"", b"abc", b"\x02\0\0\0[]engine", b"\xff\xff\xff\xffgarbage"])
def test_a_file_that_is_no_engine_is_refused_by_name(content):
    with rejects(ConfigError, path="model.engine"):
        tensorrt_runtime.unpack(content, "model.engine")


def test_an_engine_takes_pages_from_64_pixels_to_twice_the_size_of_training():
    sizes = formats.page_sizes(700)
    assert sizes == [(1, 64, 64, 3), (1, 704, 704, 3), (8, 1408, 1408, 3)]
    assert set(formats.FLAGS) == set(formats.PRECISIONS["tensorrt"])


def test_a_missing_library_names_its_extra_and_a_missing_gpu_the_formats_that_do_without(tmp_path, monkeypatch):
    path = tmp_path / "model.engine"
    path.write_bytes(tensorrt_runtime.pack(INFO, b"engine"))
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with rejects(MissingExtraError, setting="tensorrt", value="tensorrt"):
        open_model(path)
    monkeypatch.setitem(sys.modules, "tensorrt", ModuleType("tensorrt"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with rejects(ConfigError, path=path):
        open_model(path)
    with rejects(ConfigError, setting="--to", value="tensorrt"):
        formats.build_engine(b"", "fp32", 640)


@pytest.mark.gpu
def test_an_engine_gives_the_maps_of_the_checkpoint(checkpoint, tmp_path):
    pytest.importorskip("tensorrt")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    detector, settings = load_detector(checkpoint)
    model = formats.onnx_model(exportable(detector, Normalize()))
    formats.tensorrt_saver(model, "fp32", 96)(tmp_path, ModelInfo(settings, "tensorrt"))
    pages = np.random.default_rng(0).integers(0, 256, (2, 64, 96, 3), dtype=np.uint8)
    found = open_model(tmp_path).runtime(pages)
    assert np.allclose(found, open_model(checkpoint, "cpu").runtime(pages), atol=1e-2)
