"""`ocr cache`: what is kept is listed, filled ahead of a training, and removed as far as is asked for."""

import json
import os
import pty
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import interrupted_at, run_script
from rejection import rejects
from sameness import assert_same
from typer.testing import CliRunner, Result

from ocr import cached
from ocr.cache import store as store_module
from ocr.cache.store import close_store, open_store
from ocr.cli import app
from ocr.datasets import DBTransforms, OCRDataset
from ocr.errors import ConfigError
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.tools.cache import Group, Value, choose

TINY = (
    *("model=lite", "model.channels=32", "transforms.size=64", "trainer.accelerator=cpu", "trainer.devices=1"),
    *("dataloaders.train_dataloader.batch_size=2", "+trainer.enable_progress_bar=false", "callbacks.progress=null"),
    *("logger.tensorboard=null", "trainer.max_epochs=1", "callbacks.advice=null"),
)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cache"
    close_store(tmp_path / "cache")


def invoke(command: str, root: Path, *arguments: object) -> Result:
    """A command as another process would run it."""
    close_store(root)
    words = ["cache", command, *map(str, arguments), "--folder", str(root)]
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, words)
    close_store(root)
    return done


def ocr(command: str, root: Path, *arguments: object, expect: int = 0) -> str:
    done = invoke(command, root, *arguments)
    assert done.exit_code == expect, (done.output, done.exception)
    return done.output


def rejected(command: str, root: Path, *arguments: object) -> tuple[str | None, object]:
    error = invoke(command, root, *arguments).exception
    assert isinstance(error, ConfigError)
    return error.setting, error.value


def listed(root: Path) -> list[dict[str, Any]]:
    """All groups, the one with the most values first."""
    caches = json.loads(invoke("ls", root, "--json", "-").stdout)["caches"]
    return sorted(caches, key=lambda one: -one["count"])


def open_split(data: Path, root: Path | None, split: str = "val", size: int = 96) -> OCRDataset:
    transform, kept = DBTransforms([Letterbox(size), Normalize()]), "off" if root is None else "auto"
    folder, words = data / "images" / split, data / "jsons" / f"{split}.json"
    return OCRDataset(folder, words, transform, cache=kept, cache_folder=root)


def fill(data: Path, root: Path, days_ago: int = 0, **settings: Any) -> str:
    """Keep the pages of a split, used last so many days ago; the name of its stages."""
    dataset = open_split(data, root, **settings)
    dataset.fill_cache()
    assert dataset.cache is not None
    store, prefix = dataset.cache.store, dataset.cache.prefix
    day = (int(time.time() // 86400) - days_ago).to_bytes(4, "big")
    for key, _ in list(store.items("used", prefix)):
        store.put("used", key, day)
    close_store(root)
    return prefix.hex()[:6]


# -- list


@pytest.mark.parametrize("command", ["ls", "clear", "build"])
def test_every_command_has_help_with_examples(command, root):
    assert "Examples: glyphfeed cache" in " ".join(ocr(command, root, "--help").split())


def test_a_folder_with_nothing_in_it_is_named_with_what_fills_it(root):
    said = ocr("ls", root)
    assert str(root) in said
    assert "glyphfeed cache build" in said
    assert listed(root) == []
    assert "nothing to remove" in ocr("clear", root, "--yes")
    assert not root.exists()


def test_the_list_has_a_row_for_the_pages_of_the_same_stages_within_80_columns(synthetic, root, tmp_path):
    small, large = fill(synthetic, root, size=64), fill(synthetic, root, days_ago=3)
    assert fill(synthetic, root, split="train") == large
    cached(["a", "b"], str, folder=root)[0]
    lines = ocr("ls", root, "--json", tmp_path / "caches.json").splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join("".join(lines).split())
    for words in (f"{small} ", f"{large} ", " 6 pages ", "14 pages ", " 1 item ", "limit ", "cache.max_bytes=auto"):
        assert words in text
    about = json.loads((tmp_path / "caches.json").read_text())
    assert about["folder"] == str(root)
    assert about["limit_bytes"] > about["file_bytes"] > sum(one["bytes"] for one in about["caches"])
    first, second, third = sorted(about["caches"], key=lambda one: -one["count"])
    assert [one["count"] for one in (first, second, third)] == [14, 6, 1]
    assert [one["unit"] for one in (first, second, third)] == ["page", "page", "item"]
    assert sorted(map(os.path.basename, first["data"])) == ["train", "val"]
    assert any(stage.startswith("Letterbox(size=64") for stage in second["stages"])


def test_the_day_of_the_last_use_is_listed(synthetic, root):
    fill(synthetic, root, days_ago=3)
    today = time.time() // 86400
    assert listed(root)[0]["used"] == time.strftime("%Y-%m-%d", time.gmtime((today - 3) * 86400))
    open_split(synthetic, root)[0]
    close_store(root)
    assert listed(root)[0]["used"] == time.strftime("%Y-%m-%d", time.gmtime(today * 86400))


# -- build


def given(*words: str) -> list[str]:
    """KEY=VALUE as the options of a command."""
    return [part for word in words for part in ("--set", word)]


def test_training_finds_everything_that_was_built_ahead(synthetic, root, tmp_path):
    said = ocr("build", root, synthetic, *given(*TINY))
    assert re.search(r"train: 8 pages in [\d.]+ s \(\d+ pages/s\), 0 hits, 8 misses", said)
    assert re.search(r"val: 6 pages in [\d.]+ s \(\d+ pages/s\), 0 hits, 6 misses", said)
    assert str(root) in said
    before = listed(root)
    train = [f"dataset_base_path={synthetic}", f"cache.folder={root}", f"hydra.run.dir={tmp_path / 'run'}", *TINY]
    done = run_script("runners/train.py", tmp_path, *train)
    assert done.status == 0, done.err
    close_store(root)
    assert listed(root) == before


def test_a_second_build_has_nothing_to_do(synthetic, root):
    for counts in ("0 hits, 6 misses", "6 hits, 0 misses"):
        said = ocr("build", root, synthetic, "--set", "transforms.size=64", "--split", "val")
        assert counts in said
        assert "train" not in said


def test_a_limit_that_is_too_small_is_said(synthetic, root):
    small = [synthetic, "--set", "cache.max_bytes=300kB", "--split", "train", "--workers", 1]
    said = ocr("build", root, *small)
    assert "not all of it is kept" in said
    assert "cache.max_bytes=300kB" in said
    assert 0 < listed(root)[0]["count"] < 8


def test_a_split_that_is_null_is_left_out_with_a_note(synthetic, root):
    said = ocr("build", root, synthetic, *given("transforms.size=64", "datasets.train_dataset=null"))
    assert "datasets.train_dataset is null" in said
    assert "val: 6 pages" in said


@pytest.mark.parametrize(
    ("arguments", "setting", "value"),
    [
        (["--set", "data.cache=off"], "data.cache", "off"),
        (["--set", "transforms.sise=64"], "transforms.sise", None),
        (["--set", "data=nowhere"], "data", "nowhere"),
        (["--split", "tests"], "datasets.tests_dataset", None),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_made(synthetic, root, arguments, setting, value):
    assert rejected("build", root, synthetic, *arguments) == (setting, value)
    assert not root.exists()


def test_an_interrupted_build_keeps_what_is_finished_and_the_same_command_continues(dataset_folder, root):
    slow = [dataset_folder, "--set", "transforms.size=64", "--split", "train", "--workers", 1]
    with interrupted_at(4, dataset_folder / "images" / "train"):
        said = ocr("build", root, *slow, expect=130)
    assert "interrupted" in said
    made = listed(root)[0]["count"]
    assert 1 <= made < 8
    assert f"{made} hits, {8 - made} misses" in ocr("build", root, *slow)


# -- clear


def test_what_was_not_used_for_longest_goes_until_the_rest_fits(synthetic, root):
    names = [fill(synthetic, root, days, size=size) for size, days in ((64, 1), (96, 3), (128, 2))]
    sizes = {one["name"][:6]: one["bytes"] for one in listed(root)}
    room = sizes[names[0]] + sizes[names[2]]
    said = ocr("clear", root, "--max-bytes", room, "--dry-run")
    assert names[1] in said
    assert names[0] not in said
    assert len(listed(root)) == 3
    ocr("clear", root, "--max-bytes", room, "--yes")
    assert {one["name"][:6] for one in listed(root)} == {names[0], names[2]}
    ocr("clear", root, "--max-bytes", room - 1, "--yes")
    assert [one["count"] for one in listed(root)] == [6, 5]
    assert "nothing to remove" in ocr("clear", root, "--max-bytes", "1GB", "--yes")
    assert rejected("clear", root, "--max-bytes", "much") == ("--max-bytes", "much")


def test_what_was_not_used_for_days_or_has_a_name_goes_and_the_rest_stays(synthetic, root):
    names = [fill(synthetic, root, days, size=size) for size, days in ((64, 1), (96, 40), (128, 0))]
    ocr("clear", root, "--older-than", 30, "--yes")
    assert {one["name"][:6] for one in listed(root)} == {names[0], names[2]}
    for unknown in ("zzzz", "", names[1]):
        assert rejected("clear", root, unknown, "--yes") == ("NAME", unknown)
    ocr("clear", root, names[0], "--yes")
    assert {one["name"][:6] for one in listed(root)} == {names[2]}


def test_a_name_can_be_longer_and_shorter_as_long_as_it_is_of_one(tmp_path):
    one, other = (Group(name, "page", "", [], [Value(1, 2, name.encode())]) for name in ("abcdef01", "abcdef23"))
    for name in ("abcdef0", "abcdef01"):
        assert choose([one, other], [name], None, None, tmp_path) == [one]
    for name in ("", "abcdef"):
        with rejects(ConfigError, setting="NAME", value=name, path=tmp_path):
            choose([one, other], [name], None, None, tmp_path)


def test_the_disk_gets_its_room_back(synthetic, root):
    (file,) = [root / "store" / "data.mdb"]
    small, large = fill(synthetic, root, size=64), fill(synthetic, root, split="train", size=640)
    before = file.stat().st_size
    ocr("clear", root, large, "--yes")
    assert file.stat().st_size < before / 2
    assert [one["name"][:6] for one in listed(root)] == [small]


def test_without_limits_all_goes_with_what_lies_next_to_it_and_files_of_others_stay(synthetic, root):
    fill(synthetic, root)
    for path in (root / "store.damaged" / "data.mdb", root / "pages" / "0123.rows", root / "mine" / "data.mdb"):
        path.parent.mkdir()
        path.write_bytes(bytes(2000))
    said = ocr("clear", root, "--dry-run")
    assert "store.damaged, 2.0 kB" in said
    assert "pages/0123.rows, 2.0 kB" in said
    ocr("clear", root, "--older-than", 1, "--yes")
    assert (root / "pages" / "0123.rows").exists()
    ocr("clear", root, "--yes")
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["data.mdb"]
    assert (root / "mine" / "data.mdb").exists()


def test_who_uses_the_cache_while_it_is_cleared_goes_on_and_is_told_of(synthetic, root, monkeypatch):
    fill(synthetic, root)
    dataset, plain = open_split(synthetic, root), open_split(synthetic, None)
    pid = os.fork()
    if not pid:
        store = open_store(root)
        while store.get("pages", next(iter([key for key, _ in store.items("pages")]), b"")) is not None:
            time.sleep(0.01)
        os._exit(0)
    said = ""
    while store_module.open_store(root).compact():  # Until the child has it open.
        time.sleep(0.01)
    said = ocr("clear", root, "--yes")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "other processes have it open" in said
    assert listed(root) == []
    assert_same([dataset[index] for index in range(6)], [plain[index] for index in range(6)])
    dataset.flush()
    assert listed(root)[0]["count"] == 6


def test_without_a_terminal_to_ask_on_nothing_is_removed(synthetic, root):
    fill(synthetic, root)
    assert rejected("clear", root)[0] == "--yes"
    assert len(listed(root)) == 1


@pytest.mark.parametrize(("answer", "left", "status"), [("n", 1, 1), ("", 1, 1), ("y", 0, 0)])
def test_at_a_terminal_the_answer_decides(synthetic, root, monkeypatch, capsys, answer, left, status):
    fill(synthetic, root)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with open(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        with pytest.raises(SystemExit) as ending:
            app(["cache", "clear", "--folder", str(root)])
    os.close(ours)
    assert ending.value.code == status
    assert "Remove " in capsys.readouterr().out
    close_store(root)
    assert len(listed(root)) == left
