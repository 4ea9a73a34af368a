"""Label Studio: percent, rotation about the first corner, several results per region, several annotations per task."""

import json
import math

import pytest
from format_examples import percent, region
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations

BOX = (10, 10, 90, 30)


def task(*results, image="/data/local-files/?d=a.jpg", **more):
    return {"id": 5, "data": {"image": image}, "annotations": [{"id": 1, "result": list(results)}], **more}


def shape(value, kind="rectanglelabels", key="k", label="Text", **more):
    sized = {"original_width": 200, "original_height": 400, "image_rotation": 0}
    value = {**value, kind: [label]} if kind.endswith("labels") else value
    return {"id": key, "type": kind, "from_name": "l", "to_name": "i", "value": value, **sized, **more}


@pytest.fixture
def read(tmp_path):
    def read_tasks(*tasks, **options):
        path = tmp_path / "tasks.json"
        path.write_text(json.dumps(tasks))
        return read_annotations(path, **options)

    return read_tasks


def test_a_rotated_box_turns_clockwise_about_its_first_corner_in_pixels(read):
    # 50 % of 200 is 100, 25 % of 400 is 100; the box is 40 x 20 pixels.
    value = {"x": 50, "y": 25, "width": 20, "height": 5, "rotation": 90}
    (word,) = read(task(shape(value))).pages["a.jpg"].words
    assert word.points == [[100, 100], [100, 140], [80, 140], [80, 100]]
    value["rotation"] = 330
    (word,) = read(task(shape(value))).pages["a.jpg"].words
    assert word.points[1] == pytest.approx([100 + 40 * math.cos(math.pi / 6), 100 - 20], abs=1e-3)


def test_polygons_are_in_percent_of_the_page(read):
    points = [[10, 10], [20, 10.5], [20, 15], [10, 15]]
    found = read(task(shape({"points": points}, "polygonlabels")))
    assert found.pages["a.jpg"].words[0].points == [[20, 40], [40, 42], [40, 60], [20, 60]]
    assert found.pages["a.jpg"].size == (200, 400)


def test_a_region_is_several_results_and_its_label_or_choice_may_say_that_it_is_illegible(read):
    choice = {"id": "c", "type": "choices", "value": {**percent(BOX), "choices": ["Illegible"]}}
    results = [
        *region("a", BOX, "Text", "one"),
        *region("b", BOX, "Illegible", "two"),
        *region("c", BOX, "Text", "three"),
        choice,
        {"type": "relation", "from_id": "a", "to_id": "b"},
        {"id": "page", "type": "choices", "value": {"choices": ["receipt"]}},
    ]
    words = read(task(*results)).pages["a.jpg"].words
    assert [(word.key, word.text, word.ignore) for word in words] == [
        ("a", "one", False),
        ("b", "two", True),
        ("c", "three", True),
    ]


def test_labels_that_are_not_text_are_left_out_and_counted(read):
    found = read(task(shape(percent(BOX)), shape(percent(BOX), key="logo", label="Logo")))
    assert [word.key for word in found.pages["a.jpg"].words] == ["k"]
    assert "1 of Logo" in found.notes[0]
    assert len(read(task(shape(percent(BOX), label="Logo")), categories=["Logo"]).pages["a.jpg"].words) == 1


def test_the_annotation_that_counts_is_the_ground_truth_or_the_last_that_was_not_skipped(read):
    def annotated(*flags):
        many = [{"id": at, "result": [shape(percent(BOX), key=str(at))], **flag} for at, flag in enumerate(flags)]
        return {"id": 5, "data": {"ocr": "a.jpg"}, "annotations": many}

    found = read(annotated({}, {}, {"was_cancelled": True}))
    assert [word.key for word in found.pages["a.jpg"].words] == ["1"]
    (note,) = found.notes
    assert note.startswith(f"{found.path}: task 5: 2 ")
    found = read(annotated({"ground_truth": True}, {}))
    assert ([word.key for word in found.pages["a.jpg"].words], found.notes) == (["0"], ())


def test_tasks_that_nobody_labelled_are_no_pages_without_text(read):
    waiting = {
        "id": 6,
        "data": {"image": "b.jpg"},
        "annotations": [],
        "predictions": [{"result": [shape(percent(BOX))]}],
    }
    found = read(task(), waiting)
    assert list(found.pages) == ["a.jpg"]
    (note,) = found.notes
    assert note.startswith(f"{found.path}: 1 ")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/data/local-files/?d=receipts/a%20b.jpg", "receipts/a b.jpg"),
        ("/data/upload/3/e97d4735-a.jpg", "a.jpg"),
        ("https://host/x/a%20b.jpg?token=1", "a b.jpg"),
        ("s3://bucket/x/a.png", "a.png"),
    ],
)
def test_the_image_is_found_in_its_address(read, address, name):
    assert list(read(task(image=address)).pages) == [name]


def test_an_uploaded_image_may_be_in_the_folder_with_its_digits_or_without(read, tmp_path):
    for folder, name in (("with", "e97d4735-a.jpg"), ("without", "a.jpg")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).touch()
        assert list(read(task(image="/data/upload/1/e97d4735-a.jpg"), image_path=tmp_path / folder).pages) == [name]


@pytest.mark.parametrize(
    ("result", "setting", "value"),
    [
        (shape({"rle": [1], "format": "rle"}, "brushlabels"), "type", "brushlabels"),
        (shape({"x": 1, "y": 1, "radiusX": 1, "radiusY": 2}, "ellipselabels"), "type", "ellipselabels"),
        (shape(percent(BOX), image_rotation=90), "image_rotation", 90),
        (shape(percent(BOX), original_width=None), "original_width", None),
        (shape({**percent(BOX), "x": "left"}), None, "left"),
        (shape({"points": [[1, 2, 3]]}, "polygonlabels"), "points", [[1, 2, 3]]),
    ],
)
def test_what_cannot_be_read_is_named_by_task_and_region(read, tmp_path, result, setting, value):
    with rejects(AnnotationError, setting=setting, value=value, path=tmp_path / "tasks.json") as caught:
        read(task(result))
    assert "task 5: region k:" in str(caught.value)
