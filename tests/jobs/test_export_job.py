"""ocr export: the settings of the command reach the export."""

import json
import sys

import pytest
from refusal import refuses

from ocr.errors import OutputError
from ocr.jobs.export import main
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
    monkeypatch.setattr(sys, "argv", ["ocr export", *map(str, words)])
    main()


def test_a_dataset_proves_an_export_that_needs_no_other_setting(
    synthetic, detector_file, tmp_path, monkeypatch, capsys
):
    from ocr.deploy.runtimes import open_model

    out = tmp_path / "exported"
    words = [f"checkpoint_path={detector_file}", f"dataset_base_path={synthetic}", f"out={out}", "pages=2"]
    run(monkeypatch, *words, "format=torchscript", "--force", "threads.model=1")
    assert "torchscript fp32" in capsys.readouterr().out
    proof = open_model(out).info.check
    assert (proof["pages"], proof["threads"]) == (2, 1)
    assert json.dumps(proof["hmean"])


def test_a_folder_that_cannot_be_made_is_named(synthetic, detector_file, monkeypatch):
    words = [f"checkpoint_path={detector_file}", f"dataset_base_path={synthetic}", "pages=1", "format=torchscript"]
    with refuses(OutputError, setting="out", path=detector_file / "exported"):
        run(monkeypatch, *words, f"out={detector_file}/exported")


@pytest.mark.parametrize(
    ("words", "setting", "value", "path"),
    [
        ([], "images", None, None),
        (["images=nowhere"], "image_path", None, "nowhere"),
        (["annotations=labels.json"], "images", None, "labels.json"),
        (["pages=0"], "pages", 0, None),
        (["format=onx"], "format", "onx", None),
        (["images=2024"], "image_path", None, "2024"),
        (["out=2024"], "images", None, None),
        (["out=null"], "out", None, None),
        (["force=no"], "force", "no", None),
    ],
)
def test_a_setting_that_cannot_work_is_named_before_the_model_is_read(words, setting, value, path, monkeypatch):
    with refuses(setting=setting, value=value, path=path):
        run(monkeypatch, "checkpoint_path=nowhere.ckpt", *words)
