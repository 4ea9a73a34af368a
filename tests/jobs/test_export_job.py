"""glyphfeed export: the settings of the command reach the export."""

import json
import sys

import pytest
from refusal import ends_well, refuses

from ocr.cli import main
from ocr.errors import OutputError
from ocr.models.detector import TextDetector
from ocr.models.load import save_detector
from ocr.models.settings import DetectorSettings


@pytest.fixture
def detector_file(tmp_path):
    architecture = {"encoder": "test_resnet", "channels": 16}
    path = tmp_path / "tiny.safetensors"
    save_detector(path, TextDetector(**architecture), DetectorSettings(architecture, letterbox={"size": 64}))
    return path


def run(monkeypatch, *words) -> None:
    monkeypatch.setattr(sys, "argv", ["glyphfeed", "export", *map(str, words)])
    ends_well(main)


def test_a_dataset_proves_an_export_that_needs_no_other_setting(
    synthetic, detector_file, tmp_path, monkeypatch, capsys
):
    from ocr.deploy.runtimes import open_model

    out = tmp_path / "exported"
    words = [detector_file, "--data", synthetic, "--out", out, "--limit", 2]
    run(monkeypatch, *words, "--to", "torchscript", "--force", "--threads", 1)
    assert "torchscript fp32" in capsys.readouterr().out
    proof = open_model(out).info.check
    assert (proof["pages"], proof["threads"]) == (2, 1)
    assert json.dumps(proof["hmean"])


def test_a_folder_that_cannot_be_made_is_named(synthetic, detector_file, monkeypatch):
    words = [detector_file, "--data", synthetic, "--limit", 1, "--to", "torchscript"]
    with refuses(OutputError, setting="--out", path=detector_file / "exported"):
        run(monkeypatch, *words, "--out", f"{detector_file}/exported")


@pytest.mark.parametrize(
    ("words", "setting", "value", "path"),
    [
        ([], "--data", None, None),
        (["--pages", "nowhere"], "image_path", None, "nowhere"),
        (["--labels", "labels.json"], "--pages", None, "labels.json"),
        (["--limit", "0"], "--limit", 0, None),
        (["--to", "onx"], "--to", "onx", None),
        (["--out", "2024"], "--data", None, None),
    ],
)
def test_a_setting_that_cannot_work_is_named_before_the_model_is_read(words, setting, value, path, monkeypatch):
    with refuses(setting=setting, value=value, path=path):
        run(monkeypatch, "nowhere.ckpt", *words)
