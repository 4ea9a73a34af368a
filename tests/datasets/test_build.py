"""Datasets from a config: a split that is not described is an error that names its setting."""

import pytest
from omegaconf import OmegaConf
from rejection import rejects

from ocr.datasets.build import build_dataset
from ocr.errors import ConfigError


@pytest.mark.parametrize(
    ("config", "setting"),
    [
        ({}, "datasets"),
        ({"datasets": None}, "datasets"),
        ({"datasets": {"val_dataset": {}}}, "datasets.train_dataset"),
        ({"datasets": {"train_dataset": None}}, "datasets.train_dataset"),
    ],
)
def test_a_split_that_is_not_described_is_named(config, setting):
    with rejects(ConfigError, setting=setting):
        build_dataset(OmegaConf.create(config), "train")
