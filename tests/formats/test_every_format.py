"""What holds for all formats: they are recognised, read to the same words, and nothing breaks their readers."""

import json

import pytest
from format_examples import CONTENTS, JSON, XML, expected, write_example, write_page
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import FORMATS, read_annotations

JUNK = [None, True, -1, 10**400, float("nan"), float("inf"), 0.5, "", "x", "###", [], {}, [[]], [None], {"points": 1}]


def words_of(found):
    return [(word.points, word.text, word.ignore) for word in found.pages["a.jpg"].words]


def test_every_format_has_an_example():
    assert set(CONTENTS) == set(FORMATS)


@pytest.mark.parametrize("format", FORMATS)
def test_auto_recognises_a_file_and_reads_the_words_as_the_format_does(tmp_path, format):
    path = write_example(tmp_path, format)
    images = write_page(tmp_path / "images")
    found = read_annotations(path, image_path=images)
    assert found.format == format
    assert words_of(found) == expected(format)
    assert found == read_annotations(path, format, images)
    assert (found.notes, found.files) == ((), (path,))
    if format in JSON:
        recognised = [name for name, other in FORMATS.items() if other.content == "json" and other.sniff(JSON[format])]
        assert recognised == [format]


@pytest.mark.parametrize(
    "format", ["icdar2015", "td500", "ctw1500", "cvat", "pascal_voc", "labelme", "cord", "yolo", "alto"]
)
def test_a_folder_with_a_file_per_image_is_recognised_too(tmp_path, format):
    folder = write_example(tmp_path, format).parent
    write_page(folder)
    if format == "cvat":
        with rejects(AnnotationError, setting="annotation_format", value="cvat", path=folder):
            read_annotations(folder)
    else:
        found = read_annotations(folder, image_path=folder)
        assert (found.format, words_of(found)) == (format, expected(format))


@pytest.mark.parametrize("format", ["native", "coco", "lsvt"])
def test_a_folder_with_one_file_for_all_images_asks_for_the_file(tmp_path, format):
    folder = write_example(tmp_path, format).parent
    with rejects(AnnotationError, setting="annotation_format", value=format, path=folder):
        read_annotations(folder)


def paths_in(root, path=()):
    yield path
    for key, value in root.items() if isinstance(root, dict) else enumerate(root) if isinstance(root, list) else ():
        yield from paths_in(value, (*path, key))


def replaced(root, path, value):
    if not path:
        return value
    items = dict(root) if isinstance(root, dict) else list(root)
    items[path[0]] = replaced(items[path[0]], path[1:], value)
    return items


def complaint_of(path, format):
    """The last error, which must name the file; errors of any other kind fail the test."""
    complaint = path.name
    for asked in (format, "auto"):
        try:
            read_annotations(path, asked)
        except AnnotationError as error:
            complaint = str(error)
    return complaint


# Of all parts of all examples and all junk, which were tried once, a few on every run.
few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@few
@pytest.mark.parametrize("format", JSON)
@given(data=st.data())
def test_json_with_any_part_replaced_is_read_or_refused_with_the_file(tmp_path, format, data):
    path = data.draw(st.sampled_from(list(paths_in(JSON[format]))))
    root = replaced(JSON[format], path, data.draw(st.sampled_from(JUNK)))
    file = write_example(tmp_path, format, json.dumps(root))
    assert file.name in complaint_of(file, format)


@few
@pytest.mark.parametrize("format", [*XML, "td500", "wildreceipt"])
@given(data=st.data())
def test_text_with_any_part_replaced_is_read_or_refused_with_the_file(tmp_path, format, data):
    text = CONTENTS[format]
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 12)))
    junk = data.draw(st.sampled_from(["", "9" * 400, "nan", "inf", "-1e99", '"', "<", "x", ",", "{}", "null", "é"]))
    file = write_example(tmp_path, format, text[:start] + junk + text[end:])
    assert file.name in complaint_of(file, format)
