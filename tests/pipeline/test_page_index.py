"""The rows of a large folder: the same pages from memory and from the file, and never those of before a change."""

import json
import logging
import os
import pickle
import time

import pytest

from ocr.formats import read_annotations
from ocr.formats.validate import to_polygons
from ocr.geometry.polygons import Polygons
from ocr.pipeline import page_index
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.page_index import Entry, PageRows
from ocr.pipeline.source import open_folder

QUAD = "2,2,20,2,20,12,2,12"
POINTS = [[2, 2], [20, 2.5], [20, 12], [2, 12]]
NATIVE = {
    "images": {
        "a.jpg": {
            "img_w": 40,
            "img_h": 30,
            "words": {
                "1": {"points": POINTS, "transcription": "가 \ud800"},
                "2": {"points": [[0, 0], [9, 0], [9, 9]], "illegibility": True},
            },
        },
        "sub/b.jpg": {"words": {}},
        "c.png": {"words": {"1": {"points": POINTS}}},
    }
}
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 40, "height": 30}, {"id": 2, "file_name": "c.png"}],
    "categories": [{"id": 1, "name": "text"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 5]}],
}
CTW = ",".join(str(number) for side in (range(0, 70, 10), range(60, -10, -10)) for x in side for number in (x, 5))
WRITTEN = {
    "native": ("a.json", json.dumps(NATIVE)),
    "coco": ("a.json", json.dumps(COCO)),
    "paddle": ("a.txt", "a.jpg\t" + json.dumps([{"transcription": "x", "points": POINTS}]) + "\nc.png\t[]\n"),
    "icdar2015": ("labels/gt_a.txt", f"{QUAD},text\n{QUAD},###\n"),
    "icdar2013": ("labels/gt_a.txt", '2, 2, 20, 12, "text"\n'),
    "total_text": ("labels/a.txt", "x: [[2 20 20 2]], y: [[2 2 12 12]], ornt: [u'h'], transcriptions: [u'a']\n"),
    "ctw1500": ("labels/a.txt", f"{CTW},####word\n"),
}


def write_folder(base, format):
    folder = base / "images"
    for name in ("a.jpg", "c.png", "sub/b.jpg"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"image")
    name, text = WRITTEN[format]
    annotation = base / name
    annotation.parent.mkdir(exist_ok=True)
    annotation.write_text(text)
    age(base)
    return folder, annotation.parent if "/" in name else annotation


def age(base):
    """Make everything look as if it had been written an hour ago; the change of that itself is only seconds old."""
    for path in [base, *base.rglob("*")]:
        os.utime(path, (time.time() - 3600,) * 2)


@pytest.fixture(autouse=True)
def files_for_few_pages_and_any_age(monkeypatch):
    monkeypatch.setattr(page_index, "MIN_ROWS", 1)
    monkeypatch.setattr(page_index, "JUST_NOW_NS", -(10**12))


def rows_of(source):
    return [row_of(entry) for entry in source.entries]


def row_of(entry):
    polygons = entry.polygons
    arrays = [(array.dtype, array.tolist()) for array in (polygons.vertices, polygons.offsets, polygons.ignore)]
    return entry.filename, arrays, polygons.texts, entry.claimed_size


@pytest.mark.parametrize("format", WRITTEN)
def test_rows_are_those_of_the_annotation_from_memory_and_from_the_file(tmp_path, format):
    folder, annotation = write_folder(tmp_path / "data", format)
    pages = read_annotations(annotation, format, folder).pages
    expected = [row_of(Entry(name, to_polygons(page, ""), page.size)) for name, page in pages.items()]
    assert any(arrays[0][1] for _, arrays, _, _ in expected)
    in_memory = open_folder(folder, annotation, annotation_format=format)
    made, found = (
        open_folder(folder, annotation, annotation_format=format, index_folder=tmp_path / "index") for _ in range(2)
    )
    assert in_memory.entries.table.path is None
    assert found.entries.table.path is not None
    for source in (in_memory, made, found, pickle.loads(pickle.dumps(found))):
        assert rows_of(source) == expected
        assert list(source.names) == list(pages)
        assert source.names_digest == digest(*pages)
        assert [source.state(index).annotation for index in range(len(source))] == [
            in_memory.state(index).annotation for index in range(len(source))
        ]


def open_indexed(folder, annotation, **settings):
    return open_folder(folder, annotation, index_folder=folder.parent.parent / "index", **settings)


def test_the_file_is_written_once_and_then_used(tmp_path):
    folder, annotation = write_folder(tmp_path / "data", "native")
    path = open_indexed(folder, annotation).entries.table.path
    written = path.stat()
    assert open_indexed(folder, annotation).entries.table.path == path
    # A file that is written again is another one.
    assert path.stat() == written
    annotation.touch()
    open_indexed(folder, annotation)
    assert path.stat() != written


@pytest.mark.parametrize("change", ["annotation", "added", "removed", "in a subfolder", "label", "settings"])
def test_a_change_is_seen_when_the_folder_is_opened_again(tmp_path, change):
    format = "icdar2015" if change == "label" else "native"
    folder, annotation = write_folder(tmp_path / "data", format)
    before = open_indexed(folder, annotation, on_bad_sample="skip")
    settings = {"on_bad_sample": "skip"}
    if change == "annotation":
        pages = {name: page for name, page in NATIVE["images"].items() if name != "c.png"}
        annotation.write_text(json.dumps({"images": pages}))
    elif change == "added":
        (folder / "new.jpg").write_bytes(b"image")
    elif change == "removed":
        (folder / "c.png").unlink()
    elif change == "in a subfolder":
        (folder / "sub" / "b.jpg").rename(folder / "sub" / "d.jpg")
    elif change == "label":
        (annotation / "gt_a.txt").write_text(f"{QUAD},text\n{QUAD},###\n".replace("20", "21"))
    else:
        settings |= {"image_extensions": ["jpg"]}
    after = open_indexed(folder, annotation, **settings)
    fresh = open_folder(folder, annotation, **settings)
    assert rows_of(after) == rows_of(fresh)
    assert after.skipped == fresh.skipped
    assert (rows_of(after) != rows_of(before)) == (change != "added")
    assert after.entries.table.about != before.entries.table.about


def test_pages_without_an_annotation_are_indexed_too(tmp_path):
    folder, _ = write_folder(tmp_path / "data", "native")
    assert list(open_indexed(folder, None).names) == ["a.jpg", "c.png", "sub/b.jpg"]
    (folder / "b.jpg").write_bytes(b"image")
    assert list(open_indexed(folder, None).names) == ["a.jpg", "b.jpg", "c.png", "sub/b.jpg"]
    assert not open_indexed(folder, None).annotated


def test_skipped_pages_and_notes_are_told_by_the_file_too(tmp_path, caplog):
    folder, annotation = write_folder(tmp_path / "data", "icdar2015")
    (annotation / "gt_gone.txt").write_text(f"{QUAD},text\n115,322,###\n")
    for _ in range(2):
        caplog.clear()
        source = open_indexed(folder, annotation, on_bad_sample="skip")
        assert "gt_gone.txt, line 2" in caplog.text
        assert list(source.skipped) == ["gone.jpg"]


def test_a_damaged_file_is_told_and_written_again(tmp_path, caplog):
    folder, annotation = write_folder(tmp_path / "data", "native")
    before = open_indexed(folder, annotation)
    path = before.entries.table.path
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        after = open_indexed(folder, annotation)
    assert str(path) in caplog.text
    assert rows_of(after) == rows_of(open_indexed(folder, annotation))


def test_nothing_is_kept_while_the_files_are_too_young_to_prove_anything(tmp_path, monkeypatch):
    monkeypatch.setattr(page_index, "JUST_NOW_NS", 10**12)
    folder, annotation = write_folder(tmp_path / "data", "native")
    assert open_indexed(folder, annotation).entries.table.path is None
    assert not (tmp_path / "index").exists()


def test_a_file_that_cannot_be_written_is_told_and_rows_stay_in_memory(tmp_path, caplog):
    folder, annotation = write_folder(tmp_path / "data", "native")
    (tmp_path / "index").write_text("a file where the folder should be")
    assert len(open_indexed(folder, annotation)) == 3
    assert str(tmp_path / "index") in caplog.text


def test_rows_can_be_sliced_and_counted_from_the_end():
    rows = PageRows.of([Entry(f"{n}.jpg", Polygons.pack([POINTS] * n)) for n in range(4)])
    assert [entry.filename for entry in rows[1:3]] == ["1.jpg", "2.jpg"]
    assert rows[-1].filename == rows.names[-1] == "3.jpg"
    assert rows.names[::2] == ["0.jpg", "2.jpg"]
    with pytest.raises(IndexError):
        rows[4]


@pytest.mark.parametrize("in_file", [True, False])
@pytest.mark.parametrize("names", ["the same", "others"])
def test_words_that_were_edited_while_the_folder_is_open_are_followed(tmp_path, in_file, names):
    folder, annotation = write_folder(tmp_path / "data", "native")
    source = open_folder(folder, annotation, index_folder=tmp_path / "index" if in_file else None)
    assert source.refresh() == ()
    before = rows_of(source)
    pages = NATIVE["images"] | {"c.png": {"words": {}}}
    if names == "others":
        (folder / "new.jpg").write_bytes(b"image")
        pages = {name: pages[name] for name in ("c.png", "sub/b.jpg")} | {"new.jpg": {}}
    annotation.write_text(json.dumps({"images": pages}))
    assert source.refresh() == [2]
    assert rows_of(source)[:2] == before[:2]
    assert len(source.entries[2].polygons) == 0
    assert list(source.names) == list(NATIVE["images"])
    assert source.refresh() == ()
