"""`ocr cache build`: the caches of a training are filled ahead, by one or by two, in one go or not."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ocr.cache.folder import list_stores
from ocr.cache.store import Store
from ocr.cli import app
from ocr.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
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
    runner = [sys.executable, str(ROOT / "runners" / "train.py"), *train]
    done = subprocess.run(runner, capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr
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
    assert "train: left out, datasets.train_dataset is null" in said
    assert "val: 6 pages" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data.cache=off"], "data.cache=off stores nothing of train.*data.cache=auto"),
        (["transforms.sise=64"], "transforms.sise is not a setting: did you mean size"),
        (["data=nowhere"], "data=nowhere: Known: base"),
        (["--executor", "rya"], "executor='rya'.*did you mean ray"),
        (["--split", "tests"], "datasets.tests_dataset .*did you mean test_dataset"),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_made(synthetic, root, arguments, message):
    with pytest.raises(ConfigError, match=message):
        build(synthetic, root, *arguments)
    assert not root.exists()


def repeat_pages(data: Path, folder: Path, count: int) -> Path:
    """The training pages again and again: a build that takes longer than this process may wait for a core."""
    pages = list(json.loads((data / "jsons/train.json").read_text())["images"].items())
    (folder / "images/train").mkdir(parents=True)
    (folder / "jsons").mkdir()
    repeated = {}
    for number in range(count):
        name, words = pages[number % len(pages)]
        (folder / "images/train" / f"{number}-{name}").symlink_to(data / "images/train" / name)
        repeated[f"{number}-{name}"] = words
    (folder / "jsons/train.json").write_text(json.dumps({"images": repeated}))
    return folder


def test_an_interrupted_build_leaves_what_it_made_and_the_next_goes_on(synthetic, root, tmp_path):
    data, slow = repeat_pages(synthetic, tmp_path / "data", 120), ("--split", "train", "--workers", "1")
    process = start(data, root, *slow)
    deadline = time.monotonic() + 600
    while not ready(root) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=900)
    assert process.returncode == 130, said
    assert "the same command continues with the rest" in said
    assert "Traceback" not in said
    made = ready(root)
    assert 1 <= made < 120
    assert f"{made} hits, {120 - made} misses" in build(data, root, *slow)


def test_two_builds_at_once_share_the_work(synthetic, root):
    processes = [start(synthetic, root, "--split", "train", "transforms.size=1024") for _ in range(2)]
    said = [process.communicate(timeout=900)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert sum(int(re.findall(r"(\d+) misses", text)[0]) for text in said) == 8
    assert ready(root) == 8
