"""Configs of the user come before those of the package; what Hydra refuses is explained in one line."""

import logging
from pathlib import Path

import pytest

from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.jobs.config_folders import CONFIGS, choose_config_dir


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
    from ocr.advisor.remedies.tuned import write_tuned

    path = write_tuned(["data.num_workers=5"], ("data", "webdataset"), "ocr advise --apply")
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
    with pytest.raises(ConfigError, match="--config-dir nowhere is not a folder"):
        choose_config_dir(Path("nowhere"))


def test_in_a_checkout_the_link_to_the_configs_of_the_package_is_not_a_second_folder(project, caplog):
    (project / "configs").symlink_to(CONFIGS)
    assert compose_training([]).seed == 0
    assert not caplog.records


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model=litee", "model=litee: did you mean lite? Known: base, dbnetpp, efficientnet_lite, lite, resnet50"),
        ("experiment=nosuch", "experiment=nosuch: Known: demo, documents, finetune, pretrain, receipts"),
        ("trainer.max_epoch=1", "trainer.max_epoch is not a setting: did you mean max_epochs? Known: "),
        ("nosuchkey=1", "nosuchkey is not a setting: Known: annotation_categories, annotation_format, boxes"),
        ("batch_size=3", "did you mean dataloaders.train_dataloader.batch_size or "),
        ("trainer.max_epochs", "trainer.max_epochs is not of the form KEY=VALUE"),
        ("a=[1,", "a=[1, is not of the form KEY=VALUE"),
        ("+trainer.max_epochs=3", "An item is already at 'trainer.max_epochs'"),
    ],
)
def test_what_hydra_refuses_is_one_line_that_names_what_is_near(override, said):
    with pytest.raises(ConfigError) as caught:
        compose_training([override])
    message = str(caught.value)
    assert said in message
    assert "\n" not in message
    assert "search path" not in message
    assert "https://" not in message
