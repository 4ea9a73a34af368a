"""Any format becomes the native JSON with the same words."""

import json

import pytest
from rejection import rejects

from ocr.errors import AnnotationError, ConfigError
from ocr.formats import read_annotations
from ocr.tools.convert_annotations import ConversionSummary, convert_annotations

QUADS = ["10,10,90,10,90,30,10,30", "10,40,60,40,60,60,10,60"]
POINTS = [[[10, 10], [90, 10], [90, 30], [10, 30]], [[10, 40], [60, 40], [60, 60], [10, 60]]]


def write_source(folder, format):
    """Two words, the second one illegible."""
    if format == "paddle":
        texts = zip(("Total, 5", "###"), POINTS, strict=True)
        entries = [{"transcription": text, "points": points} for text, points in texts]
        return write(folder / "Label.txt", f"./a.jpg\t{json.dumps(entries)}\n")
    assert format == "icdar2015"
    write(folder / "labels" / "gt_a.txt", f"{QUADS[0]},Total, 5\n{QUADS[1]},###\n")
    return folder / "labels"


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("format", ["icdar2015", "paddle"])
def test_a_format_converts_to_the_native_json_with_the_same_words(tmp_path, format):
    target = tmp_path / "out" / "native.json"
    summary = convert_annotations(write_source(tmp_path, format), target)
    assert summary == ConversionSummary(format, pages=1, words=2, ignored=1)
    found = read_annotations(target)
    assert found.format == "native"
    words = found.pages["a.jpg"].words
    assert [word.points for word in words] == POINTS
    assert [(word.text, word.ignore) for word in words] == [("Total, 5", False), ("###", True)]


def test_the_image_folder_gives_the_names(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").touch()
    convert_annotations(write_source(tmp_path, "icdar2015"), tmp_path / "out.json", "icdar2015", tmp_path / "images")
    assert list(read_annotations(tmp_path / "out.json").pages) == ["a.png"]


def test_pages_without_an_image_in_the_folder_are_counted(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "other.jpg").touch()
    source = write_source(tmp_path, "paddle")
    assert convert_annotations(source, tmp_path / "1.json", image_path=tmp_path / "images").missing == 1
    (tmp_path / "images" / "a.jpg").touch()
    assert convert_annotations(source, tmp_path / "2.json", image_path=tmp_path / "images").missing == 0


def test_without_an_image_folder_subfolders_are_kept(tmp_path):
    source = write(tmp_path / "Label.txt", "sub/a.jpg\t[]\nother/a.jpg\t[]\n")
    assert convert_annotations(source, tmp_path / "out.json").missing == 0
    assert list(read_annotations(tmp_path / "out.json").pages) == ["sub/a.jpg", "other/a.jpg"]


def test_an_existing_target_is_kept_unless_overwriting_is_allowed(tmp_path):
    source, target = write_source(tmp_path, "icdar2015"), tmp_path / "out.json"
    target.write_text("precious")
    with rejects(ConfigError, setting="target", value=target, path=target):
        convert_annotations(source, target)
    assert target.read_text() == "precious"
    convert_annotations(source, target, overwrite=True)
    assert len(read_annotations(target).pages) == 1


def test_the_source_is_never_the_target(tmp_path):
    source = write(tmp_path / "a.json", json.dumps({"images": {}}))
    (tmp_path / "link.json").symlink_to(source)
    before = source.read_bytes()
    for target in (source, tmp_path / "link.json", tmp_path / "labels" / ".." / "a.json"):
        (tmp_path / "labels").mkdir(exist_ok=True)
        with rejects(ConfigError, setting="target", value=target):
            convert_annotations(source, target, overwrite=True)
    assert source.read_bytes() == before


def test_a_target_must_be_a_json_file(tmp_path):
    source = write_source(tmp_path, "icdar2015")
    with rejects(ConfigError, setting="target", path=source / "all.txt"):
        convert_annotations(source, source / "all.txt")
    (tmp_path / "dir.json").mkdir()
    with rejects(ConfigError, setting="target", path=tmp_path / "dir.json"):
        convert_annotations(source, tmp_path / "dir.json", overwrite=True)


def test_a_source_that_cannot_be_read_leaves_no_target(tmp_path):
    with rejects(AnnotationError, path=tmp_path / "gone"):
        convert_annotations(tmp_path / "gone", tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_what_was_skipped_or_left_out_is_in_the_summary(tmp_path):
    labels = write(tmp_path / "labels" / "a.txt", "0,0,9,0,9,5,a\n115,322,###\n").parent
    done = convert_annotations(labels, tmp_path / "1.json")
    (note,) = done.notes
    assert (done.words, note.split(":")[0]) == (1, f"{labels / 'a.txt'}, line 2")
    root = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "text"}, {"id": 2, "name": "figure"}],
        "annotations": [{"id": at, "image_id": 1, "category_id": at, "bbox": [0, 0, 9, 5]} for at in (1, 2)],
    }
    coco = write(tmp_path / "coco.json", json.dumps(root))
    assert "1 of figure" in convert_annotations(coco, tmp_path / "2.json").notes[0]
    assert convert_annotations(coco, tmp_path / "3.json", categories=["text", "figure"]).words == 2
