"""`glyphfeed inspect` as a user types it, with a small detector that has learnt nothing."""

import json
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from rejection import rejects
from rich.console import Console

from ocr.errors import ConfigError
from ocr.jobs.config_folders import CONFIGS
from ocr.jobs.inspect import inspect, main
from ocr.jobs.test import test as score
from ocr.jobs.train import build_module
from ocr.models.load import save_detector

SMALL = (
    *("model=lite", "model.channels=8", "transforms.size=96", "trainer.accelerator=cpu", "boxes.box_thresh=0.3"),
    *("boxes.min_size=1", "data.cache=off", "dataloaders.test_dataloader.num_workers=0"),
)


def settings(name: str, data: Path, *overrides: str):
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(name, [f"dataset_base_path={data}", *SMALL, *overrides])


@pytest.fixture(scope="module")
def detector(synthetic, tmp_path_factory) -> Path:
    module = build_module(settings("train", synthetic))
    path = tmp_path_factory.mktemp("detector") / "epoch=1.safetensors"
    save_detector(path, module.model, module.settings)
    return path


def test_it_counts_as_a_test_does_and_every_error_is_written(synthetic, detector, tmp_path):
    checkpoint = f"checkpoint_path='{detector}'"
    found = inspect(settings("inspect", synthetic, checkpoint, f"out={tmp_path / 'out'}"), Console(quiet=True))
    scores = score(settings("test", synthetic, checkpoint, f"output_dir={tmp_path}"), Console(quiet=True))
    assert found.counts.hmean == pytest.approx(scores["val/hmean"], abs=1e-6)
    assert found.tight.hmean == pytest.approx(scores["val/hmean_70"], abs=1e-6)
    assert found.cleval[2] == pytest.approx(scores["val/cleval_det_h"], abs=1e-6)
    assert len(found.pages) == 6
    counts = found.counts
    assert len(found.errors) == counts.words + counts.boxes - 2 * counts.matched > 50
    assert (tmp_path / "out" / "atlas.html").read_text().count('<script type="application/json" id="page-') == 6
    assert len(json.loads((tmp_path / "out" / "inspection.json").read_text())["errors"]) == len(found.errors)


def test_two_detectors_are_compared_each_with_its_own_settings(synthetic, detector, tmp_path, monkeypatch, capsys):
    given = [f"checkpoint_path='{detector}'", f"compare='{detector}'"]
    words = [*given, f"dataset_base_path={synthetic}", f"out={tmp_path / 'out'}"]
    others = ["trainer.accelerator=cpu", "data.cache=off", f"hydra.run.dir={tmp_path}"]
    monkeypatch.setattr(sys, "argv", ["ocr", *words, *others])
    main()
    compared = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert compared["points"] == 0
    assert compared["baseline"]["boxes"] == compared["candidate"]["boxes"]
    assert capsys.readouterr().out.count("pages of 96") == 2


def test_pages_without_annotation_are_refused(synthetic, detector):
    config = settings(
        "inspect", synthetic, f"checkpoint_path='{detector}'", "datasets.test_dataset.annotation_path=null"
    )
    with rejects(ConfigError, setting="datasets.test_dataset.annotation_path"):
        inspect(config, Console(quiet=True))
