"""The native JSON: reading, writing, and everything that may be broken in it."""

import gc
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import Annotations, Page, Word, read_annotations, write_native

SQUARE = [[0, 0], [9, 0], [9, 5], [0, 5]]


def write_json(path, root):
    path.write_text(root if isinstance(root, str) else json.dumps(root))
    return path


def test_everything_a_word_and_a_page_carry_is_read(tmp_path):
    word = {
        "points": SQUARE,
        "transcription": "Tel, 1",
        "illegibility": True,
        "orientation": "Vertical",
        "language": "ko",
    }
    page = {"img_w": 40, "img_h": 30, "words": {"0007": word, "0008": {"points": SQUARE, "illegibility": None}}}
    found = read_annotations(write_json(tmp_path / "val.json", {"images": {"a.jpg": page}}))
    assert found.format == "native"
    assert found.path == str(tmp_path / "val.json")
    assert found.pages["a.jpg"] == Page(
        (Word("0007", SQUARE, "Tel, 1", True, "ko", "Vertical"), Word("0008", SQUARE)), (40, 30)
    )


@pytest.mark.parametrize(
    "page", [None, {}, {"words": None}, {"words": {}}, {"words": []}, {"img_w": None, "words": {}}]
)
def test_a_page_may_have_no_words(tmp_path, page):
    assert read_annotations(write_json(tmp_path / "a.json", {"images": {"a.jpg": page}})).pages == {"a.jpg": Page()}


WORD = '{"points": [[0, 0], [9, 0], [9, 5]], "transcription": "points"}'


@pytest.mark.parametrize(
    ("pages", "culprit"),
    [
        (f'"a.jpg": {{"words": {{"1": {WORD}}}}}, "a.jpg": {{"words": {{}}}}', "a.jpg"),
        (f'"a.jpg": {{"words": {{"1": {WORD}, "2": {WORD}, "1": {WORD}}}}}', "1"),
        (f'"a.jpg": {{"words": {{"1": {WORD}}}, "words": {{"2": {WORD}}}}}', "words"),
    ],
)
def test_a_page_or_word_that_is_there_twice_is_refused_not_lost(tmp_path, pages, culprit):
    path = write_json(tmp_path / "val.json", f'{{"images": {{{pages}}}}}')
    with rejects(AnnotationError, setting=None, value=culprit, path=path):
        read_annotations(path)


def test_fields_that_lose_nothing_may_be_there_twice(tmp_path):
    word = WORD.replace("{", '{"language": "en", "language": "ko", ')
    path = write_json(tmp_path / "val.json", f'{{"images": {{"a.jpg": {{"words": {{"1": {word}}}}}}}}}')
    assert read_annotations(path).pages["a.jpg"].words[0].language == "ko"


def test_words_may_be_a_list(tmp_path):
    root = {"images": {"a.jpg": {"words": [{"points": SQUARE}, {"points": SQUARE}]}}}
    words = read_annotations(write_json(tmp_path / "a.json", root)).pages["a.jpg"].words
    assert [word.key for word in words] == ["0001", "0002"]


def test_points_are_kept_as_written_for_the_doctor_to_judge(tmp_path):
    text = '{"images": {"a.jpg": {"words": {"1": {"points": [["3", NaN]]}, "2": {}, "3": {"points": "x"}}}}}'
    words = read_annotations(write_json(tmp_path / "a.json", text)).pages["a.jpg"].words
    assert words[0].points[0][0] == "3"
    assert words[0].points[0][1] != words[0].points[0][1]
    assert words[1].points is None
    assert words[2].points == "x"


def test_reading_leaves_the_garbage_collector_as_it_was(tmp_path):
    good, bad = write_json(tmp_path / "good.json", {"images": {}}), write_json(tmp_path / "bad.json", "{")
    read_annotations(good)
    with pytest.raises(AnnotationError):
        read_annotations(bad)
    assert gc.isenabled()
    gc.disable()
    try:
        read_annotations(good)
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("content", "setting", "value"),
    [
        ("", None, ""),
        (" \n", None, ""),
        ("{", None, "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", None, "a list"),
        ("{}", None, "[]"),
        ({"pages": {}}, None, "['pages']"),
        ({"images": None}, "images", None),
        ({"images": []}, "images", []),
        ({"images": {"a.jpg": []}}, None, []),
        ({"images": {"a.jpg": {"words": "none"}}}, "words", "none"),
        ({"images": {"a.jpg": {"words": 0}}}, "words", 0),
        ({"images": {"a.jpg": {"words": {"1": {}, "2": [[0, 0]]}}}}, None, [[0, 0]]),
        ({"images": {"a.jpg": {"words": {"1": {"illegibility": "no"}}}}}, "illegibility", "no"),
        ({"images": {"a.jpg": {"img_w": 0, "img_h": 9}}}, None, (0, 9)),
        ({"images": {"a.jpg": {"img_w": "9", "img_h": 9}}}, None, ("9", 9)),
        ({"images": {"a.jpg": {"img_w": 9, "img_h": 2**31}}}, None, (9, 2**31)),
        ('{"images": {"a.jpg": {"img_w": Infinity, "img_h": 9}}}', None, (float("inf"), 9)),
    ],
)
def test_a_broken_file_names_itself_and_the_culprit(tmp_path, content, setting, value):
    path = write_json(tmp_path / "a.json", content)
    with rejects(AnnotationError, setting=setting, value=value, path=path) as caught:
        read_annotations(path)
    assert str(path) in str(caught.value)


def test_json_nested_too_deep_is_refused(tmp_path):
    path = write_json(tmp_path / "a.json", "[" * 100_000)
    with rejects(AnnotationError, path=path):
        read_annotations(path)


@pytest.mark.parametrize(
    ("root", "setting", "value"), [([], None, []), ({}, "images", None), ({"pages": {}}, "images", None)]
)
def test_a_file_that_is_not_native_is_refused(tmp_path, root, setting, value):
    path = write_json(tmp_path / "a.json", root)
    with rejects(AnnotationError, setting=setting, value=value, path=path):
        read_annotations(path, "native")


def test_bytes_that_are_not_utf8_are_located(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"images": {"caf\xe9.jpg": {}}}')
    with rejects(AnnotationError, value=16, path=tmp_path / "a.json"):
        read_annotations(tmp_path / "a.json")


coordinates = st.integers(-(10**6), 10**6) | st.floats(allow_nan=False, allow_infinity=False)
names = st.text(min_size=1, max_size=8)
words = st.builds(
    Word,
    key=names,
    points=st.lists(st.lists(coordinates, min_size=2, max_size=2), max_size=5),
    text=st.none() | st.text(st.characters(), max_size=8),
    ignore=st.booleans(),
    language=st.none() | st.sampled_from(["ko", "en"]),
    orientation=st.none() | names,
)
pages = st.builds(
    Page,
    words=st.lists(words, max_size=4, unique_by=lambda word: word.key).map(tuple),
    size=st.none() | st.tuples(st.integers(1, 9999), st.integers(1, 9999)),
)


@given(pages=st.dictionaries(names, pages, max_size=4))
def test_what_is_written_is_read_back_exactly_and_written_the_same(tmp_path_factory, pages):
    folder = tmp_path_factory.mktemp("native")
    write_native(Annotations("x", "coco", pages), folder / "a.json")
    found = read_annotations(folder / "a.json")
    assert found.pages == pages
    assert list(found.pages) == list(pages)
    write_native(found, folder / "b.json")
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()


def test_the_written_file_has_a_page_a_line_in_utf8(tmp_path):
    page = Page((Word("0001", SQUARE, "合計"),), (40, 30))
    write_native(Annotations("x", "native", {"a.jpg": page, "b.jpg": Page()}), tmp_path / "new" / "a.json")
    lines = (tmp_path / "new" / "a.json").read_text(encoding="utf-8").splitlines()
    assert lines[1].startswith('"a.jpg": {"img_w":40,"img_h":30,"words":{"0001":{"points":[[0,0],')
    assert "合計" in lines[1]
    assert lines[2] == '"b.jpg": {"words":{}}'
    assert os.listdir(tmp_path / "new") == ["a.json"]


def test_half_a_surrogate_pair_survives(tmp_path):
    pages = {"a.jpg": Page((Word("0001", SQUARE, "\ud800"),))}
    write_native(Annotations("x", "native", pages), tmp_path / "a.json")
    assert read_annotations(tmp_path / "a.json").pages == pages


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "a.json"
    write_native(Annotations("x", "native", {"a.jpg": Page()}), target)
    before = target.read_bytes()
    twins = Page((Word("0001", SQUARE), Word("0001", SQUARE)))
    with rejects(AnnotationError, value="b.jpg"):
        write_native(Annotations("x", "native", {"a.jpg": Page(), "b.jpg": twins}), target)
    assert target.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.json"]
