"""`ocr cache ls|stats|verify|clear`: what is kept is listed, counted, checked and removed."""

import json
import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sameness import assert_same
from typer.testing import CliRunner, Result

from ocr import cached
from ocr.cache.folder import disk_bytes, list_stores
from ocr.cache.row_format import ROW_BYTES
from ocr.cache.store import Store
from ocr.cli import app
from ocr.datasets import DBTransforms, OCRDataset
from ocr.errors import ConfigError
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.tools.cache.inventory import find_caches
from ocr.tools.cache.report import ago, share
from ocr.units import format_bytes

ROOT = Path(__file__).resolve().parents[2]
DAY = 86400


def ocr(*arguments: object, expect: int = 0) -> str:
    result = invoke(*arguments)
    assert result.exit_code == expect, (result.output, result.exception)
    return result.output


def invoke(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["cache", *map(str, arguments)])


def refused(*arguments: object) -> str:
    error = invoke(*arguments).exception
    assert isinstance(error, ConfigError)
    return str(error)


def open_split(data: Path, root: Path, split: str = "val", size: int = 96, **settings) -> OCRDataset:
    transform = DBTransforms([Letterbox(size), Normalize()])
    folder = data / "images" / split
    settings = {"cache": "auto", "cache_folder": root} | settings
    return OCRDataset(folder, data / "jsons" / f"{split}.json", transform, **settings)


def fill(data: Path, root: Path, **settings) -> Path:
    dataset = open_split(data, root, **settings)
    dataset.fill_cache()
    assert dataset.cache is not None
    store = dataset.cache.store()
    assert store is not None
    return store.folder


def used_days_ago(folder: Path, days: float) -> None:
    os.utime(folder / "about.json", (time.time() - days * DAY,) * 2)


def short(folder: Path) -> str:
    return find_caches(folder.parent)[folder]


def flip_byte(file: Path, offset: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(offset)
        before = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([before[0] ^ 255]))


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
    with pytest.raises(ConfigError, match=r"'aaaa-11113' could be any of .*-0, .*-1: give more"):
        find_caches(root, ["aaaa-11113"])
    for unknown in ("c", "", "bbbb-1111-7", "bbbb-1111-0-0"):
        with pytest.raises(ConfigError, match="ocr cache ls"):
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


def test_damage_is_found_named_and_repaired_and_only_it_is_made_anew(dataset_folder, root):
    folder = fill(dataset_folder, root)
    assert "6 samples, none damaged" in ocr("verify", "--folder", root)
    store = Store(folder)
    start, slot = store.columns["image"]
    flip_byte(folder / "data", start + 2 * slot + 100)
    flip_byte(folder / "rows", 5 * ROW_BYTES + 40)
    said = ocr("verify", "--folder", root, expect=1)
    assert "2 of 6 samples are damaged" in said
    assert "sample 2" in said
    assert "sample 4: its row is damaged" in said
    assert len(store.ready()) == 6
    assert "repaired" in ocr("verify", short(folder), "--repair", "--folder", root)
    assert store.ready().tolist() == [0, 1, 3, 5]
    ocr("verify", "--folder", root)
    again, plain = open_split(dataset_folder, root), open_split(dataset_folder, root, cache="off")
    assert_same([again[index] for index in range(6)], [plain[index] for index in range(6)])
    assert again.ledger.files("cache_misses") == [again.source.entries[index].filename for index in (2, 4)]
    assert again.ledger.totals()["cache_hits"] == 4
    assert "6 samples, none damaged" in ocr("verify", "--folder", root)


def test_a_damaged_sample_is_named_by_its_file_where_that_is_as_it_was(dataset_folder, root):
    for image in (dataset_folder / "images" / "val").iterdir():
        os.utime(image, (1e9, 1e9))
    time.sleep(2.1)  # A file that changed just now may change again, and is not known by its signature.
    folder = fill(dataset_folder, root)
    flip_byte(folder / "data", 100)
    name = open_split(dataset_folder, root, cache="off").source.entries[0].filename
    assert f"sample 0 ({name}): its bytes" in ocr("verify", "--folder", root, expect=1)


@pytest.mark.parametrize("file", ["data", "rows", "about.json"])
def test_a_file_that_is_cut_short_or_gone_is_named_and_the_cache_removed(synthetic, root, file):
    folder = fill(synthetic, root)
    os.truncate(folder / file, 100)
    assert "damaged" in ocr("ls", "--folder", root)
    assert "damaged" in ocr("stats", "--folder", root)
    said = ocr("verify", "--folder", root, expect=1)
    assert "cannot be used" in said
    assert file in said or file == "about.json"
    (folder / file).unlink()
    ocr("verify", "--folder", root, expect=1)
    ocr("verify", "--repair", "--folder", root)
    assert list_stores(root) == []


def test_a_cache_that_is_removed_while_it_is_checked_is_not_damaged(synthetic, root, monkeypatch):
    from ocr.tools.cache import verify

    fill(synthetic, root)

    def open_too_late(folder: Path) -> Store:
        shutil.rmtree(folder)
        return Store(folder)

    monkeypatch.setattr(verify, "Store", open_too_late)
    assert "none damaged" in ocr("verify", "--folder", root)


def test_a_flipped_bit_in_the_description_is_repaired_and_samples_are_right(synthetic, root):
    about = fill(synthetic, root) / "about.json"
    text = about.read_text()
    assert '"count": 6' in text
    about.write_text(text.replace('"count": 6', '"count": 4'))
    ocr("verify", "--folder", root, expect=1)
    ocr("verify", "--repair", "--folder", root)
    dataset, plain = open_split(synthetic, root), open_split(synthetic, root, cache="off")
    for _ in range(2):
        assert_same([dataset[index] for index in range(6)], [plain[index] for index in range(6)])


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
    assert "--max-bytes='much'" in refused("clear", "--max-bytes", "much", "--folder", root)


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
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    remains = root / f".{'a' * 16}-{'b' * 8}-0.{ended.pid}-1.partial"
    for folder in (remains, root / "mine"):
        folder.mkdir()
        (folder / "about.json").write_text("{}")
    said = ocr("clear", "--yes", "--folder", root)
    assert "that killed processes left" in said
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
    assert "Add --yes" in refused("clear", "--folder", root)
    assert len(list_stores(root)) == 1


@pytest.mark.parametrize(("answer", "left", "status"), [("n", 1, 1), ("", 1, 1), ("y", 0, 0)])
def test_at_a_terminal_the_answer_decides(synthetic, root, answer, left, status):
    fill(synthetic, root)
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    command = [sys.executable, "-m", "ocr.cli", "cache", "clear", "--folder", str(root)]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, cwd=ROOT, timeout=900)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == status, done.stderr
    assert "Remove 1 cache" in done.stdout
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
