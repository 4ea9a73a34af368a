"""Settings check themselves: every flag of every job is true or false, and what else is typed is an error."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from rejection import rejects

from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.settings import JOBS, check_settings

LOGGERS = "logger=[csv,tensorboard,wandb,mlflow]"
OFF, ON = ("off", "no", "false", "0", "OFF"), ("on", "yes", "true", "1", "True")


def composed(job: str, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(job, [LOGGERS, *overrides])


@cache
def config_of(job: str) -> DictConfig:
    return composed(job, "output_dir=out")


def flags(node: Any, path: str = "") -> Iterator[str]:
    """Every setting that is true or false in the config files, and those that point to one."""
    for name in node:
        child = node._get_node(name)
        if isinstance(child, DictConfig) and not (child._is_none() or child._is_interpolation()):
            yield from flags(child, f"{path}{name}.")
        elif isinstance(OmegaConf.select(node, str(name)) if child._is_interpolation() else child._value(), bool):
            yield f"{path}{name}"


ALL = [(job, flag) for job in JOBS for flag in flags(config_of(job))]


@pytest.mark.parametrize(("job", "flag"), ALL)
def test_a_flag_is_true_or_false_and_nothing_else(job, flag):
    config = config_of(job).copy()
    for words, wanted in ((OFF, False), (ON, True)):
        for word in words:
            given = OverridesParser.create().parse_override(f"{flag}={word}").value()
            OmegaConf.update(config, flag, given)
            check_settings(config, JOBS[job])
            assert OmegaConf.select(config, flag) is wanted, word
    for wrong in ("maybe", 2, 0.5, [True], ""):
        OmegaConf.update(config, flag, wrong)
        with rejects(ConfigError, setting=flag):
            check_settings(config, JOBS[job])


def test_the_jobs_have_the_flags_that_users_know():
    assert len(ALL) > 200
    assert {("train", "use_dali"), ("train", "compile_model"), ("test", "cleval"), ("test", "tune")} <= set(ALL)
    assert {("advise", "compile"), ("advise", "apply"), ("advise", "verify"), ("inspect", "atlas")} <= set(ALL)
    written = {("convert_to_webdataset", name) for name in ("overwrite", "ready", "verify")}
    assert written | {("preprocess_maps", "compress"), ("train", "data.preload_everything")} <= set(ALL)
    assert ("train", "datasets.val_dataset.prenormalize_images") in ALL


def test_flags_of_the_command_line_reach_every_job():
    for job in ("train", "test", "advise"):
        config = composed(job, "use_dali=off", "compile_model=no", "data.preload_everything=on", "cleval=0")
        check_settings(config, JOBS[job])
        found = (config.use_dali, config.compile_model, config.data.preload_everything, config.cleval)
        assert found == (False, False, True, False)
        assert config.datasets.train_dataset.preload_everything is True


@pytest.mark.parametrize(
    ("override", "setting", "value"),
    [
        ("seed=-1", "seed", -1),
        ("threads.model=0", "threads.model", 0),
        ("threads.opencv=auto", "threads.opencv", "auto"),
        ("dataloaders.train_dataloader.batch_size=0", "dataloaders.train_dataloader.batch_size", 0),
        ("dataloaders.val_dataloader.batch_size=true", "dataloaders.val_dataloader.batch_size", True),
        ("data.engine=proceses", "data.engine", "proceses"),
        ("data.num_workers=1.5", "data.num_workers", 1.5),
        ("trainer.max_epochs=ten", "trainer.max_epochs", "ten"),
        ("schedule.name=one_cycel", "schedule.name", "one_cycel"),
        ("optimizer.lr=0", "optimizer.lr", 0),
        ("on_bad_sample=maybe", "on_bad_sample", "maybe"),
        ("datasets.val_dataset.on_bad_sample=maybe", "datasets.val_dataset.on_bad_sample", "maybe"),
        ("distil.maps=pages", "distil.maps", "pages"),
        ("+trainer.max_steps=no", "trainer.max_steps", "no"),
    ],
)
def test_a_number_or_a_word_that_cannot_work_is_named_when_it_is_composed(override, setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        compose_training([override])


def test_what_can_be_auto_or_null_stays_so():
    words = ("data.batch_pixels=null", "trainer.check_val_every_n_epoch=null", "threads.model=auto")
    config = compose_training([*words, "dataloaders.val_dataloader.prefetch_factor=null", "data.cache=off"])
    assert config.data.batch_pixels is config.trainer.check_val_every_n_epoch is None
    assert (config.threads.model, config.data.cache) == ("auto", "off")


def test_off_without_quotes_is_a_word_where_words_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "configs/experiment/mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\ndata:\n  cache: off\n")
    assert compose_training(["experiment=mine"]).data.cache == "off"


def test_a_setting_that_points_to_another_gets_its_checked_value():
    config = compose_training(["+mine=no", "datasets.val_dataset.preload_images=${mine}", "use_stored_maps=no"])
    assert config.datasets.val_dataset.preload_images is False
    assert config.datasets.val_dataset.use_stored_maps is False
