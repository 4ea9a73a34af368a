"""A sweep: what it is given is checked before the model runs, and what it writes into the detector file."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rejection import rejects
from rich.console import Console

from ocr.errors import ConfigError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.sweep import sweep
from ocr.jobs.swept_settings import boxes_of_file, write_boxes
from ocr.models.load import load_detector

SCORES = {"hmean": 0.5, "hmean_70": 0.4}


def settings(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("sweep", ["output_dir=out", *overrides])


@pytest.mark.parametrize(
    ("given", "value"),
    [("grid.thresh=0.3", 0.3), ("grid.thresh=null", None), ("grid=null", None), ("grid.thresh=[]", [])],
)
def test_a_grid_without_a_list_of_values_is_refused(given, value):
    with rejects(ConfigError, setting="grid.thresh", value=value):
        sweep(settings(given), Console(quiet=True))


@pytest.mark.parametrize(("typed", "value"), [("abc", "abc"), ("null", None), ("true", True)])
def test_a_value_that_is_no_number_is_refused(typed, value):
    with rejects(ConfigError, setting="BoxesFromMap.thresh", value=value):
        sweep(settings(f"grid.thresh=[0.3,{typed}]"), Console(quiet=True))


def test_pages_without_annotation_are_refused(noise_detector, tmp_path):
    (tmp_path / "images" / "val").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "images" / "val" / "a.png"), np.full((40, 40, 3), 255, np.uint8))
    where = (f"dataset_base_path={tmp_path}", f"checkpoint_path={noise_detector}", "data.cache=off")
    with rejects(ConfigError, setting="datasets.val_dataset.annotation_path"):
        sweep(settings(*where, "datasets.val_dataset.annotation_path=null"), Console(quiet=True))


def test_the_boxes_that_a_file_has_are_not_those_of_the_command_line(noise_detector):
    found = boxes_of_file(settings(f"checkpoint_path={noise_detector}", "boxes.thresh=0.1"))
    assert (found.thresh, found.unclip_ratio) == (0.5, 1.5)


def older(detector: Path, path: Path) -> Path:
    """A checkpoint from before they carried their settings."""
    model, carried = load_detector(detector)
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": weights, "architecture": carried.architecture}, path)
    return path


def test_an_older_checkpoint_gets_its_settings_whatever_the_boxes_score(noise_detector, tmp_path):
    file = older(noise_detector, tmp_path / "older.ckpt")
    with rejects(ConfigError, setting="checkpoint_path", path=file):
        load_detector(file)
    config = settings(f"checkpoint_path={file}")
    assert boxes_of_file(config) is None
    assert "written into" in write_boxes(config, BoxesFromMap(thresh=0.2), SCORES, None)
    assert load_detector(file)[1].boxes["thresh"] == 0.2
