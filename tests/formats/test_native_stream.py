"""A native JSON that is larger than memory: the same pages one by one, and the same refusals."""

import json

import pytest
from rejection import rejects

from ocr.errors import AnnotationError, ConfigError
from ocr.formats import read, read_annotations
from ocr.formats.json_stream import JsonStream
from ocr.formats.read import stream_annotations

POINTS = [[2, 2], [20, 2.5], [20, 12]]
PAGES = {
    "a.jpg": {"img_w": 40, "img_h": 30, "words": {"1": {"points": POINTS, "transcription": "가 \ud800"}}},
    "b.jpg": None,
    "c.jpg": {"words": [{"points": POINTS, "illegibility": True}, {"points": POINTS, "language": "ko"}]},
}


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch):
    monkeypatch.setattr(read, "STREAMED_BYTES", 1)


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("head", ["", "\ufeff \n"])
@pytest.mark.parametrize("extra", [{}, {"info": {"version": 3}}])
def test_pages_are_those_of_the_whole_file(tmp_path, head, extra):
    path = write(tmp_path / "a.json", head + json.dumps({"images": PAGES} | extra, indent=1))
    streamed, whole = stream_annotations(path), read_annotations(path)
    assert not isinstance(streamed.pages, type(whole.pages.items()))
    assert list(streamed.pages) == list(whole.pages.items())
    assert streamed.path == whole.path


@pytest.mark.parametrize(
    "page",
    ['{"words": 3}', '{"words": {"1": 3}}', "[]", '{"words": {}, "img_w": -3, "img_h": 2}', '{"words": {"1": {"ill'],
)
def test_what_the_whole_file_is_refused_for_is_refused(tmp_path, page):
    path = write(tmp_path / "a.json", f'{{"images": {{"a.jpg": {page}}}}}')
    with rejects(AnnotationError, path=path) as whole:
        read_annotations(path)
    with rejects(AnnotationError, setting=whole.value.setting, value=whole.value.value, path=path) as streamed:
        list(stream_annotations(path).pages)
    assert str(streamed.value) == str(whole.value)


def test_a_word_that_occurs_twice_is_refused(tmp_path):
    word = json.dumps({"points": POINTS})
    path = write(tmp_path / "a.json", f'{{"images": {{"a.jpg": {{"words": {{"1": {word}, "1": {word}}}}}}}}}')
    with rejects(AnnotationError, value="1", path=path):
        list(stream_annotations(path).pages)


def test_a_page_that_occurs_twice_is_refused_by_name(tmp_path):
    path = write(tmp_path / "a.json", '{"images": {"a.jpg": {}, "b.jpg": {}, "c.jpg": {}, "b.jpg": {}}}')
    with rejects(AnnotationError, value="b.jpg", path=path):
        list(stream_annotations(path).pages)


def test_pages_come_before_the_file_was_read_to_its_end(tmp_path):
    path = write(tmp_path / "a.json", json.dumps({"images": PAGES})[:-20])
    with path.open("rb") as stream:
        assert next(iter(JsonStream(stream, "images"))).name == "a.jpg"
    pages = iter(stream_annotations(path).pages)
    assert next(pages)[0] == "a.jpg"
    with rejects(AnnotationError, setting=None, path=path):
        list(pages)


def test_other_formats_and_wrong_settings_are_judged_as_before(tmp_path):
    coco = {"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "text"}], "annotations": []}
    path = write(tmp_path / "a.json", json.dumps(coco))
    assert [name for name, _ in stream_annotations(path).pages] == ["a.jpg"]
    native = write(tmp_path / "b.json", json.dumps({"images": PAGES}))
    with rejects(ConfigError, setting="annotation_categories", value=["text"], path=native):
        stream_annotations(native, categories=["text"])
    with rejects(ConfigError, setting="annotation_format", value="nativ"):
        stream_annotations(native, "nativ")
