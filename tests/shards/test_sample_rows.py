"""The rows of a shard index: the same samples from memory and from the kept file, in any order and selection."""

import os
import pickle
import time

import numpy as np
import pytest
from rejection import rejects

from ocr.errors import ConfigError
from ocr.pipeline import page_index
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.sample import NO_POLYGONS
from ocr.pipeline.source import annotation_digest
from ocr.row_table import RowTable
from ocr.shards.index import RAW, SampleRows, SampleRowsWriter, Shard, ShardIndex, StoredSample, shard_name
from ocr.shards.source import open_shards
from ocr.shards.storage import Storage
from ocr.shards.writer import TarWriter


def sample(number, shard, key=None, name=None):
    members = {"jpg": (512 * number, number), "json": (7, 9)}
    return StoredSample(key or f"{number:08d}", name or f"ä{number}.jpg", shard, members, f"{number:032x}", "bb")


def table_of(samples: list[StoredSample], shards: int = 3) -> RowTable:
    writer = SampleRowsWriter()
    for one in samples:
        writer.append(one)
    return writer.table({"shards": [None] * shards})


SAMPLES = [sample(number, number % 3) for number in (0, 1, 2, 4, 5, 7)]


def test_rows_are_the_samples_they_were_made_of():
    rows = SampleRows.of(table_of(SAMPLES))
    assert list(rows) == SAMPLES == rows[:]
    assert rows[-1] == SAMPLES[-1]
    assert list(rows.names) == [stored.filename for stored in SAMPLES]
    assert rows.names_digest == digest(*rows.names)
    assert rows.shard_of.tolist() == [stored.shard for stored in SAMPLES]
    assert list(pickle.loads(pickle.dumps(rows))) == SAMPLES
    with pytest.raises(IndexError):
        rows[6]


def test_rows_can_be_in_another_order():
    rows = SampleRows.of(table_of(SAMPLES), np.array([3, 0]))
    assert list(rows) == [SAMPLES[3], SAMPLES[0]]
    assert rows.names_digest == digest(SAMPLES[3].filename, SAMPLES[0].filename)


def test_the_number_of_a_sample_is_its_key_if_keys_are_numbers_in_order():
    rows = SampleRows.of(table_of(SAMPLES))
    assert [rows.number(index) for index in range(6)] == [0, 1, 2, 4, 5, 7]
    for samples in ([*SAMPLES, sample(9, 0, key)] for key in ("page-1", "1", "000000001", "0000000²", "00000003")):
        rows = SampleRows.of(table_of(samples))
        assert [rows.number(index) for index in range(7)] == list(range(7))


def test_some_shards_are_renumbered_in_the_order_in_which_they_are_given():
    rows = SampleRows.of_shards([(table_of(SAMPLES), {2: 0, 0: 1})])
    assert [(stored.filename, stored.shard) for stored in rows] == [
        (stored.filename, {2: 0, 0: 1}[stored.shard]) for stored in SAMPLES if stored.shard != 1
    ]
    assert rows.shard_of.tolist() == [stored.shard for stored in rows]


def test_samples_of_several_tables_follow_each_other_and_have_different_numbers():
    rows = SampleRows.of_shards([(table_of(SAMPLES), {1: 0}), (table_of(SAMPLES), {0: 1, 1: 2, 2: 3})])
    assert [stored.key for stored in rows] == ["00000001", "00000004", "00000007", *(one.key for one in SAMPLES)]
    assert rows.shard_of.tolist() == [0, 0, 0, *(one.shard + 1 for one in SAMPLES)]
    assert [rows.number(index) for index in range(9)] == [1, 4, 7, *(8 + int(one.key) for one in SAMPLES)]
    assert list(rows.names) == [stored.filename for stored in rows]


def write_shards(folder, names=("a", "b", "c", "d")):
    """Two shards of two pages."""
    writer, shards = SampleRowsWriter(), []
    for shard in range(2):
        with (folder / shard_name("val", shard)).open("wb") as stream:
            tar = TarWriter(stream)
            for number in (2 * shard, 2 * shard + 1):
                places, key = tar.add(f"{number:08d}", {"jpg": b"image", "json": b"{}"}), f"{number:08d}"
                annotation = annotation_digest(f"{names[number]}.jpg", NO_POLYGONS, None, True).hex()
                writer.append(StoredSample(key, f"{names[number]}.jpg", shard, places, "", annotation))
            sha256 = tar.end()
        shards.append(Shard(shard_name("val", shard), tar.size, sha256, 2))
    index = ShardIndex("val", RAW, True, "", tuple(shards), SampleRows.of(writer.table({})))
    (folder / "val-index.json").write_text("".join(index.json_parts()))
    os.utime(folder / "val-index.json", (time.time() - 3600,) * 2)
    return [str(folder / shard_name("val", shard)) for shard in range(2)]


@pytest.fixture
def files_for_few_rows_of_any_age(monkeypatch):
    monkeypatch.setattr(page_index, "MIN_ROWS", 1)
    monkeypatch.setattr(page_index, "JUST_NOW_NS", -(10**12))


@pytest.mark.usefixtures("files_for_few_rows_of_any_age")
def test_a_kept_index_gives_the_same_pages_and_is_written_once(tmp_path):
    urls, storage = write_shards(tmp_path), Storage(tmp_path / "copies")
    plain = open_shards(urls, storage)
    kept = [open_shards(urls, storage, tmp_path / "pages") for _ in range(2)]
    (path,) = (tmp_path / "pages").iterdir()
    for source in (*kept, pickle.loads(pickle.dumps(kept[1]))):
        assert list(source.index.samples) == list(plain.index.samples)
        assert source.index.shards == plain.index.shards
        assert source.names_digest == plain.names_digest
        assert source.read(3).filename == "d.jpg"
    written = path.stat()
    assert list(open_shards(urls[1:], storage, tmp_path / "pages").names) == ["c.jpg", "d.jpg"]
    assert path.stat() == written
    missing = str(tmp_path / "val-000007.tar")
    with rejects(ConfigError, setting="tar_path", value=missing, path=tmp_path / "val-index.json"):
        open_shards([missing], storage, tmp_path / "pages")


@pytest.mark.usefixtures("files_for_few_rows_of_any_age")
def test_another_index_or_a_damaged_file_is_not_taken_for_the_kept_one(tmp_path, caplog):
    urls, storage = write_shards(tmp_path), Storage(tmp_path / "copies")
    open_shards(urls, storage, tmp_path / "pages")
    (path,) = (tmp_path / "pages").iterdir()
    write_shards(tmp_path, ("e", "f", "g", "h"))
    assert list(open_shards(urls, storage, tmp_path / "pages").names) == ["e.jpg", "f.jpg", "g.jpg", "h.jpg"]
    path.write_bytes(path.read_bytes()[:-1])
    assert list(open_shards(urls, storage, tmp_path / "pages").names) == ["e.jpg", "f.jpg", "g.jpg", "h.jpg"]
    assert str(path) in caplog.text


@pytest.mark.usefixtures("files_for_few_rows_of_any_age")
def test_another_version_of_a_remote_index_is_not_taken_for_the_kept_one(tmp_path):
    memory = pytest.importorskip("fsspec").filesystem("memory")
    storage, pages = Storage(tmp_path / "copies"), tmp_path / "pages"
    urls = [f"memory://kept-index/{shard_name('val', shard)}" for shard in range(2)]
    for names in (("a", "b", "c", "d"), ("e", "f", "g", "h")):
        write_shards(tmp_path, names)
        for path in (tmp_path / "val-index.json", *tmp_path.glob("*.tar")):
            memory.pipe_file(f"/kept-index/{path.name}", path.read_bytes())
        for _ in range(2):
            source = open_shards(urls, storage, pages)
            assert list(source.names) == [f"{name}.jpg" for name in names]
            assert list(pages.iterdir())
    memory.rm("/kept-index", recursive=True)
