"""ocr export: the settings of the command reach the export."""

import json
import sys

import pytest

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
    synthetic, detector_file, tmp_path, monkeypatch, capsys, logging_restored
):
    from ocr.deploy.runtimes import open_model

    out = tmp_path / "exported"
    words = [f"checkpoint_path={detector_file}", f"dataset_base_path={synthetic}", f"out={out}", "pages=2"]
    run(monkeypatch, *words, "format=torchscript", "--force", "threads.model=1")
    assert "torchscript fp32" in capsys.readouterr().out
    proof = open_model(out).info.proof
    assert (proof["pages"], proof["threads"]) == (2, 1)
    assert json.dumps(proof["hmean"])


def test_a_folder_that_cannot_be_made_is_named(synthetic, detector_file, monkeypatch, capsys, logging_restored):
    words = [f"checkpoint_path={detector_file}", f"dataset_base_path={synthetic}", "pages=1", "format=torchscript"]
    with pytest.raises(SystemExit):
        run(monkeypatch, *words, f"out={detector_file}/exported")
    assert f"cannot write out={detector_file}/exported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no pages to prove"),
        (["images=nowhere"], "nowhere is not a folder"),
        (["annotations=labels.json"], "images is not set"),
        (["pages=0"], "pages=0 must be an integer >= 1"),
        (["format=onx"], "did you mean onnx"),
        (["images=2024"], "2024 is not a folder"),
        (["out=2024"], "no pages to prove"),
        (["out=null"], "out is not set"),
        (["force=no"], "force='no' must be true or false"),
    ],
)
def test_a_setting_that_cannot_work_is_named_before_the_model_is_read(
    words, message, monkeypatch, logging_restored, capsys
):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "checkpoint_path=nowhere.ckpt", *words)
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
