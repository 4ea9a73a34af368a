"""Shards read back: every kind of damage is found and named; and the commands as a user types them."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from convert_pages import (
    NAMES,
    convert,
    edit_page,
    edit_word,
    files,
    page_file,
    read_annotation,
    verify,
    write_annotation,
    write_pages,
)
from in_process import run_script
from rejection import rejects
from typer.testing import CliRunner

from ocr.cli import app
from ocr.errors import DataError
from ocr.shards.index import SampleRows, SampleRowsWriter, ShardIndex

FORMS = [{}, {"ready": True}]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_pages(tmp_path / "pages")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def flip(path: Path, offset: int) -> None:
    """One bit, the file as old as it was."""
    before = path.stat()
    with path.open("r+b") as stream:
        stream.seek(offset)
        (value,) = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([value ^ 4]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_sound_shards_are_found_sound_and_left_as_they_are(data, out, form):
    convert(data, out, samples_per_shard=3, **form)
    before = {path: path.stat() for path in out.iterdir()}
    found = verify(data, out)
    assert (found.problems, found.pages, found.left_out) == ((), 7, {})
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == {p: s.st_mtime_ns for p, s in before.items()}


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_flipped_bit_anywhere_is_found(data, out, form):
    index = convert(data, out, samples_per_shard=4, **form).index
    whole = files(out)
    path = out / index.shards[1].name
    offsets = [start + size // 2 for start, size in index.samples[5].members.values()]
    for offset in (*offsets, 20, len(whole[path.name]) - 1):
        flip(path, offset)
        assert {problem.file for problem in verify(data, out).problems} == {path.name}
        path.write_bytes(whole[path.name])
    assert not verify(data, out).problems


def truncate(out: Path, index: ShardIndex) -> None:
    os.truncate(out / "val-000001.tar", index.shards[1].bytes - 3000)


def empty(out: Path, index: ShardIndex) -> None:
    os.truncate(out / "val-000001.tar", 0)


def remove(out: Path, index: ShardIndex) -> None:
    (out / "val-000001.tar").unlink()


def swap(out: Path, index: ShardIndex) -> None:
    first, second = files(out)["val-000000.tar"], files(out)["val-000001.tar"]
    (out / "val-000000.tar").write_bytes(second)
    (out / "val-000001.tar").write_bytes(first)


def add(out: Path, index: ShardIndex) -> None:
    shutil.copy(out / "val-000001.tar", out / "val-000007.tar")


def forget_one(out: Path, index: ShardIndex) -> None:
    writer = SampleRowsWriter()
    for sample in index.samples:
        if sample.key != "00000004":
            writer.append(sample)
    kept = replace(index, samples=SampleRows.of(writer.table({})))
    (out / "val-index.json").write_text("".join(kept.json_parts()))


def tear_index(out: Path, index: ShardIndex) -> None:
    os.truncate(out / "val-index.json", 100)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (truncate, [r"val-000001\.tar  \d+ \d+ bytes, and the index says", r"val-000001\.tar 00000005 \d+ "]),
        (empty, [r"val-000001\.tar  0 0 bytes", r"val-000001\.tar 00000003 512 not at its offset"]),
        (remove, [r"val-000001\.tar  None cannot be read \(No such file"]),
        (
            swap,
            [r"val-00000[01]\.tar  ", r"val-000000\.tar 00000000 512 not .*no such key", r".*1\.tar 00000003 512 not"],
        ),
        (add, [r"val-000007\.tar  None a shard that val-index\.json does not list"]),
        (
            forget_one,
            [
                r"val-index\.json 00000004 None .*ü\.jpg of the source is in no shard",
                r"val-000001\.tar  None the index lists 2 samples and counts 3",
            ],
        ),
        (tear_index, [r"val-index\.json  None .*not an index of shards"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_damage_of_files_is_named_and_repaired_by_converting(data, out, form, damage, named):
    index = convert(data, out, samples_per_shard=3, **form).index
    whole = files(out)
    damage(out, index)
    damaged = files(out)
    problems = [" ".join(map(str, problem)) for problem in verify(data, out).problems]
    assert all(any(re.match(pattern, problem) for problem in problems) for pattern in named), problems
    assert files(out) == damaged
    convert(data, out, samples_per_shard=3, overwrite=True, **form)
    assert files(out) == whole


def drop_page(data: Path, number: int) -> None:
    pages = read_annotation(data)
    del pages[NAMES[number]]
    write_annotation(data, pages)


def remove_page(data: Path, number: int) -> None:
    """Without a trace in the annotation, which is read when the dataset is opened."""
    page_file(data, number).write_bytes(b"")


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(
    ("change", "key", "what"),
    [
        (edit_page, "00000004", r"image .*ü\.jpg"),
        (edit_word, "00000004", r"annotation of .*ü\.jpg"),
        (drop_page, "00000006", "page 00000006"),
        (remove_page, "00000004", r"image .*ü\.jpg"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_source_that_changed_is_named_by_its_page(data, out, form, change: Callable[[Path, int], None], key, what):
    convert(data, out, samples_per_shard=3, **form)
    change(data, 4)
    problems = verify(data, out).problems
    first = next(problem for problem in problems if re.search(rf"source.* {what}", problem.what))
    assert first.key == key


def test_ready_samples_of_another_size_are_not_those_of_the_source(data, out):
    convert(data, out, ready=True)
    assert any("another --size" in problem.what for problem in verify(data, out, size=32).problems)


def test_without_an_index_there_is_nothing_to_verify(data, out):
    with rejects(DataError, path=out / "val-index.json"):
        verify(data, out)


def test_the_command_converts_verifies_and_says_so_with_its_exit_status(data, out):
    write_pages(data, ("a.jpg", "b.jpg"), split="train")

    def ocr(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["convert", str(data), str(out), *map(str, arguments)])
        return done.exit_code, done.output

    status, told = ocr("--ready", "--size", 64, "--samples-per-shard", 3, "--verify")
    assert status == 0
    assert "writing shards" in told
    assert "verifying" in told
    assert sorted(files(out)) == [
        *("train-000000.tar", "train-index.json"),
        *(f"val-{number:06d}.tar" for number in range(3)),
        "val-index.json",
    ]
    before = files(out)
    status, told = ocr("--ready", "--size", 64, "--samples-per-shard", 3)
    assert (status, told.count("nothing to do")) == (0, 2)
    edit_page(data, 2)
    status, told = ocr("--split", "val", "--size", 64, "--verify")
    assert status == 1
    assert "val-000000.tar 00000002 at offset" in told
    assert files(out) == before
    assert ocr("--ready", "--size", 64, "--samples-per-shard", 3)[0] == 0
    assert ocr("--size", 64, "--verify")[0] == 0


def test_the_script_writes_the_ready_samples_of_the_validation(data, out):
    settings = [f"dataset_base_path={data}", f"out={out}", "splits=[val]", "ready=true", "samples_per_shard=3"]
    settings += ["transforms.size=64", "transforms.letterbox.shape=square"]
    done = run_script("scripts/convert_to_webdataset.py", data, *settings)
    assert done.status == 0, done.out + done.err
    convert(data, out.parent / "expected", ready=True, samples_per_shard=3)
    assert files(out) == files(out.parent / "expected")
