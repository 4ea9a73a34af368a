"""LabelMe: polygons and rectangles; labels that are categories, and labels that are texts."""

import json

import pytest

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
    assert "the labels are read as the texts" in found.notes[0]


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
    assert "left out 1 of logo" in found.notes[0]


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
    assert found.notes[0].endswith("a.json: shape 2: skipped, a point has no area")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"shape_type": "circle"}, "a circle is not read: draw it as a polygon"),
        ({"points": [[1, "x"]]}, "a coordinate is 'x'"),
        ({"points": None}, '"points" is None, not a list'),
        ({"shape_type": "rectangle", "points": [[1, 2]]}, "a rectangle has two corners"),
        ({"label": 3}, '"label" is 3, not a text'),
    ],
)
def test_a_damaged_shape_is_named(read, broken, message):
    with pytest.raises(AnnotationError, match=rf"a\.json: shape 2: {message}"):
        read(shape("text"), {**shape("text"), **broken})


def test_a_folder_of_two_json_formats_is_told_which_files_are_which(read, tmp_path):
    (tmp_path / "b.json").write_text(json.dumps({"form": []}))
    with pytest.raises(AnnotationError, match=r"mixed \(labelme in 1 file: a\.json; funsd in 1 file: b\.json\)"):
        read(shape("text"))
