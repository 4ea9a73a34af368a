"""A checkpoint needs no settings beside it; what the command line changes wins, and is told."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rejection import rejects
from rich.console import Console

from ocr.advisor.measure import ModelStep
from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.predict import PredictSettings, predict
from ocr.jobs.stored_settings import CommandLine, chosen_file, name_of_detector, read_chosen, with_stored_settings
from ocr.jobs.train import build_module, trained_module
from ocr.models.load import load_detector, save_detector
from ocr.models.settings import CHECKPOINT_KEY

TRAINED = (
    *("model=lite", "model.channels=32", "model.decoder=pan", "transforms.size=96", "transforms.letterbox.fill=9"),
    *(
        "transforms.normalization.mean=[0.5,0.5,0.5]",
        "targets.shrink_ratio=0.6",
        "boxes.thresh=0.25",
        "boxes.min_size=2",
    ),
    "boxes.box_thresh=0.7",
)


def composed(name: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(name, list(overrides))


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    """A checkpoint of a model with other settings than the default ones."""
    module = build_module(composed("train", *TRAINED))
    assert module.settings is not None
    weights = {f"model.{name}": value for name, value in module.model.state_dict().items()}
    path = tmp_path_factory.mktemp("trained") / "best.ckpt"
    entries = {"architecture": module.model.architecture, CHECKPOINT_KEY: module.settings.to_dict()}
    torch.save({"state_dict": weights, **entries}, path)
    return path


@pytest.fixture
def settle(file):
    """The config of a job with the settings of the checkpoint, and what is told besides the line about the file."""

    def run(name: str, *overrides: str, path: Path = file) -> tuple[DictConfig, list[str]]:
        typed = [f"checkpoint_path={path}", *overrides]
        shown = Console(record=True, width=500)
        command = CommandLine(typed, composed(name))
        config = with_stored_settings(composed(name, *typed), command, shown, training=name == "train")
        first, *others = shown.export_text().splitlines()
        assert path.name in first
        return config, others

    return run


@pytest.mark.parametrize("name", ["test", "inspect"])
def test_a_checkpoint_brings_all_that_prediction_needs(settle, name):
    config, told = settle(name)
    assert told == []
    assert (config.model.encoder, config.model.decoder, config.model.channels) == ("mobilenetv3_small_050", "pan", 32)
    assert (config.transforms.letterbox.size, config.transforms.size, config.transforms.letterbox.fill) == (96, 96, 9)
    assert config.transforms.normalization.mean == [0.5, 0.5, 0.5]
    assert (config.targets.shrink_ratio, config.boxes.thresh, config.boxes.min_size) == (0.6, 0.25, 2)
    module = trained_module(config)
    assert module.settings.to_dict() == load_detector(config.checkpoint_path)[1].to_dict()


def test_a_setting_of_the_command_line_wins_and_is_told(settle):
    config, told = settle("test", "transforms.size=640", "boxes.thresh=0.4", "targets.shrink_ratio=0.6")
    assert (config.transforms.letterbox.size, config.boxes.thresh) == (640, 0.4)
    assert told == [
        "transforms.size=640 from the command line; the checkpoint was trained with 96",
        "boxes.thresh=0.4 from the command line; the checkpoint has 0.25",
    ]


def test_an_experiment_wins_except_for_the_architecture_and_both_are_told(settle):
    config, told = settle("test", "experiment=receipts")
    assert (config.transforms.size, config.boxes.thresh, config.boxes.box_thresh) == (960, 0.25, 0.7)
    assert (config.model.channels, config.transforms.letterbox.fill) == (32, 9)
    assert "model.channels=32 from the checkpoint, in place of 64 from experiment=receipts" in told
    assert "transforms.size=960 from experiment=receipts; the checkpoint was trained with 96" in told
    assert not [line for line in told if "boxes." in line]


def test_auto_is_what_the_checkpoint_has(settle):
    for typed in ("transforms.size=auto", "experiment=documents"):
        config, _ = settle("test", typed)
        assert (config.transforms.size, config.targets.shrink_ratio) == (96, 0.6)


@pytest.mark.parametrize(
    ("typed", "stored"), [("model=lite", {"decoder": "pan", "channels": 32}), ("model.channels=64", {"channels": 32})]
)
def test_another_architecture_on_the_command_line_is_refused(settle, file, typed, stored):
    config, _ = settle("test", typed)
    with rejects(ConfigError, setting="model", value=stored, path=file):
        trained_module(config)


def test_stages_of_ones_own_are_used_and_told(settle):
    stages = "[{_target_: ocr.pipeline.prefix.Letterbox, size: 64, shape: page}, ${transforms.normalization}]"
    _, told = settle("test", f"transforms.val_transform.transforms={stages}")
    assert told == [
        "transforms.val_transform has size=64; the checkpoint was trained with 96",
        "transforms.val_transform has fill=0; the checkpoint was trained with 9",
    ]
    _, told = settle("test", "transforms.val_transform.transforms=[]")
    assert [line.split(";")[0] for line in told] == ["transforms.val_transform has other stages"]


def test_training_takes_the_architecture_and_the_normalisation_only(settle):
    config, told = settle("train")
    assert told == []
    assert (config.model.decoder, config.model.channels, config.transforms.normalization.mean[0]) == ("pan", 32, 0.5)
    default = composed("train")
    assert (config.transforms.size, config.boxes, config.targets) == (640, default.boxes, default.targets)


def test_other_commands_take_the_architecture_from_the_checkpoint_as_training_does(file, capsys):
    config = compose_training([f"checkpoint_path={file}"])
    assert (config.model.encoder, config.model.decoder, config.model.channels) == ("mobilenetv3_small_050", "pan", 32)
    assert (config.transforms.normalization.mean[0], config.transforms.size) == (0.5, 640)
    measured = ModelStep(config, torch.device("cpu"), training=False)
    stored, _ = load_detector(file)
    for one, other in zip(measured.module.model.parameters(), stored.parameters(), strict=True):
        assert torch.equal(one, other)
    assert capsys.readouterr().out == ""


def test_weights_of_the_encoder_are_not_read_if_a_checkpoint_replaces_them(settle):
    config, _ = settle("test", "model.weights=nowhere.pth", "model.pretrained=true")
    assert (config.model.weights, config.model.pretrained) == (None, False)


def test_an_older_checkpoint_is_used_with_the_settings_of_the_command(settle, file, tmp_path):
    checkpoint = torch.load(file, weights_only=True)
    del checkpoint[CHECKPOINT_KEY]
    torch.save(checkpoint, tmp_path / "older.ckpt")
    config, told = settle("test", "boxes.thresh=0.4", path=tmp_path / "older.ckpt")
    assert told == []
    assert (config.transforms.size, config.boxes.thresh, config.model.decoder) == (640, 0.4, "pan")
    assert config.transforms.letterbox.shape == "square"
    del checkpoint["architecture"]
    torch.save(checkpoint, tmp_path / "oldest.ckpt")
    config, _ = settle("test", "model=lite", "model.channels=32", "model.decoder=pan", path=tmp_path / "oldest.ckpt")
    trained_module(config)


def test_a_command_needs_no_more_than_the_file_and_the_images(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    cv2.imwrite("images/page.png", np.full((50, 40, 3), 255, np.uint8))
    detector, settings = load_detector(file)
    save_detector("detector.safetensors", detector, settings)
    for number, path in enumerate((file, "detector.safetensors")):
        predict(PredictSettings(str(path), ["images"], Path(str(number)), draw=False), Console(quiet=True))
        assert set(json.loads(Path(f"{number}/predictions.json").read_text())["images"]) == {"page.png"}


def test_a_resumed_run_has_its_own_architecture_whatever_weights_it_started_from(file):
    typed = [f"resume={file}", "weights=nowhere.safetensors"]
    command = CommandLine(typed, composed("train"))
    config = with_stored_settings(composed("train", *typed), command, Console(quiet=True), training=True)
    assert (config.model.decoder, config.model.channels) == ("pan", 32)
    assert chosen_file(config) == (file, "resume")
    assert chosen_file(composed("train", "checkpoint_path=a.ckpt", "weights=b.ckpt"))[1] == "checkpoint_path"


@pytest.mark.parametrize("setting", ["resume", "checkpoint_path", "weights"])
def test_a_file_may_be_named_like_a_number(setting):
    assert chosen_file(composed("train", f"{setting}=2024")) == (Path("2024"), setting)
    with rejects(ConfigError, setting=setting, path="2024"):
        read_chosen(composed("train", f"{setting}=2024"))


def test_a_detector_is_named_by_its_file_or_as_that_of_the_package():
    assert name_of_detector(composed("test", "weights=glyphfeed")) == "weights=glyphfeed"
    assert name_of_detector(composed("test", "weights=glyphfeed", "checkpoint_path=a.ckpt")) == "a.ckpt"
