"""One tiny detector per session, untrained: its maps are noise with an edge to follow."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ocr.deploy import formats
from ocr.deploy.graph import exportable
from ocr.deploy.model_file import ModelInfo
from ocr.models.detector import TextDetector
from ocr.models.load import load_detector, save_detector
from ocr.models.settings import DetectorSettings
from ocr.pipeline.normalize import Normalize

# Tests that ask for openvino themselves send no usage statistics either.
sys.modules.setdefault("openvino_telemetry", None)
SIZE = 96
ARCHITECTURE = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}
BOXES = {"thresh": 0.5, "box_thresh": 0.5, "min_size": 1, "unclip_ratio": 1.5, "use_polygon": False}


@pytest.fixture(autouse=True)
def single_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session", autouse=True)
def absl_off_the_captured_stderr() -> None:
    """Exporters import absl, whose handler keeps the stderr of that moment: Hydra's next logging config closes it."""
    logging = pytest.importorskip("absl.logging")
    logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector file whose maps cross the threshold on every page."""
    torch.manual_seed(1)
    detector = TextDetector(**ARCHITECTURE).eval()
    with torch.no_grad():
        for name, value in detector.named_buffers():
            if name.endswith("running_var"):
                value.fill_(0.6)  # Untrained norms would let the page's signal fade to nothing.
        detector.head.prob[1].bias.zero_()
    path = tmp_path_factory.mktemp("detector") / "tiny.safetensors"
    settings = DetectorSettings(ARCHITECTURE, letterbox={"size": SIZE}, boxes=BOXES)
    save_detector(path, detector, settings)
    return path


@pytest.fixture(scope="session")
def onnx_file(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The detector as `ocr export` writes it for ONNX Runtime, but without a check."""
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    detector, settings = load_detector(checkpoint)
    folder = tmp_path_factory.mktemp("exported")
    model = formats.onnx_model(exportable(detector, Normalize()))
    formats.onnx_saver(model)(folder, ModelInfo(settings, "onnx"))
    return folder / "model.onnx"


@pytest.fixture
def page() -> np.ndarray:
    """A page with dark bars on light paper, (H, W, 3)."""
    pixels = np.random.default_rng(0).integers(190, 255, (140, 100, 3), dtype=np.uint8)
    for top in range(12, 130, 24):
        pixels[top : top + 9, 10:85] //= 4
    return pixels


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pages with bars of different lengths, whose outlines are the annotation."""
    base = tmp_path_factory.mktemp("pages")
    (base / "images").mkdir()
    images = {}
    for number in range(3):
        pixels = np.random.default_rng(number).integers(190, 255, (140, 100, 3), dtype=np.uint8)
        words = {}
        for word, top in enumerate(range(12, 130, 24 + number)):
            right = 85 - 10 * number
            pixels[top : top + 9, 10:right] //= 4
            words[f"{word:04d}"] = {"points": [[10, top], [right, top], [right, top + 9], [10, top + 9]]}
        Image.fromarray(pixels).save(base / "images" / f"{number}.png")
        images[f"{number}.png"] = {"words": words}
    (base / "labels.json").write_text(json.dumps({"images": images}))
    return base
