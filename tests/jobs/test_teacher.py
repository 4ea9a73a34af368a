"""`teacher=FILE`: it brings its targets, and what does not fit is refused with the cure."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rejection import rejects
from rich.console import Console

from ocr.errors import ConfigError
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.stored_settings import CommandLine
from ocr.jobs.teacher import build_distillation, with_teacher_settings
from ocr.models import TextDetector
from ocr.models.load import save_detector
from ocr.models.settings import DetectorSettings


def composed(*overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", list(overrides))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("teacher") / "teacher.safetensors"
    teacher = TextDetector("mobilenetv3_small_050", channels=32)
    targets = {"shrink_ratio": 0.6, "thresh_min": 0.3, "thresh_max": 0.7, "min_text_size": 5.0}
    save_detector(path, teacher, DetectorSettings(teacher.architecture, {"size": 960}, targets=targets))
    return path


@pytest.fixture
def settle(file):
    def run(*overrides: str) -> tuple[DictConfig, str]:
        shown = Console(record=True, width=300)
        given = [f"teacher={file}", *overrides]
        command = CommandLine(given, composed())
        return with_teacher_settings(composed(*given), command, shown), shown.export_text()

    return run


def test_the_targets_of_the_teacher_replace_the_defaults_and_are_told(settle):
    config, told = settle("model=lite")
    assert config.targets.shrink_ratio == config.boxes.shrink_ratio == 0.6
    assert config.targets.min_text_size == 2.0
    assert "targets.shrink_ratio=0.6 from the teacher" in told
    assert "transforms.size=640; the teacher was trained on pages of 960" in told
    assert build_distillation(config) is not None


def test_auto_is_what_the_teacher_has(settle):
    config, told = settle("experiment=documents")
    assert config.targets.shrink_ratio == 0.6
    assert "transforms.size" not in told


def test_other_targets_on_the_command_line_are_refused_with_the_cure(settle, file):
    config, _ = settle("targets.shrink_ratio=0.5")
    assert config.targets.shrink_ratio == 0.5
    with rejects(ConfigError, setting="targets.shrink_ratio", value=0.5, path=file):
        build_distillation(config)
    with rejects(ConfigError, setting="targets.shrink_ratio", value=0.4, path=file):
        build_distillation(composed(f"teacher={file}"))


def test_what_is_no_teacher_or_needs_one_is_refused(file, tmp_path):
    assert build_distillation(composed()) is None
    with rejects(ConfigError, setting="teacher", path="nowhere.ckpt"):
        build_distillation(composed("teacher=nowhere.ckpt"))
    with rejects(ConfigError, setting="distil.images", value=None, path="x"):
        build_distillation(composed("distil.images=x"))
    given = (f"teacher={file}", "targets.shrink_ratio=0.6")
    with rejects(ConfigError, setting="distil.images", value="shards", path="x"):
        build_distillation(composed(*given, "data=webdataset", "distil.images=x"))
    with rejects(ConfigError, setting="weight", value=-1):
        build_distillation(composed(*given, "distil.loss.weight=-1"))
