"""The rows of a shard index: the same samples from memory and from the kept file, in any order and selection."""

import io
import json
import os
import pickle
import time

import pytest
from rejection import rejects

from ocr.errors import ConfigError
from ocr.pipeline import kept_table
from ocr.pipeline.fingerprint import digest
from ocr.shards.index import RAW, Shard, ShardIndex, end_tar, shard_name, write_member
from ocr.shards.open import open_shards
from ocr.shards.sample_rows import SampleRows, StoredSample
from ocr.shards.storage import Storage


def sample(number, shard, key=None, name=None):
    members = {"jpg": (512 * number, number), "json": (7, 9)}
    return StoredSample(key or f"{number:08d}", name or f"ä{number}.jpg", shard, members, f"{number:032x}", "bb")


SHUFFLED = [sample(number, number % 3) for number in (4, 0, 3, 1, 5, 2)]


def test_rows_are_the_samples_they_were_made_of():
    rows = SampleRows.of(SHUFFLED)
    assert list(rows) == SHUFFLED == rows[:]
    assert rows[-1] == SHUFFLED[-1]
    assert list(rows.names) == [stored.filename for stored in SHUFFLED]
    assert rows.names_digest == digest(*rows.names)
    assert rows.shard_of.tolist() == [stored.shard for stored in SHUFFLED]
    with pytest.raises(IndexError):
        rows[6]


def test_own_keys_give_the_order_of_the_source_and_other_keys_stay_as_they_are():
    rows = SampleRows.of(SHUFFLED)
    assert rows.has_own_keys
    in_order = rows.in_order_of_keys()
    assert list(in_order) == sorted(SHUFFLED, key=lambda stored: stored.key)
    assert in_order.names_digest == digest(*in_order.names) != rows.names_digest
    assert [in_order.number(index) for index in range(6)] == list(range(6))
    assert pickle.loads(pickle.dumps(in_order)) == in_order
    for key in ("page-1", "1", "000000001", "0000000²"):
        assert not SampleRows.of([*SHUFFLED, sample(9, 0, key)]).has_own_keys


def test_some_shards_are_renumbered_in_the_order_in_which_they_are_given():
    rows = SampleRows.of(SHUFFLED).of_shards([2, 0])
    assert [(stored.filename, stored.shard) for stored in rows] == [
        (stored.filename, {2: 0, 0: 1}[stored.shard]) for stored in SHUFFLED if stored.shard != 1
    ]
    assert rows.shard_of.tolist() == [stored.shard for stored in rows]
    assert rows.in_order_of_keys().shard_of.tolist() == [stored.shard for stored in rows.in_order_of_keys()]


def test_samples_of_a_batch_know_their_position():
    rows = SampleRows.of(sample(0, 0, key) for key in ("00000000", "00000000", "00000000", "00000003", "00000003"))
    assert [rows.position(index) for index in range(5)] == [0, 1, 2, 0, 1]


def write_shards(folder, names=("a", "b", "c", "d")):
    """Two shards of two pages."""
    samples, shards = [], []
    for shard in range(2):
        stream = io.BytesIO()
        for number in (2 * shard, 2 * shard + 1):
            places = {
                extension: write_member(stream, f"{number:08d}.{extension}", data)
                for extension, data in (("jpg", b"image"), ("json", b"{}"))
            }
            samples.append(StoredSample(f"{number:08d}", f"{names[number]}.jpg", shard, places, "", ""))
        end_tar(stream)
        (folder / shard_name("val", shard)).write_bytes(stream.getvalue())
        shards.append(Shard(shard_name("val", shard), len(stream.getvalue()), "", 2))
    index = ShardIndex("val", RAW, True, "cc", "", tuple(shards), SampleRows.of(samples))
    (folder / "val-index.json").write_text("".join(index.json_parts()))
    os.utime(folder / "val-index.json", (time.time() - 3600,) * 2)
    return [str(folder / shard_name("val", shard)) for shard in range(2)]


@pytest.fixture
def files_for_few_rows_of_any_age(monkeypatch):
    monkeypatch.setattr(kept_table, "MIN_ROWS", 1)
    monkeypatch.setattr(kept_table, "JUST_NOW_NS", -(10**12))


@pytest.mark.usefixtures("files_for_few_rows_of_any_age")
def test_a_kept_index_gives_the_same_pages_and_is_written_once(tmp_path):
    urls, storage = write_shards(tmp_path), Storage(tmp_path / "copies")
    plain = open_shards(urls, storage)
    kept = [open_shards(urls, storage, tmp_path / "pages") for _ in range(2)]
    assert plain.index.samples.table.path is None
    (path,) = (tmp_path / "pages").iterdir()
    for source in (*kept, pickle.loads(pickle.dumps(kept[1]))):
        assert source.index == plain.index
        assert source.index.samples.table.path == path
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
    path = open_shards(urls, storage, tmp_path / "pages").index.samples.table.path
    write_shards(tmp_path, ("e", "f", "g", "h"))
    assert list(open_shards(urls, storage, tmp_path / "pages").names) == ["e.jpg", "f.jpg", "g.jpg", "h.jpg"]
    path.write_bytes(path.read_bytes()[:-1])
    assert list(open_shards(urls, storage, tmp_path / "pages").names) == ["e.jpg", "f.jpg", "g.jpg", "h.jpg"]
    assert str(path) in caplog.text


def test_the_text_of_an_index_is_the_one_of_a_whole_json_document():
    shards = (Shard("val-000000.tar", 10, "dd", 1),)
    for samples in ([], SHUFFLED):
        index = ShardIndex("val", RAW, True, "cc", "", shards, SampleRows.of(samples))
        text = "".join(index.json_parts())
        document = json.loads(text)
        assert text == json.dumps(document, separators=(",", ":")) + "\n"
        fields = ["format", "split", "kind", "annotated", "source", "stages", "shards", "samples", "digest"]
        assert list(document) == fields
        assert document["samples"] == [json.loads(json.dumps(stored.to_row())) for stored in samples]


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
            assert source.index.samples.table.path is not None
    memory.rm("/kept-index", recursive=True)
