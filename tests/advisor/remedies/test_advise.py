"""`ocr advise`: measures a config on a few pages, ranks remedies, writes them down, and leaves nothing behind."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from rejection import rejects
from typer.testing import CliRunner

from ocr.advisor.measure.temporary_folder import temporary_folder
from ocr.advisor.model.queueing import DISK, Consumer, Demand, Pipeline
from ocr.advisor.remedies.advice import Advice, Remedy, combine
from ocr.advisor.remedies.advisor import AdviseSettings, Advisor
from ocr.advisor.remedies.tuned import base_group, write_tuned
from ocr.advisor.report.advice_result import to_result
from ocr.advisor.report.result_file import read_result, write_result
from ocr.cli import app
from ocr.errors import ConfigError, DataError
from ocr.jobs.compose import CONFIGS, compose_training

TINY = ("transforms.size=64", "model=lite", "model.channels=32", "trainer.accelerator=cpu")


def advisor(data: Path, *overrides: str, **settings) -> Advisor:
    base = [f"dataset_base_path={data}", *TINY, *overrides]
    options = {"split": "val", "pages": 6, "step_ms": 1.0, "rounds": 1} | settings
    return Advisor(lambda more: compose_training([*base, *more]), AdviseSettings(**options), cores=2)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["train", "val"])
def test_every_remedy_is_tried_predicted_and_checked(synthetic, tmp_path, split):
    small = f"dataloaders.{split}_dataloader.batch_size=2"
    chief = advisor(synthetic, "data.cache=off", "decode.scaled=off", "transforms.normalize=host", small, split=split)
    with temporary_folder(tmp_path) as folder:
        advice = chief.advise(folder, lambda what: None)
        chief.verify(advice, folder, lambda what: None)
    assert not list(tmp_path.iterdir())
    names = {remedy.name for remedy in advice.remedies}
    both = {
        "prefix cache",
        "scaled decode",
        "uint8 to the device",
        "raw shards",
        "ready shards",
        "1 thread",
        "4 threads",
    }
    assert names >= both | {"2 processes"}
    assert ("auto cache" in names) == ("stored maps" in names) == (split == "val")
    for remedy in [advice.present, *advice.remedies]:
        assert remedy.later.epoch_seconds > 0
        assert remedy.reason
    assert {name for name, *_ in advice.verified} >= both | {"present", "2 processes"}
    assert all(measured > 0 for _, _, measured in advice.verified)
    assert advice.timeline[0].what == "wait"
    gains = [round(remedy.gain, 2) for remedy in advice.remedies]
    assert gains == sorted(gains, reverse=True)
    assert "cache" in next(remedy for remedy in advice.remedies if remedy.name == "prefix cache").overrides[0]


def test_what_is_on_already_is_no_remedy_and_the_stages_after_a_cache_keep_their_names(synthetic, tmp_path):
    with temporary_folder(tmp_path) as folder:
        small = "dataloaders.train_dataloader.batch_size=2"
        advice = advisor(synthetic, small, split="train").advise(folder, lambda what: None)
    names = {remedy.name for remedy in advice.remedies}
    assert not names & {"prefix cache", "auto cache", "scaled decode", "uint8 to the device"}
    assert "no cache" in names
    assert advice.present.kept_bytes > 0
    stages = [demand.name for demand in advice.present.later.pipeline.demands]
    assert stages[0] == "cache"
    assert {"Warp", "targets", "slot"} <= set(stages)
    assert not {"source", "decode", "Letterbox"} & set(stages)


@pytest.mark.slow
def test_a_slow_model_is_told_to_be_the_bottleneck(synthetic, tmp_path):
    told: list[str] = []
    with temporary_folder(tmp_path) as folder:
        advice = advisor(synthetic, "data.cache=off", step_ms=1e6).advise(folder, told.append)
    assert len(told) >= 2
    assert advice.best is None
    assert advice.present.later.bottleneck == "model"


def test_a_result_that_was_written_is_read_and_nothing_else(tmp_path):
    present = remedy("present", 0.1, step=0.4)
    advice = Advice("here", 160, 16, 2, (), Consumer(), present, [remedy("prefix cache", 0.02, "data.cache=prefix")])
    found = to_result(
        advice, "ocr advise", {"cores": 2}, "val", {"disk_bytes_per_s": 1e9, "copy_bytes_per_s": 1e10}, []
    )
    write_result(found, tmp_path / "advice.json")
    assert read_result(tmp_path / "advice.json") == json.loads(json.dumps(found))
    (tmp_path / "bad.json").write_text("{}")
    with rejects(DataError, path=tmp_path / "bad.json"):
        read_result(tmp_path / "bad.json")


def advise_in_one_run(data: Path, folder: Path, *options: str) -> dict[str, Any]:
    files = ["--json", str(folder / "a.json"), "--html", str(folder / "a.html")]
    command = ["advise", f"dataset_base_path={data}", *TINY, "--step-ms", "2", "--split", "val", "--pages", "4"]
    done = CliRunner(env={"COLUMNS": "100"}).invoke(app, [*command, *files, *options])
    assert done.exit_code == 0, done.output
    found = read_result(folder / "a.json")
    assert found["kind"] == "advice"
    assert found["command"].startswith("ocr advise dataset_base_path=")
    assert "<svg" in (folder / "a.html").read_text()
    return found


def test_the_command_advises_within_one_run(synthetic, tmp_path):
    assert advise_in_one_run(synthetic, tmp_path)["remedies"]


@pytest.mark.slow
def test_the_command_runs_what_it_advises(synthetic, tmp_path):
    assert "present" in [one["name"] for one in advise_in_one_run(synthetic, tmp_path, "--verify")["verified"]]


def test_tuned_settings_have_the_last_word(tmp_path):
    configs = shutil.copytree(CONFIGS, tmp_path / "configs")
    overrides = ["data.cache=prefix", "data.num_workers=3", "transforms.normalize=host", "trainer.precision=bf16-mixed"]
    overrides += ["compile_model=true", "threads.model=1"]
    path = write_tuned([*overrides, "shards_base_path=SHARDS"], ("data", "base"), "ocr advise --apply", configs)
    assert path == configs / "data" / "tuned.yaml"
    text = path.read_text()
    assert "# Written by: ocr advise --apply" in text
    assert "SHARDS" not in text
    assert all("#" in line for line in text.splitlines() if ":" in line and not line.startswith("defaults"))
    assert yaml.safe_load(text)["data"]["num_workers"] == 3
    with initialize_config_dir(str(configs), version_base="1.3"):
        config = compose("train", ["data=tuned"])
    assert (config.data.cache, config.data.num_workers) == ("prefix", 3)
    assert (config.transforms.normalize, config.trainer.precision) == ("host", "bf16-mixed")
    assert (config.compile_model, config.threads.model) == (True, 1)
    assert config.dataloaders.train_dataloader.num_workers == 3


def test_tuned_settings_of_an_experiment_come_after_its_own(tmp_path):
    configs = shutil.copytree(CONFIGS, tmp_path / "configs")
    overrides = ["dataloaders.train_dataloader.num_workers=2", "trainer.check_val_every_n_epoch=25"]
    base = base_group(["model=lite", "experiment=receipts"])
    assert write_tuned(overrides, base, "ocr advise", configs) == configs / "experiment" / "tuned.yaml"
    with initialize_config_dir(str(configs), version_base="1.3"):
        config = compose("train", ["experiment=tuned"])
    assert config.dataloaders.train_dataloader.num_workers == 2
    assert config.trainer.check_val_every_n_epoch == 25
    assert config.model.encoder == "hgnetv2_b0"


def test_workers_that_an_experiment_sets_are_advised_where_they_are_set(synthetic):
    chief = advisor(synthetic, "experiment=receipts", "transforms.size=64", split="train")
    assert chief.workload.workers_setting == "dataloaders.train_dataloader.num_workers"
    assert advisor(synthetic).workload.workers_setting == "data.num_workers"


def test_tuned_settings_are_not_tuned_again():
    with rejects(ConfigError, setting="data", value="tuned"):
        base_group(["data=tuned"])


def test_pages_beyond_the_memory_come_from_the_disk(synthetic, tmp_path):
    chief = advisor(synthetic, "data.cache=off")
    chief.free_memory_bytes, chief.throughput["disk_bytes_per_s"] = 1.0, 1e4
    with temporary_folder(tmp_path) as folder:
        advice = chief.advise(folder, lambda what: None)
    found = advice.present.later
    assert (found.bottleneck, found.stage) == (DISK, "disk")
    assert found.epoch_seconds > 6 * chief.file_bytes / 1e4


def test_dali_is_no_present_configuration(synthetic):
    with rejects(ConfigError, setting="use_dali", value=True):
        advisor(synthetic, "use_dali=true", "data.cache=off")


def test_a_split_that_is_not_there_is_named(synthetic):
    with rejects(ConfigError, setting="datasets.nowhere_dataset"):
        advisor(synthetic, split="nowhere")


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("step_ms", "--step-ms", -1.0),
        ("step_ms", "--step-ms", float("nan")),
        ("step_ms", "--step-ms", float("inf")),
        ("pages", "--pages", 0),
    ],
)
def test_numbers_that_make_no_sense_are_refused(name, setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        AdviseSettings(**{name: value})


def remedy(name: str, seconds: float, *overrides: str, step: float = 0.0, workers: int = 2, **details) -> Remedy:
    pipeline = Pipeline((Demand("work", seconds, seconds),), Consumer(step), 160, 16, workers, 8)
    predicted = pipeline.predict()
    return Remedy(name, overrides, "so", predicted, predicted, 1.0, **details)


def test_remedies_are_combined_where_that_brings_more():
    present = remedy("present", 0.1, step=0.4)
    parts = [
        remedy("prefix cache", 0.02, "data.cache=prefix", step=0.4, changes="demands", kept_bytes=7),
        remedy("4 threads", 0.1, "data.num_workers=4", step=0.4, workers=4, changes="workers"),
        remedy("bf16", 0.1, "trainer.precision=bf16-mixed", step=0.2, changes="consumer"),
    ]
    parts = [replace(part, gain=present.later.epoch_seconds / part.later.epoch_seconds) for part in parts]
    found = combine(parts, present)
    # With the cache only the step is left, which more workers do not make faster, and bf16 does.
    assert [one.name for one in found] == ["prefix cache + bf16", "prefix cache + 4 threads + bf16", "4 threads + bf16"]
    assert found[0].overrides == ("data.cache=prefix", "trainer.precision=bf16-mixed")
    assert found[0].kept_bytes == 7
    assert found[0].gain > 1.5 * max(part.gain for part in parts)
    advice = Advice("here", 160, 16, 2, (), Consumer(), present, [*found, *parts])
    assert advice.best is found[0]
    assert advice.mean_error is None
