"""An exported model finds text where torch is not installed."""

import json
import subprocess
import sys

import numpy as np
from PIL import Image

from ocr import Detector

# None makes an import fail as if the library were not there.
ABSENT = ("torch", "torchvision", "timm", "lightning", "torchmetrics", "safetensors", "tensorboard")
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))\n"


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BLOCK + code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_an_exported_model_finds_the_same_boxes_without_torch(onnx_file, checkpoint, page, tmp_path):
    Image.fromarray(page).save(tmp_path / "page.png")
    done = run(
        "import json; from ocr import Detector; print(json.dumps(Detector.load(sys.argv[1])(sys.argv[2]).to_dict()))",
        *(onnx_file, tmp_path / "page.png"),
    )
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(done.stdout), Detector.load(checkpoint)(tmp_path / "page.png").to_dict()
    assert len(found["words"]) == len(expected["words"]) > 0
    for one, other in zip(found["words"].values(), expected["words"].values(), strict=True):
        assert np.allclose(one["points"], other["points"], atol=0.5)


def test_a_checkpoint_says_that_it_needs_torch_and_how_to_do_without(checkpoint):
    done = run("from ocr import Detector; Detector.load(sys.argv[1])", checkpoint)
    assert done.returncode == 1
    assert f"ConfigError: {checkpoint} runs with torch, which is not installed." in done.stderr
    assert "--to onnx" in done.stderr
