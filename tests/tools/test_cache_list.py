"""`ocr cache ls|stats`: what is kept is listed and counted."""

import json
import shutil
from pathlib import Path

import pytest
from cache_commands import DAY, fill, ocr, open_split, short, used_days_ago
from rejection import rejects

from ocr import cached
from ocr.cache.folder import disk_bytes
from ocr.errors import ConfigError
from ocr.tools.cache.inventory import find_caches
from ocr.tools.cache.report import ago, share
from ocr.units import format_bytes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.mark.parametrize("command", ["ls", "stats", "verify", "clear", "build"])
def test_every_command_has_help_with_examples(command):
    assert "Examples: ocr cache" in " ".join(ocr(command, "--help").split())


def test_a_folder_without_caches_is_told_with_its_path_and_how_they_come_about(root):
    for command in ("ls", "stats"):
        said = ocr(command, "--folder", root)
        assert str(root) in said
        assert "ocr cache build" in said
    assert json.loads(ocr("stats", "--json", "--folder", root)) == []
    assert "nothing to remove" in ocr("clear", "--yes", "--folder", root)
    assert "No caches in" in ocr("verify", "--folder", root)


def test_items_of_any_dataset_are_listed_as_such(root):
    cached(["a", "b"], str, folder=root)[0]
    text = ocr("ls", "--folder", root)
    assert "items of any length" in text
    assert "(gone)" not in text
    assert "1 x 1" not in text
    assert "1 of 2 items (50 %)" in ocr("stats", "--folder", root)


def test_the_list_tells_all_of_a_cache_within_80_columns(synthetic, root):
    folder = fill(synthetic, root)
    used_days_ago(folder, 3.5)
    lines = ocr("ls", "--folder", root).splitlines()
    assert max(map(len, lines)) <= 80
    text = "".join("".join(lines).split())
    for word in (short(folder), "floatpage+maps,96x96", "6/6", "100%", format_bytes(disk_bytes(folder)), "3daysago"):
        assert word.replace(" ", "") in text
    assert "justnow" in text
    assert "total1cachein" in text
    assert "(gone)" not in text
    dataset = str((synthetic / "images" / "val").resolve())
    start = lines[3].index(dataset[:8])
    assert dataset in "".join(line[start:].split()[0] for line in lines[3:8] if line[start:].split())


def test_a_dataset_that_is_no_longer_there_is_marked(dataset_folder, root):
    fill(dataset_folder, root)
    shutil.rmtree(dataset_folder)
    assert "(gone)" in ocr("ls", "--folder", root)


def test_caches_and_pages_are_shown_as_far_as_they_are_ready(synthetic, root):
    dataset = open_split(synthetic, root)
    for index in range(4):
        dataset[index]
    said = ocr("ls", "--folder", root)
    assert "4/6" in said
    assert "66 %" in said
    assert share(999, 1000) == "99 %"


def test_ages_are_told_in_words_and_a_clock_that_went_back_is_no_nonsense():
    told = {30: "just now", 300: "5 min ago", 3 * 3600: "3 h ago", DAY: "1 day ago", 40 * DAY: "40 days ago"}
    for seconds, words in told.items():
        assert ago(1e9, now=1e9 + seconds) == words
    assert ago(1e9, now=1e9 - 40 * DAY) == "just now"
    assert ago(0.0) == "unknown"


def test_names_may_be_cut_short_as_long_as_they_are_clear(root):
    for name in ("aaaa" * 4 + "-11112222-0", "aaaa" * 4 + "-11113333-0", "aaaa" * 4 + "-11113333-1"):
        (root / name).mkdir(parents=True)
    (root / ("bbbb" * 4 + "-11112222-0")).mkdir()
    every = find_caches(root)
    assert len(set(every.values())) == 4
    for folder, name in every.items():
        assert list(find_caches(root, [name])) == [folder]
        assert list(find_caches(root, [folder.name])) == [folder]
    assert [folder.name for folder in find_caches(root, ["b"])] == ["bbbb" * 4 + "-11112222-0"]
    with rejects(ConfigError, value="aaaa-11113", path=root):
        find_caches(root, ["aaaa-11113"])
    for unknown in ("c", "", "bbbb-1111-7", "bbbb-1111-0-0"):
        with rejects(ConfigError, value=unknown, path=root):
            find_caches(root, [unknown])


def test_stats_sum_the_hits_and_misses_of_all_runs(synthetic, root):
    for _ in range(2):
        dataset = open_split(synthetic, root)
        for index in range(len(dataset)):
            dataset[index]
        dataset.set_epoch(1)
    (known,) = json.loads(ocr("stats", "--json", "--folder", root))
    assert (known["hits"], known["misses"], known["invalid"], known["hit_rate"]) == (6, 6, 0, 0.5)
    assert (known["pages"], known["ready"], known["height"]) == (6, 6, 96)
    said = ocr("stats", known["name"], "--folder", root)
    assert "hit rate 50.0 %: 6 hits, 6 misses, 0 invalid" in said
    assert "Letterbox(size=96" in said
