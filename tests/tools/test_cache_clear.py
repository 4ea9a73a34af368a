"""`ocr cache clear`: what is asked for is removed, and nothing else."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from cache_commands import fill, ocr, open_split, refused, short, used_days_ago
from sameness import assert_same

from ocr.cache.folder import disk_bytes, list_stores
from ocr.tools.cache.clear import clear


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_the_least_recently_used_go_first_until_the_rest_fits(synthetic, root):
    folders = [fill(synthetic, root, size=size) for size in (64, 96, 128)]
    for folder, days in zip(folders, (1, 3, 2), strict=True):
        used_days_ago(folder, days)
    room = disk_bytes(folders[0]) + disk_bytes(folders[2])
    dry = ocr("clear", "--max-bytes", room, "--dry-run", "--folder", root)
    assert f"would remove {short(folders[1])}" in dry
    assert len(list_stores(root)) == 3
    ocr("clear", "--max-bytes", room, "--yes", "--folder", root)
    assert list_stores(root) == [folders[0], folders[2]]
    ocr("clear", "--max-bytes", room - 1, "--yes", "--folder", root)
    assert list_stores(root) == [folders[0]]
    assert "nothing to remove" in ocr("clear", "--max-bytes", "1GB", "--yes", "--folder", root)
    error = refused("clear", "--max-bytes", "much", "--folder", root)
    assert (error.setting, error.value) == ("--max-bytes", "much")


def test_caches_unused_for_days_or_of_a_name_go_and_all_others_stay(synthetic, root):
    folders = [fill(synthetic, root, size=size) for size in (64, 96, 128)]
    for folder, days in zip(folders, (1, 40, -5), strict=True):
        used_days_ago(folder, days)
    ocr("clear", "--older-than", 30, "--yes", "--folder", root)
    assert set(list_stores(root)) == {folders[0], folders[2]}
    said = ocr("clear", short(folders[0]), "--yes", "--folder", root)
    assert list_stores(root) == [folders[2]]
    assert "freed 1 cache" in said
    assert "1 cache, " in said.split(";")[1]


def test_nothing_but_caches_and_remains_of_killed_processes_is_removed(synthetic, root):
    fill(synthetic, root)
    ended = subprocess.Popen(["true"])
    ended.wait()
    remains = root / f".{'a' * 16}-{'b' * 8}-0.{ended.pid}-1.partial"
    for folder in (remains, root / "mine"):
        folder.mkdir()
        (folder / "about.json").write_text("{}")
    said = ocr("clear", "--yes", "--folder", root)
    assert "killed processes" in said
    assert [path.name for path in root.iterdir()] == ["mine"]
    assert (root / "mine" / "about.json").exists()


def test_a_cache_that_is_cleared_while_in_use_still_serves_the_same_samples(synthetic, root):
    fill(synthetic, root)
    dataset, plain = open_split(synthetic, root), open_split(synthetic, root, cache="off")
    first = dataset[0]
    ocr("clear", "--yes", "--folder", root)
    assert list(root.iterdir()) == []
    assert_same([first, *(dataset[index] for index in range(1, 6))], [plain[index] for index in range(6)])
    assert dataset.ledger.totals()["cache_hits"] == 6


def test_without_a_terminal_to_ask_at_nothing_is_removed(synthetic, root):
    fill(synthetic, root)
    assert refused("clear", "--folder", root).setting == "--yes"
    assert len(list_stores(root)) == 1


@pytest.mark.parametrize(("answer", "left", "status"), [("n", 1, 1), ("", 1, 1), ("y", 0, 0)])
def test_at_a_terminal_the_answer_decides(synthetic, root, monkeypatch, capsys, answer, left, status):
    fill(synthetic, root)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with open(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert clear(root, (), None, None, dry_run=False, yes=False) == status
    os.close(ours)
    assert "Remove 1 cache" in capsys.readouterr().out
    assert len(list_stores(root)) == left


def test_lists_of_pages_are_removed_with_all_caches_and_not_with_some(tmp_path):
    kept = tmp_path / "pages" / "0123.rows"
    kept.parent.mkdir()
    kept.write_bytes(bytes(2000))
    assert "would remove 1 list of pages, 2.0 kB" in ocr("clear", "--folder", tmp_path, "--dry-run")
    ocr("clear", "--folder", tmp_path, "--older-than", 1, "--yes")
    assert kept.exists()
    assert "removed 1 list of pages" in ocr("clear", "--folder", tmp_path, "--yes")
    assert not kept.exists()
