"""Configs of the user come before those of the package; what Hydra refuses is explained in one line."""

import logging
from pathlib import Path

import pytest
from omegaconf import DictConfig
from rejection import rejects
from rich.console import Console

from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.jobs.config_folders import CONFIGS, choose_config_dir
from ocr.jobs.page_files import PageFiles
from ocr.jobs.teacher import build_distillation
from ocr.jobs.train import check_monitored, train, trained_module
from ocr.training.schedule import build_schedule


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    choose_config_dir(None)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_any_folder_has_the_configs_of_the_package(project):
    assert compose_training(["model=lite"]).model.encoder == "mobilenetv3_small_050"


def test_configs_in_the_working_directory_add_to_those_of_the_package(project):
    write(
        project / "configs/experiment/mine.yaml", "# @package _global_\ndefaults:\n- override /model: lite\nseed: 5\n"
    )
    composed = compose_training(["experiment=mine"])
    assert (composed.seed, composed.model.encoder) == (5, "mobilenetv3_small_050")


def test_a_config_of_the_same_name_replaces_that_of_the_package_and_is_reported(project, caplog):
    write(project / "configs/trainer/default.yaml", "max_epochs: 77\n")
    with caplog.at_level(logging.WARNING):
        assert compose_training([]).trainer == {"max_epochs": 77}
    assert "replace those of the package: trainer/default.yaml" in caplog.text


def test_what_advise_writes_into_the_working_directory_is_found(project):
    from ocr.advisor.tuned import write_tuned

    path = write_tuned(["data.num_workers=5"], "data", "webdataset", "glyphfeed advise apply=true")
    assert path.resolve() == project / "configs" / "data" / "tuned.yaml"
    composed = compose_training(["data=tuned"])
    assert composed.dataloaders.train_dataloader.num_workers == 5
    assert composed.datasets.train_dataset._target_ == "ocr.datasets.OCRWebDataset"


def test_config_dir_comes_before_the_working_directory(project):
    write(project / "configs/experiment/mine.yaml", "# @package _global_\nseed: 1\n")
    write(project / "configs/experiment/here.yaml", "# @package _global_\nseed: 2\n")
    choose_config_dir(write(project / "other/experiment/mine.yaml", "# @package _global_\nseed: 3\n").parents[1])
    assert compose_training(["experiment=mine"]).seed == 3
    assert compose_training(["experiment=here"]).seed == 2


def test_a_config_dir_that_is_not_there_is_an_error(project):
    with rejects(ConfigError, setting="--config-dir", path="nowhere"):
        choose_config_dir(Path("nowhere"))


def test_in_a_checkout_the_link_to_the_configs_of_the_package_is_not_a_second_folder(project, caplog):
    (project / "configs").symlink_to(CONFIGS)
    assert compose_training([]).seed == 0
    assert not caplog.records


REFUSED = [
    ("model=litee", "model", "litee"),
    ("experiment=nosuch", "experiment", "nosuch"),
    ("trainer.max_epoch=1", "trainer.max_epoch", None),
    ("nosuchkey=1", "nosuchkey", None),
    ("batch_size=3", "batch_size", None),
    ("trainer.max_epochs", None, "trainer.max_epochs"),
    ("a=[1,", None, "a=[1,"),
    ("+trainer.max_epochs=3", None, None),
]


@pytest.mark.parametrize(("override", "setting", "value"), REFUSED)
def test_what_hydra_refuses_is_one_line(override, setting, value):
    with rejects(ConfigError, setting=setting, value=value) as caught:
        compose_training([override])
    message = str(caught.value)
    assert override.lstrip("+").partition("=")[0] in message
    assert "\n" not in message
    assert "search path" not in message
    assert "https://" not in message


def test_wording_of_errors_of_settings(project, snapshot):
    """The texts that name what is near, and a typical one of each job."""
    small = ["dataset_base_path=nowhere", "threads.model=1"]
    config = compose_training(small)

    def composed(*overrides: str) -> DictConfig:
        return compose_training([*small, *overrides])

    calls = [
        *(lambda override=override: compose_training([override]) for override, *_ in REFUSED),
        lambda: choose_config_dir(Path("nowhere")),
        lambda: compose_training(["transforms.size=auto", *small]),
        lambda: compose_training(["transforms.size=auto", "datasets.train_dataset=null"]),
        lambda: composed("resume=best.safetensors"),
        lambda: composed("use_dali=maybe"),
        lambda: composed("threads.model=all"),
        lambda: train(composed("compile_model=true", "model.checkpoint_gradients=true"), Console(quiet=True)),
        lambda: check_monitored(composed("callbacks.early_stopping.monitor=val/hmeen"), ["val/hmean", "val/recall"]),
        lambda: build_distillation(composed("distil.images=more")),
        lambda: build_schedule(None, "one_cycel", 100),
        lambda: trained_module(config),
        lambda: PageFiles.of(["-", "pages"]),
        lambda: PageFiles.of(["nothing/*.jpg"]),
    ]
    texts = []
    for call in calls:
        with pytest.raises(ConfigError) as caught:
            call()
        texts.append(str(caught.value))
    snapshot("job_errors", "\n".join(texts))
