"""`auto` becomes a number: derived from the training pages by the rule, shown, saved, and overridden by a given one."""

import io
import sys

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rejection import rejects
from rich.console import Console

from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.page_statistics import PageStatistics
from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.recipe import RULES, Recipe, settle
from ocr.jobs.run import run_job
from ocr.models.load import load_detector
from ocr.models.packaged import packaged_detector
from ocr.pipeline.prefix import Letterbox
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings

RECEIPTS = PageStatistics(140, 140, 49, 7.5 / 640, 0.06, 0.2)
FORMS = PageStatistics(119, 119, 141, 6.4 / 640, 0.65, 0.0)


def config(*overrides: str):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", list(overrides))


def derived(key: str, pages: PageStatistics, *overrides: str, recipe: Recipe | None = None):
    return RULES[key](recipe or Recipe(), pages, config(*overrides))[0]


@pytest.mark.parametrize(
    ("pages", "size", "shrink_ratio", "saturation"), [(RECEIPTS, 960, 0.6, 0.3), (FORMS, 1120, 0.4, 0)]
)
def test_the_rule_gives_receipts_and_forms_what_was_measured_for_them(pages, size, shrink_ratio, saturation):
    assert derived("transforms.size", pages) == size
    assert derived("targets.shrink_ratio", pages) == shrink_ratio
    assert derived("transforms.saturation", pages) == saturation


@pytest.mark.parametrize(("text_height", "size"), [(0.5, 640), (0.0001, 1280), (11 / 800, 800), (11 / 801, 832)])
def test_a_page_is_as_large_as_its_low_text_needs_within_bounds_and_a_multiple_of_32(text_height, size):
    assert derived("transforms.size", PageStatistics(9, 9, 9, text_height, 0, 0)) == size


@pytest.mark.parametrize(("pages", "epochs", "every"), [(112, 93, 6), (8, 1300, 86), (100_000, 10, 1)])
def test_few_pages_are_seen_often_and_many_pages_ten_times(pages, epochs, every):
    many = PageStatistics(pages, 200, 50, 0.01, 0, 0)
    small = "dataloaders.train_dataloader.batch_size=8"
    assert derived("trainer.max_epochs", many, small) == epochs
    assert derived("trainer.check_val_every_n_epoch", many, f"trainer.max_epochs={epochs}") == every


def test_every_auto_of_the_recipe_becomes_a_number_that_is_shown_with_its_reason(synthetic):
    shown = io.StringIO()
    settled = settle(config("experiment=documents", f"dataset_base_path={synthetic}"), Console(file=shown, width=120))

    for key in RULES:
        value = OmegaConf.select(settled, key)
        assert isinstance(value, int | float), key
        assert f"{key} " in shown.getvalue()
    assert "auto" not in OmegaConf.to_yaml(settled.targets)
    assert settled.collate_fn.shrink_ratio == settled.targets.shrink_ratio
    assert "derived from 8 of 8 training pages" in shown.getvalue()
    assert "lowest tenth of text: " in shown.getvalue()


def test_only_the_first_rank_shows_them(synthetic, monkeypatch):
    shown = io.StringIO()
    monkeypatch.setenv("LOCAL_RANK", "1")
    settle(config("transforms.size=auto", f"dataset_base_path={synthetic}"), Console(file=shown))
    assert not shown.getvalue()


def test_a_given_number_wins_and_what_is_derived_follows_it(synthetic):
    given = ("transforms.size=800", "targets.shrink_ratio=0.5")
    settled = settle(config("experiment=documents", f"dataset_base_path={synthetic}", *given))
    assert (settled.transforms.size, settled.transforms.window, settled.targets.shrink_ratio) == (800, 384, 0.5)


def test_the_numbers_of_the_rule_can_be_given(synthetic):
    steps = ("recipe.steps=7", "recipe.text_height=1000", "+recipe.largest=704", "+recipe.min_epochs=1")
    settled = settle(config("experiment=documents", f"dataset_base_path={synthetic}", *steps))
    assert (settled.trainer.max_epochs, settled.transforms.size) == (7, 704)
    with rejects(ConfigError, setting="Recipe.text_height", value=0):
        settle(config("experiment=documents", "recipe.text_height=0", f"dataset_base_path={synthetic}"))
    with rejects(ConfigError, setting="Recipe.smallest", value=2000):
        Recipe(smallest=2000)
    assert Recipe(smallest=1280).smallest == Recipe().largest


def test_fine_tuning_is_the_same_recipe_from_the_weights_of_the_package_and_shorter(synthetic):
    data = f"dataset_base_path={synthetic}"
    whole, tuned = settle(config("experiment=documents", data)), settle(config("experiment=finetune", data))
    assert (whole.weights, tuned.weights) == (None, "glyphfeed")
    assert tuned.transforms.size == whole.transforms.size
    assert tuned.targets.shrink_ratio == load_detector(packaged_detector())[1].targets["shrink_ratio"]
    assert tuned.trainer.max_epochs < whole.trainer.max_epochs
    assert tuned.optimizer.lr < whole.optimizer.lr


def test_other_commands_get_the_same_numbers_and_any_config_may_say_auto(synthetic):
    overrides = ["transforms.size=auto", f"dataset_base_path={synthetic}"]
    assert compose_training(overrides).transforms.size == settle(config(*overrides)).transforms.size != "auto"


def test_a_config_without_auto_reads_no_page():
    plain = config("dataset_base_path=nowhere")
    assert settle(plain) is plain


def test_prediction_derives_only_what_it_needs():
    plain = config(
        "experiment=documents", "transforms.size=640", "targets.shrink_ratio=0.4", "dataset_base_path=nowhere"
    )
    assert settle(plain, training=False) is plain


def test_without_pages_the_error_names_the_split():
    with rejects(ConfigError, setting="transforms.size", value="auto", path="nowhere/images/train"):
        settle(config("transforms.size=auto", "dataset_base_path=nowhere"))
    with rejects(ConfigError, setting="transforms.size", value="auto", path=None):
        settle(config("transforms.size=auto", "datasets.train_dataset=null"))


def test_the_run_saves_the_numbers_and_not_auto(synthetic, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = ["hydra.run.dir=run", "transforms.size=auto", f"dataset_base_path={synthetic}"]
    monkeypatch.setattr(sys, "argv", ["job", *words])
    seen = []

    run_job("train", lambda config, console: seen.append(config.transforms.size))

    saved = OmegaConf.load(tmp_path / "run" / ".hydra" / "config.yaml")
    assert [saved.transforms.size] == seen
    assert isinstance(seen[0], int)
    assert "transforms.size" in capfd.readouterr().out


def test_raw_shards_give_the_numbers_of_their_folder_and_ready_ones_are_refused(synthetic, tmp_path):
    dataset = OCRDataset(synthetic / "images/train", synthetic / "jsons/train.json", DBTransforms([Letterbox(64)]))
    for name, ready in (("raw", False), ("ready", True)):
        assert convert({"train": dataset}, str(tmp_path / name), ConvertSettings(ready=ready)) == 0
    overrides = ("transforms.size=auto", "data=webdataset", "datasets.val_dataset=null", "datasets.test_dataset=null")

    raw = settle(config(*overrides, f"shards_base_path={tmp_path / 'raw'}"))

    from_folder = settle(config("transforms.size=auto", f"dataset_base_path={synthetic}"))
    assert raw.transforms.size == from_folder.transforms.size
    ready = tmp_path / "ready" / "train-000000.tar"
    with rejects(ConfigError, setting="transforms.size", value="auto", path=ready):
        settle(config(*overrides, f"shards_base_path={tmp_path / 'ready'}"))
