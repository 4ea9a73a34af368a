"""The native JSON: reading, writing, and everything that may be broken in it."""

import gc
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
        (f'"a.jpg": {{"words": {{"1": {WORD}}}}}, "a.jpg": {{"words": {{}}}}', "'a.jpg' occurs twice"),
        (f'"a.jpg": {{"words": {{"1": {WORD}, "2": {WORD}, "1": {WORD}}}}}', "'1' occurs twice"),
        (f'"a.jpg": {{"words": {{"1": {WORD}}}, "words": {{"2": {WORD}}}}}', "'words' occurs twice"),
    ],
)
def test_a_page_or_word_that_is_there_twice_is_refused_not_lost(tmp_path, pages, culprit):
    path = write_json(tmp_path / "val.json", f'{{"images": {{{pages}}}}}')
    with pytest.raises(AnnotationError, match=rf"val\.json: {culprit} in one object.*merge them"):
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
    ("content", "message"),
    [
        ("", r"a\.json: the file is empty"),
        (" \n", r"a\.json: the file is empty"),
        ("{", r"a\.json: not valid JSON \(Expecting"),
        ("[" * 100_000, r"a\.json: not valid JSON \(maximum recursion|a\.json: not valid JSON"),
        ("[]", "in no known format: it holds a list; native is"),
        ("{}", r"in no known format: it holds \[\]; native is"),
        ({"pages": {}}, r"in no known format: it holds \['pages'\]; native is .* coco, label_studio"),
        ({"images": None}, '"images" is None: it must map file names to pages'),
        ({"images": []}, '"images" is a list, as in COCO'),
        ({"images": {"a.jpg": []}}, r"a\.jpg: the page is \[\], not an object"),
        ({"images": {"a.jpg": {"words": "none"}}}, "a.jpg: \"words\" is 'none', not an object"),
        ({"images": {"a.jpg": {"words": 0}}}, 'a.jpg: "words" is 0, not an object'),
        ({"images": {"a.jpg": {"words": {"1": {}, "2": [[0, 0]]}}}}, r"a\.jpg: word 2 is \[\[0, 0\]\], not"),
        ({"images": {"a.jpg": {"words": {"1": {"illegibility": "no"}}}}}, "word 1: illegibility is 'no': write true"),
        ({"images": {"a.jpg": {"img_w": 0, "img_h": 9}}}, "a.jpg: the page's size is 0 x 9"),
        ({"images": {"a.jpg": {"img_w": "9", "img_h": 9}}}, "a.jpg: the page's size is '9' x 9"),
        ('{"images": {"a.jpg": {"img_w": Infinity, "img_h": 9}}}', "a.jpg: the page's size is inf x 9"),
    ],
)
def test_a_broken_file_names_itself_and_the_culprit(tmp_path, content, message):
    with pytest.raises(AnnotationError, match=message) as caught:
        read_annotations(write_json(tmp_path / "a.json", content))
    assert str(tmp_path / "a.json") in str(caught.value)


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ([], "the file holds a list, not"),
        ({}, r'"images" is missing; the file has \[\]'),
        ({"pages": {}}, r'"images" is missing; the file has \[\'pages\'\]'),
    ],
)
def test_a_file_that_is_not_native_is_refused_by_name(tmp_path, root, message):
    with pytest.raises(AnnotationError, match=message):
        read_annotations(write_json(tmp_path / "a.json", root), "native")


def test_bytes_that_are_not_utf8_are_located(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"images": {"caf\xe9.jpg": {}}}')
    with pytest.raises(AnnotationError, match=r"a\.json: not UTF-8 at byte 16: save the file as UTF-8"):
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


@settings(max_examples=150, deadline=None)
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
    with pytest.raises(AnnotationError, match=r"b\.jpg: two words share a key"):
        write_native(Annotations("x", "native", {"a.jpg": Page(), "b.jpg": twins}), target)
    assert target.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.json"]
