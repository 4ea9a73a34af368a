"""PaddleOCR label files."""

import json

import pytest
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations

SQUARE = [[0, 0], [9, 0], [9, 5], [0, 5]]


def write_label(path, *lines):
    text = "".join(f"{name}\t{json.dumps(entries, ensure_ascii=False)}\r\n" for name, entries in lines)
    path.write_bytes(("\ufeff" + text).encode())
    return path


def test_words_and_their_ignore_marks_are_read(tmp_path):
    entries = [
        {"transcription": "Total, 合計", "points": SQUARE, "difficult": False},
        {"transcription": "###", "points": SQUARE},
        {"transcription": "*", "points": SQUARE},
        {"transcription": "far", "points": SQUARE, "difficult": True},
    ]
    found = read_annotations(write_label(tmp_path / "Label.txt", ("a.jpg", entries), ("images/b.jpg", [])))
    assert found.format == "paddle"
    words = found.pages["a.jpg"].words
    assert [word.ignore for word in words] == [False, True, True, True]
    assert (words[0].key, words[0].text, words[0].points) == ("0001", "Total, 合計", SQUARE)
    assert found.pages["images/b.jpg"].words == ()


def test_the_page_is_named_by_the_path_that_exists_in_the_image_folder(tmp_path):
    (tmp_path / "images" / "train").mkdir(parents=True)
    (tmp_path / "images" / "train" / "a.jpg").touch()
    (tmp_path / "images" / "b.jpg").touch()
    names = ["train/a.jpg", "C:\\data\\images\\b.jpg", "/etc/passwd", "../../gone/c.jpg"]
    label = write_label(tmp_path / "Label.txt", *[(name, []) for name in names])
    pages = read_annotations(label, "paddle", tmp_path / "images").pages
    assert list(pages) == ["train/a.jpg", "b.jpg", "passwd", "c.jpg"]


@pytest.mark.parametrize("line", ["a.jpg", "a.jpg\t[{", 'a.jpg\t{"points": []}', "a.jpg [] "])
def test_a_line_without_a_json_list_is_named(tmp_path, line):
    path = tmp_path / "Label.txt"
    path.write_text(f"b.jpg\t[]\n{line}\n")
    with rejects(AnnotationError, setting=None, value=line.strip(), path=path) as caught:
        read_annotations(path)
    assert str(caught.value).startswith(f"{path}, line 2:")


def test_an_entry_that_is_not_an_object_is_named(tmp_path):
    path = write_label(tmp_path / "Label.txt", ("a.jpg", [{"points": SQUARE}, "hello"]))
    with rejects(AnnotationError, value="hello", path=path) as caught:
        read_annotations(path)
    assert "line 1: a.jpg: word 0002" in str(caught.value)


def test_the_same_page_twice_asks_for_the_image_folder(tmp_path):
    path = write_label(tmp_path / "Label.txt", ("/x/a.jpg", []), ("../a.jpg", []))
    with rejects(AnnotationError, value="a.jpg", path=path) as caught:
        read_annotations(path)
    assert "line 2:" in str(caught.value)
    assert "image_path" in str(caught.value)


def test_a_line_that_is_repeated_byte_by_byte_is_skipped_and_named(tmp_path):
    path = write_label(
        tmp_path / "Label.txt", ("a.jpg", [{"points": SQUARE}]), ("b.jpg", []), ("a.jpg", [{"points": SQUARE}])
    )
    found = read_annotations(path)
    assert [len(page.words) for page in found.pages.values()] == [1, 0]
    (note,) = found.notes
    assert note.startswith(f"{path}, line 3:")
    assert "line 1 (a.jpg)" in note


def test_all_lines_that_cannot_be_read_are_listed_at_once(tmp_path):
    path = tmp_path / "Label.txt"
    path.write_text("a.jpg\t[]\nb.jpg\na.jpg\t[{}]\nc.jpg\t[5]\n")
    with rejects(AnnotationError, value="b.jpg", path=path) as caught:
        read_annotations(path, "paddle")
    messages = str(caught.value).split("\n")
    assert [message.removeprefix(str(path)).split(":")[0] for message in messages] == [
        ", line 2",
        ", line 3",
        ", line 4",
    ]
    assert "line 1" in messages[1]
