"""`ocr cache build`: the caches of a training are filled ahead, by one or by two, in one go or not."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from in_process import ROOT, interrupted_at, run_script
from rejection import rejects
from typer.testing import CliRunner

from ocr.cache.folder import list_stores
from ocr.cache.store import Store
from ocr.cli import app
from ocr.errors import ConfigError

TINY = (
    *("model=lite", "model.channels=32", "transforms.size=64", "trainer.accelerator=cpu", "trainer.devices=1"),
    *("dataloaders.train_dataloader.batch_size=2", "+trainer.enable_progress_bar=false", "callbacks.progress=null"),
    *("logger.tensorboard=null", "trainer.max_epochs=1"),
)


def build(data: Path, root: Path, *arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, command(data, root, *arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def command(data: Path, root: Path, *arguments: str) -> list[str]:
    return ["cache", "build", f"dataset_base_path={data}", "--folder", str(root), *arguments]


def start(data: Path, root: Path, *arguments: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "ocr.cli", *command(data, root, *arguments)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT)


def ready(root: Path) -> int:
    return sum(len(Store(folder).ready()) for folder in list_stores(root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_training_finds_everything_that_was_built_ahead(synthetic, root, tmp_path):
    said = build(synthetic, root, *TINY)
    assert re.search(r"train: 8 pages in [\d.]+ s \(\d+ pages/s\), 0 hits, 8 misses", said)
    assert re.search(r"val: 6 pages in [\d.]+ s \(\d+ pages/s\), 0 hits, 6 misses", said)
    for folder in list_stores(root):
        assert str(folder) in said
    train = [f"dataset_base_path={synthetic}", f"cache.folder={root}", f"hydra.run.dir={tmp_path / 'run'}", *TINY]
    done = run_script("runners/train.py", tmp_path, *train)
    assert done.status == 0, done.err
    stats = CliRunner().invoke(app, ["cache", "stats", "--json", "--folder", str(root)]).output
    caches = json.loads(stats)
    assert sorted(cache["ready"] for cache in caches) == [6, 8]
    assert all(cache["hits"] and not cache["misses"] and not cache["invalid"] for cache in caches)


def test_a_second_build_has_nothing_to_do_and_shows_it(synthetic, root):
    build(synthetic, root, "--split", "val", "transforms.size=64")
    said = build(synthetic, root, "--split", "val", "transforms.size=64")
    assert "6 hits, 0 misses" in said
    assert "covers 100 %" in said


FULL = ["transforms.letterbox.shape=square", "cache.max_bytes=1MB", "--workers", "1"]


def test_a_full_cache_says_which_share_it_covers(synthetic, root):
    said = build(synthetic, root, "--split", "train", "transforms.size=320", *FULL)
    assert re.search(r"0 hits, 8 misses\s+covers (25|37) %", said)


def test_a_split_that_is_null_is_left_out_with_a_note(synthetic, root):
    said = build(synthetic, root, "transforms.size=64", "datasets.train_dataset=null")
    assert "datasets.train_dataset is null" in said
    assert "val: 6 pages" in said


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        (["data.cache=off"], "data.cache", "off"),
        (["transforms.sise=64"], "transforms.sise", None),
        (["data=nowhere"], "data", "nowhere"),
        (["--executor", "rya"], "executor", "rya"),
        (["--split", "tests"], "datasets.tests_dataset", None),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_made(synthetic, root, arguments, setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        build(synthetic, root, *arguments)
    assert not root.exists()


def test_an_interrupted_build_leaves_what_it_made_and_the_next_continues(dataset_folder, root):
    slow = ("--split", "train", "--workers", "1", "transforms.size=64")
    with interrupted_at(4, dataset_folder / "images" / "train"):
        done = CliRunner(env={"COLUMNS": "80"}).invoke(app, command(dataset_folder, root, *slow))
    assert done.exit_code == 130, done.output
    assert "interrupted" in done.output
    made = ready(root)
    assert 1 <= made < 8
    assert f"{made} hits, {8 - made} misses" in build(dataset_folder, root, *slow)


@pytest.mark.slow
def test_two_builds_at_once_share_the_work(synthetic, root):
    processes = [start(synthetic, root, "--split", "train", "transforms.size=1024") for _ in range(2)]
    said = [process.communicate(timeout=900)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sum(int(re.findall(r"(\d+) misses", text)[0]) for text in said) == 8
    assert ready(root) == 8
