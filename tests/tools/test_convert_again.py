"""A second conversion into the same folder writes what changed, and nothing else."""

import os
import shutil
from pathlib import Path

import pytest
from convert_pages import convert, edit_page, edit_word, files, open_pages, page_file, write_pages
from rejection import rejects

from ocr.errors import ConfigError, DataError, OutputError
from ocr.pipeline import page_index
from ocr.tools.convert.convert import only_one
from ocr.tools.convert.plan import make_plan
from ocr.tools.convert.report import convert as convert_splits
from ocr.tools.convert.settings import ConvertSettings
from ocr.tools.convert.shard_receipt import done_file, is_untouched, read_done, write_shard


def test_a_second_run_does_nothing(tmp_path):
    data, out = write_pages(tmp_path / "pages"), tmp_path / "out"
    assert convert(data, out, samples_per_shard=3).written == 3
    before = {path.name: path.stat() for path in out.iterdir()}
    again = convert(data, out, samples_per_shard=3)
    assert (again.written, again.kept) == (0, 3)
    after = {path.name: path.stat() for path in out.iterdir()}
    assert {name: (s.st_ino, s.st_mtime_ns) for name, s in after.items()} == {
        name: (s.st_ino, s.st_mtime_ns) for name, s in before.items()
    }


def flip_last_bit(data: Path, number: int) -> None:
    shard = data.parent / "out" / "val-000001.tar"
    content = bytearray(shard.read_bytes())
    content[600] ^= 1
    shard.write_bytes(content)


@pytest.mark.parametrize(
    ("form", "change"),
    [
        *(({}, change) for change in (edit_page, edit_word, flip_last_bit)),
        ({"ready": True}, edit_page),
        ({"ready": True}, edit_word),
        ({"ready": True}, flip_last_bit),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_only_the_shard_of_what_changed_is_rewritten(tmp_path, form, change):
    data, out = write_pages(tmp_path / "pages"), tmp_path / "out"
    settings = form | {"samples_per_shard": 3}
    convert(data, out, **settings)
    change(data, 4)
    done = convert(data, out, **settings)
    assert (done.written, done.kept) == (1, 2)
    convert(data, tmp_path / "fresh", **settings)
    assert files(out) == files(tmp_path / "fresh")


def test_other_settings_give_other_shards(tmp_path):
    data, out = write_pages(tmp_path / "pages"), tmp_path / "out"
    for form in ({}, {"ready": True}, {"ready": True, "size": 32}, {"shuffle_seed": 1}, {"shuffle_seed": 2}, {}):
        assert convert(data, out, overwrite=True, **form).written == 1
        shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
        convert(data, tmp_path / "fresh", **form)
        assert files(out) == files(tmp_path / "fresh")


def test_shards_that_are_needed_no_longer_are_named_and_removed_only_when_told(tmp_path):
    data, out = write_pages(tmp_path / "pages"), tmp_path / "out"
    convert(data, out, samples_per_shard=2)
    (out / "validation-000009.tar").write_bytes(b"of another split")
    before = files(out)
    with rejects(ConfigError, setting="overwrite", value=2, path=out) as caught:
        convert(data, out, samples_per_shard=4)
    assert "val-000002.tar, val-000003.tar" in str(caught.value)
    assert files(out) == before
    convert(data, out, samples_per_shard=4, overwrite=True)
    assert sorted(files(out)) == ["val-000000.tar", "val-000001.tar", "val-index.json", "validation-000009.tar"]


def test_a_shard_is_known_by_its_files_as_long_as_nobody_touches_them(tmp_path, monkeypatch):
    monkeypatch.setattr(page_index, "JUST_NOW_NS", 0)
    data, out, settings = write_pages(tmp_path / "pages"), tmp_path / "out", ConvertSettings(samples_per_shard=3)
    page_file(data, 6).write_bytes(b"no image")
    with rejects(DataError, value=b"no image", path=page_file(data, 6)):
        convert(data, out, samples_per_shard=3, workers=1)

    def untouched() -> list[bool]:
        tasks = make_plan(open_pages(data), "val", out, settings).tasks()
        finished = [read_done(task.path) for task in tasks]
        return [one is not None and is_untouched(task, one) for task, one in zip(tasks, finished, strict=True)]

    assert untouched() == [True, True, False]
    edit_page(data, 1)
    assert untouched() == [False, True, False]
    os.utime(out / "val-000001.tar")
    assert untouched() == [False, False, False]
    assert convert(data, out, samples_per_shard=3, on_bad_sample="skip").kept == 1


def test_two_conversions_into_one_folder_do_not_run_at_once(tmp_path):
    data, out = write_pages(tmp_path / "pages"), tmp_path / "out"
    with only_one(out), rejects(OutputError, setting=None, path=out):
        convert(data, out)
    convert(data, out)


def test_what_cannot_be_a_folder_is_refused(tmp_path):
    data = write_pages(tmp_path / "pages")
    (tmp_path / "file").touch()
    with rejects(OutputError, setting="out", path=tmp_path / "file"):
        convert(data, tmp_path / "file")
    for out in (tmp_path / "file", "s3://bucket/shards"):
        with rejects(ConfigError, setting="out", value=out):
            convert_splits({"val": open_pages(data)}, out, ConvertSettings())


def test_a_shard_is_on_the_disk_before_its_receipt_vouches_for_it(tmp_path, monkeypatch):
    data, settings = write_pages(tmp_path / "pages"), ConvertSettings(samples_per_shard=3)
    (task, *_) = make_plan(open_pages(data), "val", tmp_path / "out", settings).tasks()
    flushed: dict[int, int] = {}
    flush = os.fsync

    def note(descriptor: int) -> None:
        if not done_file(task.path).exists():
            flushed[os.fstat(descriptor).st_ino] = os.fstat(descriptor).st_size
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    receipt = write_shard(task)
    assert done_file(task.path).exists()
    assert flushed[task.path.stat().st_ino] == receipt.shard.bytes == task.path.stat().st_size
