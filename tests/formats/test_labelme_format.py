"""LabelMe: polygons and rectangles; labels that are categories, and labels that are texts."""

import json

import pytest
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations

QUAD = [[377, 117], [463, 117], [465, 130], [378, 130]]


def shape(label, **more):
    return {"label": label, "points": QUAD, "group_id": None, "shape_type": "polygon", "flags": {}, **more}


@pytest.fixture
def read(tmp_path):
    def read_shapes(*shapes, **options):
        page = {"version": "5.0.1", "flags": {}, "imagePath": "..\\imgs\\a.jpg", "imageHeight": 720, "imageWidth": 1280}
        (tmp_path / "a.json").write_text(json.dumps({**page, "imageData": "/9j/", "shapes": list(shapes)}))
        return read_annotations(tmp_path, **options)

    return read_shapes


def test_labels_are_the_texts_where_people_write_them_there(read):
    found = read(shape("Genaxis Theatre"), shape("[06]"), shape("###"), shape("text"))
    words = found.pages["a.jpg"].words
    assert [word.text for word in words] == ["Genaxis Theatre", "[06]", "###", "text"]
    assert [word.ignore for word in words] == [False, False, True, False]
    assert found.pages["a.jpg"].size == (1280, 720)
    assert len(found.notes) == 1


def test_labels_that_repeat_are_categories_and_the_description_is_the_text(read):
    found = read(
        shape("text", description="Total"), shape("text"), shape("logo"), shape("text", flags={"ignore": True})
    )
    words = found.pages["a.jpg"].words
    assert [(word.key, word.text, word.ignore) for word in words] == [
        ("0001", "Total", False),
        ("0002", None, False),
        ("0004", None, True),
    ]
    assert "1 of logo" in found.notes[0]


def test_categories_decide_what_is_text(read):
    found = read(shape("price"), shape("name"), categories=["price"])
    assert [(word.key, word.text) for word in found.pages["a.jpg"].words] == [("0001", None)]


def test_a_rectangle_has_any_two_opposite_corners_or_all_four(read):
    two = shape("text", shape_type="rectangle", points=[[9, 5], [1, 2]])
    words = read(two, shape("text", shape_type="rectangle")).pages["a.jpg"].words
    assert [word.points for word in words] == [[[1, 2], [9, 2], [9, 5], [1, 5]], QUAD]


def test_points_and_lines_are_skipped_and_named(read):
    found = read(shape("text"), shape("text", shape_type="point", points=[[1, 2]]))
    assert len(found.pages["a.jpg"].words) == 1
    assert "a.json: shape 2:" in found.notes[0]


@pytest.mark.parametrize(
    ("broken", "setting", "value"),
    [
        ({"shape_type": "circle"}, "shape_type", "circle"),
        ({"points": [[1, "x"]]}, None, "x"),
        ({"points": None}, "points", None),
        ({"shape_type": "rectangle", "points": [[1, 2]]}, "points", [[1, 2]]),
        ({"label": 3}, "label", 3),
    ],
)
def test_a_damaged_shape_is_named(read, tmp_path, broken, setting, value):
    with rejects(AnnotationError, setting=setting, value=value, path=tmp_path / "a.json") as caught:
        read(shape("text"), {**shape("text"), **broken})
    assert "shape 2:" in str(caught.value)


def test_a_folder_of_two_json_formats_is_refused_with_the_files_of_each(read, tmp_path):
    (tmp_path / "b.json").write_text(json.dumps({"form": []}))
    with rejects(AnnotationError, value=["labelme", "funsd"], path=tmp_path) as caught:
        read(shape("text"))
    assert "a.json; funsd in 1 file: b.json" in str(caught.value)
