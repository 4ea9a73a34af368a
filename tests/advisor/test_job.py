"""`glyphfeed advise` on small pages: what it measures, writes and refuses."""

import json
import sys
from math import inf
from types import SimpleNamespace

import pytest
from omegaconf import DictConfig
from rejection import rejects

from ocr.advisor import job
from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.system import usable_cores

SMALL = (
    *("transforms.size=64", "dataloaders.train_dataloader.batch_size=2", "trainer.accelerator=cpu"),
    *("model=lite", "model.channels=32", "model.head_channels=16", "threads.model=1"),
)


QUICK = (0.05, inf)
"""Seconds per configuration, and of all; whether the figures are right is for the benchmark."""


@pytest.fixture
def config(synthetic, tmp_path):
    def make(*overrides: str):
        folders = (f"dataset_base_path={synthetic}", f"cache.folder={tmp_path / 'cache'}")
        made = compose_training([*SMALL, *folders, *(one for one in overrides if one.partition("=")[0] not in OWN)])
        own = OWN | {key: json.loads(value) for key, value in (one.split("=", 1) for one in overrides) if key in OWN}
        made._set_flag("struct", False)
        made.update(own)
        return made

    return make


OWN = {"split": "train", "step_ms": None, "compile": False, "alter": False}


def test_changes_of_the_loader_are_run_with_the_step(config, tmp_path):
    shown: list[str] = []
    found = job.Advisor(config("step_ms=1", "data.num_workers=1"), shown.append, *QUICK).advise(tmp_path)
    assert (found.pages, found.batches, found.step_seconds) == (8, 4, 0.001)
    names = {row.change.name for row in found.rows if row.how == "measured"}
    assert {"no worker", f"{usable_cores()} worker threads", "no cache"} <= names
    assert {"present", "the loader alone"} <= set(shown)
    assert found.place.endswith("train")
    assert {"cache", "targets"} <= found.stages.keys()
    assert "changes of the model and the batch size" in found.not_tried


def test_a_cache_that_is_only_tried_is_kept_out_of_the_real_one(config, tmp_path):
    (tmp_path / "tried").mkdir()
    found = job.Advisor(config("step_ms=0", "data.cache=off"), str, *QUICK).advise(tmp_path / "tried")
    (cache,) = (row for row in found.rows if row.change.name == "cache")
    assert cache.first_seconds is not None
    assert [*(tmp_path / "tried").iterdir()]
    assert not (tmp_path / "cache").exists() or not [*(tmp_path / "cache").iterdir()]


def test_a_slow_stage_is_the_cause_and_no_setting_helps(config, tmp_path):
    stage = "{_target_:advisor.trials.Burn,seconds:0.01}"
    given = f"transforms.train_transform.transforms=[${{transforms.letterbox}},{stage}]"
    found = job.Advisor(config("step_ms=0", "data.cache=off", given, "data.num_workers=0"), str, *QUICK).advise(
        tmp_path
    )
    assert found.bottleneck == "loader"
    assert max(found.stages, key=lambda name: found.stages[name]) == "Burn"


def test_the_model_of_the_config_is_measured_and_changed(config, tmp_path):
    found = job.Advisor(config(), str, *QUICK).advise(tmp_path)
    names = {row.change.name for row in found.rows + found.other_rows}
    assert "channels first" in names
    assert "8 pages per step" in names
    assert found.step_seconds > 0
    assert found.step_cause == "only 2 pages per step"
    assert {row.how for row in found.rows} <= {"measured", "from parts", "computed"}
    assert "compile=true" in found.not_tried["compiled model"]


@pytest.mark.parametrize(("seconds", "rows"), [(9.0, 1), (0.5, 0)])
def test_more_cores_are_computed_where_they_would_be_faster(config, seconds, rows):
    advisor = job.Advisor(config("step_ms=1"), str, *QUICK)
    advisor._steps = 1.0
    alone = SimpleNamespace(seconds=4.0)
    found = SimpleNamespace(bottleneck="loader", seconds=seconds, rows=[])
    advisor._add_computed(found, alone)
    assert [(row.seconds, row.gain, row.how) for row in found.rows] == [(2.0, 4.5, "computed")] * rows


def test_whole_epochs_verify_the_advice(config, tmp_path):
    advisor = job.Advisor(config("step_ms=1"), str, *QUICK)
    found = advisor.advise(tmp_path)
    advisor.verify(found, tmp_path)
    assert found.verified[0][0] == "present"
    assert all(predicted > 0 and measured > 0 for _, predicted, measured in found.verified)


def test_figures_are_written_as_json_only():
    with rejects(ConfigError, setting="json"):
        job._check(DictConfig({"json": "figures.txt"}))


def test_the_command_measures_writes_and_applies(synthetic, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(job, "SECONDS", *QUICK)
    monkeypatch.chdir(tmp_path)
    given = (f"dataset_base_path={synthetic}", f"cache.folder={tmp_path / 'cache'}", "step_ms=0", "data.cache=off")
    monkeypatch.setattr(sys, "argv", ["advise", *SMALL, *given, "html=a.html", "json=a.json", "apply=true"])
    job.main()
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["command"].startswith("glyphfeed advise ")
    assert "<html" in (tmp_path / "a.html").read_text()
    printed = capsys.readouterr().out
    assert printed.count("measuring present") == 1
    if told["best"]:
        assert "tuned" in printed
