"""Every config composes, instantiates and explains each of its keys."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig
from rejection import rejects

from ocr.datasets import DBCollateFN, DBTransforms, OCRDataset
from ocr.datasets.build import build_dataset
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError, DataError
from ocr.jobs.recipe import settle

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
PRIMARY = sorted(file.stem for file in CONFIGS.glob("*.yaml"))
# data/common is no source of pages by itself, and shards have tests of their own.
OTHERS = {("data", "common"), ("data", "webdataset")}
GROUPS = sorted({(file.parent.name, file.stem) for file in CONFIGS.glob("*/*.yaml")} - OTHERS)


def config(data: Path, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose("train", [f"dataset_base_path={data}", "transforms.size=96", *overrides])


@pytest.mark.parametrize("name", PRIMARY)
def test_every_primary_config_composes(synthetic, name):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = compose(name, [f"dataset_base_path={synthetic}"])
    assert composed.dataset_base_path == str(synthetic)


@pytest.mark.parametrize(("group", "name"), GROUPS)
def test_every_group_composes_and_instantiates(synthetic, group, name):
    composed = settle(config(synthetic, f"{group}={name}"))
    for transform in ("train_transform", "val_transform"):
        assert isinstance(instantiate(composed.transforms[transform]), DBTransforms)
    assert isinstance(instantiate(composed.collate_fn), DBCollateFN)
    for split, pages in (("train", 8), ("val", 6)):
        dataset = build_dataset(composed, split)
        assert isinstance(dataset, OCRDataset)
        assert len(dataset) == pages
        batch = next(iter(OCRDataModule(composed_small(composed)).loader(split)))
        pages, channels, height, width = batch["images"].shape
        # Pages of a rare shape are left over, and validation leaves none out.
        assert pages == 2 or split == "val"
        assert (channels, height % 32, width % 32) == (3, 0, 0)


def composed_small(composed: DictConfig) -> DictConfig:
    for loader in composed.dataloaders.values():
        loader.batch_size, loader.num_workers = 2, 0
        if "persistent_workers" in loader:
            loader.persistent_workers = False
    return composed


def test_every_setting_of_a_split_is_shown_and_can_be_set_for_it_alone(synthetic):
    composed = config(synthetic, "datasets.val_dataset.preload_images=true", "dataloaders.val_dataloader.batch_size=3")
    train, val = composed.datasets.train_dataset, composed.datasets.val_dataset
    assert set(train) == set(val) == set(composed.datasets.test_dataset)
    assert {"image_path", "transform", "preload_images", "cache_max_bytes", "use_stored_maps"} <= set(val)
    assert (train.preload_images, val.preload_images) == (False, True)
    assert {name: loader.batch_size for name, loader in composed.dataloaders.items()} == {
        "train_dataloader": 16,
        "val_dataloader": 3,
        "test_dataloader": 16,
    }


def test_loggers_are_chosen_by_name_one_or_several(synthetic):
    assert list(config(synthetic).logger) == ["csv", "tensorboard"]
    assert list(config(synthetic, "logger=wandb").logger) == ["wandb"]
    assert list(config(synthetic, "logger=[csv,mlflow]").logger) == ["csv", "mlflow"]


def test_settings_reach_the_stages_they_are_for(synthetic):
    composed = config(
        synthetic, "decode.scaled=off", "decode.max_pixels=123456789", "targets.shrink_ratio=0.5", "seed=9"
    )
    dataset = build_dataset(composed, "train")
    assert (dataset.decode.scaled, dataset.decode.max_pixels) == ("off", 123456789)
    assert dataset.targets.shrink_ratio == 0.5
    assert instantiate(composed.collate_fn).targets.shrink_ratio == 0.5
    assert dataset.path.seed == 9


def test_the_documented_override_preloads_images(synthetic, tmp_path):
    overrides = ("datasets.val_dataset.preload_images=true", f"cache.folder={tmp_path}")
    dataset = build_dataset(config(synthetic, *overrides), "val")
    assert [dataset.at_cut(index).cached for index in range(len(dataset))] == ["hit"] * len(dataset)


def test_albumentations_transforms_can_be_listed_by_target(synthetic):
    pytest.importorskip("albumentations")
    listed = (
        "transforms.train_transform.transforms=["
        "{_target_: albumentations.LongestMaxSize, max_size: 96}, "
        "{_target_: albumentations.PadIfNeeded, min_width: 96, min_height: 96, border_mode: 0, position: top_left}, "
        "{_target_: albumentations.HorizontalFlip, p: 0.5}, "
        "{_target_: ocr.datasets.transforms.ConditionalNormalize}]"
    )
    dataset = build_dataset(config(synthetic, listed), "train")
    assert dataset.transform.needed_side == 96
    assert dataset[0]["image"].shape == (3, 96, 96)


def test_a_null_split_is_named(synthetic):
    with rejects(ConfigError, setting="datasets.val_dataset"):
        build_dataset(config(synthetic, "datasets.val_dataset=null"), "val")


def test_a_mistyped_split_suggests_the_right_one(synthetic):
    with rejects(ConfigError, setting="datasets.trian_dataset"):
        build_dataset(config(synthetic), "trian")


def test_an_error_of_a_dataset_names_the_split_and_keeps_its_type(tmp_path, dataset_folder):
    with rejects(ConfigError, setting="image_path", path=tmp_path / "nowhere/images/train") as caught:
        build_dataset(config(tmp_path / "nowhere"), "train")
    assert str(caught.value).startswith("datasets.train_dataset: ")
    (dataset_folder / "jsons" / "val.json").write_text("{")
    with rejects(DataError, path=dataset_folder / "jsons" / "val.json"):
        build_dataset(config(dataset_folder), "val")


def test_a_value_of_the_wrong_type_is_an_error_that_names_the_split(synthetic):
    with rejects(ConfigError, setting="image_extensions", value=5):
        build_dataset(config(synthetic, "datasets.val_dataset.image_extensions=5"), "val")
    with rejects(ConfigError, setting="datasets"):
        build_dataset(config(synthetic, "datasets=null"), "val")
    with rejects(ConfigError, setting="datasets.val_dataset"):
        build_dataset(config(synthetic, "+datasets.val_dataset.no_such_setting=1"), "val")


def test_fewer_pages_than_a_batch_are_not_dropped_in_silence(synthetic):
    with rejects(ConfigError, setting="batch_size", value=16):
        OCRDataModule(config(synthetic)).loader("train")
