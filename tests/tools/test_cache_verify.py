"""`ocr cache verify`: damage is found, named and repaired."""

import os
import shutil
import time
from pathlib import Path

import pytest
from cache_commands import fill, flip_byte, ocr, open_split, short
from sameness import assert_same

from ocr.cache.folder import list_stores
from ocr.cache.row_format import ROW_BYTES
from ocr.cache.store import Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


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
