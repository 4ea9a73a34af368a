"""`ocr test` says which pages it scores."""

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.scored_split import describe_split


def described(*overrides: str, pages: int | None = 54) -> str:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return describe_split(compose("test", ["dataset_base_path=DIR", *overrides]), pages)


def test_the_validation_split_is_not_scored_in_silence():
    assert described() == (
        "scoring datasets.test_dataset: 54 pages of DIR/images/val, words of DIR/jsons/val.json. "
        "This is the validation split; to score another: "
        "datasets.test_dataset.image_path=... datasets.test_dataset.annotation_path=..."
    )
    assert "54 pages of DIR/shards/val-*.tar. This is the validation split" in described("data=webdataset")


@pytest.mark.parametrize("changed", ["image_path=other", "annotation_path=other.json"])
def test_another_split_is_named_by_its_files_only(changed):
    told = described(f"datasets.test_dataset.{changed}")
    assert changed.split("=")[1] in told
    assert "validation" not in told


def test_a_dataset_of_ones_own_is_named_by_its_setting():
    config = OmegaConf.create({"datasets": {"test_dataset": {"_target_": "mine.Pages"}}})
    assert describe_split(config, None) == "scoring datasets.test_dataset"
