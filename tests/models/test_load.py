"""A detector file knows what it is: its settings travel with the weights, and come back as they were."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from rejection import rejects
from safetensors.torch import save_file
from sameness import assert_same

from ocr.errors import ConfigError, DataError, GlyphFeedError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.models import DBLoss, Prediction
from ocr.models.detector import TextDetector
from ocr.models.load import load_detector, read_detector, save_detector, write_settings
from ocr.models.settings import CHECKPOINT_KEY, FORMAT, DetectorSettings, Provenance, installed_versions
from ocr.models.weights import read_weights

ARCHITECTURE = {"encoder": "mobilenetv3_small_050", "channels": 32}


@pytest.fixture(scope="module")
def detector() -> TextDetector:
    torch.manual_seed(1)
    return TextDetector(**ARCHITECTURE).eval()


@pytest.fixture(scope="module")
def settings(detector) -> DetectorSettings:
    return DetectorSettings(
        detector.architecture,
        letterbox={"size": 96, "shape": "page", "fill": 7},
        normalization={"mean": (0.5, 0.5, 0.5), "std": (0.2, 0.2, 0.2)},
        targets={"shrink_ratio": 0.6},
        boxes={"thresh": 0.25, "use_polygon": False},
        provenance=Provenance(installed_versions(), {"pages": 8}, {"hmean": 0.9}, steps=10),
    )


def checkpoint(path, model, **entries):
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": weights | {"loss.unrelated": torch.zeros(1)}, **entries}, path)
    return path


def test_settings_are_the_same_after_a_way_through_json(settings):
    again = DetectorSettings.from_json(settings.to_json())
    assert again.to_dict() == settings.to_dict() == json.loads(settings.to_json())
    assert (again.page_size, again.page_shape) == (96, "page")
    assert again.provenance == settings.provenance
    assert {"glyphfeed", "torch", "timm"} == set(again.provenance.versions)


def test_an_unknown_key_is_ignored_and_a_newer_format_is_refused(settings):
    newer = settings.to_dict() | {"colour": "red"}
    newer["boxes"]["novel"] = 1
    newer["provenance"]["novel"] = 1
    assert DetectorSettings.from_dict(newer).build("boxes", BoxesFromMap) == BoxesFromMap(0.25, use_polygon=False)
    with rejects(ConfigError, setting="format", value=FORMAT + 1, path="x.ckpt"):
        DetectorSettings.from_dict(newer | {"format": FORMAT + 1}, "x.ckpt", "x.ckpt")


@pytest.mark.parametrize(
    ("values", "setting", "value"),
    [
        (None, None, None),
        ([], None, None),
        ({}, None, None),
        ({"format": "1"}, None, None),
        ({"format": 1, "boxes": 5}, "boxes", 5),
        ({"format": 1, "boxes": {1: 2}}, "boxes", {1: 2}),
    ],
)
def test_settings_that_are_none_are_refused_by_the_name_of_their_file(values, setting, value):
    with rejects(ConfigError, setting=setting, value=value, path="x.safetensors"):
        DetectorSettings.from_dict(values, "x.safetensors", "x.safetensors")


def test_a_safetensors_file_gives_back_the_detector_in_half_precision(tmp_path, detector, settings):
    path = tmp_path / "detector.safetensors"
    save_detector(path, detector, settings)
    loaded, found = load_detector(path)
    assert found.to_dict() == settings.to_dict()
    assert not loaded.training
    for name, value in detector.state_dict().items():
        exact = value.ndim < 2
        expected = value if exact else value.half().float()
        assert torch.equal(loaded.state_dict()[name], expected), name
    assert path.stat().st_size < 0.6 * sum(value.nbytes for value in detector.state_dict().values())
    pages = torch.rand(1, 3, 64, 96)
    with torch.inference_mode():
        torch.testing.assert_close(loaded(pages).prob_map, detector(pages).prob_map, atol=0.01, rtol=0)


def test_a_checkpoint_gives_back_the_detector_exactly(tmp_path, detector, settings):
    entries = {CHECKPOINT_KEY: settings.to_dict(), "architecture": detector.architecture}
    loaded, found = load_detector(checkpoint(tmp_path / "x.ckpt", detector, **entries))
    assert found.to_dict() == settings.to_dict()
    assert all(torch.equal(loaded.state_dict()[name], value) for name, value in detector.state_dict().items())


def test_a_file_cannot_ask_for_a_download(tmp_path, detector, settings):
    hostile = replace(settings, architecture=detector.architecture | {"pretrained": True, "weights": "/nowhere"})
    save_detector(tmp_path / "x.safetensors", detector, hostile)
    load_detector(tmp_path / "x.safetensors")


def test_an_older_checkpoint_is_read_without_settings(tmp_path, detector):
    stored = read_detector(checkpoint(tmp_path / "x.ckpt", detector))
    assert (stored.settings, stored.architecture) == (None, None)
    stored.load_into(TextDetector(**ARCHITECTURE))
    with rejects(ConfigError, setting="checkpoint_path", path=tmp_path / "x.ckpt"):
        stored.build()


def test_files_that_are_no_detector_are_refused_by_name(tmp_path, detector, settings):
    (tmp_path / "text.ckpt").write_text("no checkpoint")
    torch.save([1, 2], tmp_path / "list.ckpt")
    (tmp_path / "text.safetensors").write_text("no tensors")
    save_file({"conv.weight": torch.zeros(1)}, tmp_path / "encoder.safetensors")
    for name in ("text.ckpt", "list.ckpt", "missing.ckpt", "text.safetensors", "encoder.safetensors"):
        with rejects(ConfigError, setting="weights", path=tmp_path / name):
            read_detector(tmp_path / name, "weights")
    with rejects(ConfigError, path=tmp_path / "x.pt"):
        save_detector(tmp_path / "x.pt", detector, settings)


def test_settings_need_neither_torch_nor_lightning_nor_hydra():
    code = "import sys, ocr.models.settings; print({'torch', 'lightning', 'hydra'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.slow
def test_loading_a_detector_needs_neither_lightning_nor_hydra():
    code = "import sys, ocr.models.load; print({'lightning', 'hydra'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_writing_settings_writes_another_file_and_changes_nothing_else(tmp_path, detector, settings):
    path, target = tmp_path / "x.ckpt", tmp_path / "x.tuned.ckpt"
    checkpoint(path, detector, epoch=3, optimizer_states=[{"state": {0: {"step": torch.ones(2)}}, "lr": 0.1}])
    before = path.read_bytes()
    write_settings(path, settings, target)
    assert path.read_bytes() == before
    old, new = (torch.load(file, weights_only=True) for file in (path, target))
    assert new.pop(CHECKPOINT_KEY) == settings.to_dict()
    assert_same(new, old)
    save_detector(tmp_path / "x.safetensors", detector, settings)
    weights = read_detector(tmp_path / "x.safetensors").weights
    write_settings(tmp_path / "x.safetensors", replace(settings, boxes={"thresh": 0.1}), tmp_path / "y.safetensors")
    stored = read_detector(tmp_path / "y.safetensors")
    assert stored.settings.boxes["thresh"] == 0.1
    assert_same(stored.weights, weights)
    assert {file.name for file in tmp_path.iterdir()} == {"x.ckpt", "x.tuned.ckpt", "x.safetensors", "y.safetensors"}


BAD_CHECKPOINTS = {
    "weights that are numbers": {"state_dict": {"model.a": 3}},
    "an architecture that is a list": {"state_dict": {}, "architecture": ["resnet18"]},
    "a width of text": {"state_dict": {}, "detector": {"format": 1, "architecture": ARCHITECTURE | {"channels": "x"}}},
    "an encoder that does not exist": {"state_dict": {}, "detector": {"format": 1, "architecture": {"encoder": "x"}}},
}


@pytest.mark.parametrize("content", BAD_CHECKPOINTS.values(), ids=BAD_CHECKPOINTS)
def test_a_checkpoint_with_a_part_that_cannot_be_is_refused_by_its_name(tmp_path, content):
    torch.save(content, tmp_path / "bad.ckpt")
    with rejects(ConfigError, path=tmp_path / "bad.ckpt"):
        load_detector(tmp_path / "bad.ckpt")


def assert_named(read, path) -> None:
    """Whatever is wrong with a file, the error names it."""
    try:
        read(path)
    except (ConfigError, DataError) as error:
        assert error.path == str(path)  # noqa: PT017


def test_a_checkpoint_that_is_cut_or_damaged_anywhere_is_refused_by_its_name(tmp_path):
    torch.save({"state_dict": {"model.a": torch.ones(3)}}, tmp_path / "whole.ckpt")
    whole = (tmp_path / "whole.ckpt").read_bytes()
    for at in range(0, len(whole), 16):
        damaged = bytearray(whole)
        damaged[at : at + 4] = bytes(255 - byte for byte in damaged[at : at + 4])
        for data in (whole[:at], bytes(damaged)):
            (tmp_path / "bad.ckpt").write_bytes(data)
            for read in (read_detector, read_weights):
                assert_named(read, tmp_path / "bad.ckpt")


def test_wording_of_errors_about_models(tmp_path, detector, settings, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    shown = []

    def show(action):
        with pytest.raises(GlyphFeedError) as caught:
            action()
        shown.append(str(caught.value))

    other = TextDetector("test_resnet", channels=16)
    show(lambda: TextDetector("resnet_18"))
    show(lambda: TextDetector("mixer_s32_224"))
    show(lambda: TextDetector("test_resnet", "fnp"))
    show(lambda: TextDetector("test_resnet", channels=30))
    show(lambda: TextDetector("test_resnet", "unet", scale_fusion=True))
    show(lambda: TextDetector("test_resnet", weights="nowhere.pth"))
    show(lambda: TextDetector("test_resnet", weights="imagenet"))
    show(lambda: other.load_weights(detector.state_dict(), detector.architecture, "last.ckpt"))
    show(lambda: other.load_weights(detector.state_dict()))
    show(lambda: DBLoss(negative_ratio=-1))
    show(lambda: DBLoss()(Prediction(torch.zeros(1, 1, 8, 8)), {}))
    show(lambda: read_detector("last.ckpt"))
    save_file({"conv.weight": torch.zeros(1)}, "encoder.safetensors")
    show(lambda: read_detector("encoder.safetensors", "weights"))
    show(lambda: read_detector(checkpoint(tmp_path / "old.ckpt", detector)).build())
    show(lambda: DetectorSettings.from_dict(settings.to_dict() | {"format": 99}, "last.ckpt"))
    text = re.sub(r"timm [\d.]+", "timm VERSION", "\n".join(shown))
    snapshot("model_errors", text)
