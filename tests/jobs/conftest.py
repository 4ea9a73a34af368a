"""One tiny detector for the jobs that look at pages."""

from pathlib import Path

import pytest
import torch

from ocr.models.detector import TextDetector
from ocr.models.load import save_detector
from ocr.models.settings import DetectorSettings

ARCHITECTURE = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}
BOXES = {"thresh": 0.5, "box_thresh": 0.5, "min_size": 1, "unclip_ratio": 1.5, "use_polygon": False}


@pytest.fixture(scope="session")
def noise_detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector that was never trained, but finds boxes in noise."""
    torch.manual_seed(1)
    detector = TextDetector(**ARCHITECTURE).eval()
    with torch.no_grad():
        for name, value in detector.named_buffers():
            if name.endswith("running_var"):
                value.fill_(0.6)
        detector.head.prob[1].bias.zero_()
    path = tmp_path_factory.mktemp("detector") / "tiny.safetensors"
    save_detector(path, detector, DetectorSettings(ARCHITECTURE, letterbox={"size": 96}, boxes=BOXES))
    return path
