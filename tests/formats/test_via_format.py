"""VGG Image Annotator: projects and exports of versions 1 and 2."""

import json

import pytest
from format_examples import via_region
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations

BOX = (1, 2, 9, 5)


def rect(**attributes):
    shape = {"name": "rect", "x": 1, "y": 2, "width": 8, "height": 3}
    return {"shape_attributes": shape, "region_attributes": attributes}


@pytest.fixture
def read(tmp_path):
    def read_regions(regions, project=False, **options):
        pages = {"a.jpg99": {"filename": "a.jpg", "size": 99, "regions": regions, "file_attributes": {}}}
        root = {"_via_settings": {}, "_via_img_metadata": pages, "_via_attributes": {}} if project else pages
        (tmp_path / "via.json").write_text(json.dumps(root))
        return read_annotations(tmp_path / "via.json", **options)

    return read_regions


@pytest.mark.parametrize("project", [True, False])
def test_rectangles_and_polygons_of_a_project_or_an_export(read, project):
    words = read([rect(text="a"), via_region(BOX, transcription="b")], project).pages["a.jpg"].words
    assert [(word.points, word.text) for word in words] == [([[1, 2], [9, 2], [9, 5], [1, 5]], text) for text in "ab"]


def test_version_1_numbers_its_regions_and_closes_its_polygons(read):
    closed = via_region(BOX)
    for axis in ("all_points_x", "all_points_y"):
        closed["shape_attributes"][axis].append(closed["shape_attributes"][axis][0])
    words = read({"0": rect(), "1": closed}).pages["a.jpg"].words
    assert [len(word.points) for word in words] == [4, 4]


def test_attributes_say_what_is_ignored_and_what_is_not_text(read):
    regions = [
        rect(type="text"),
        rect(type="text", illegible={"yes": True}, language="en"),
        rect(type="text", illegible={"yes": False}, orientation="curved"),
        rect(type="text", ignore="true"),
        rect(type="stamp"),
    ]
    found = read(regions)
    words = found.pages["a.jpg"].words
    assert [word.ignore for word in words] == [False, True, False, True]
    assert (words[1].language, words[2].orientation) == ("en", "curved")
    assert "1 of stamp" in found.notes[0]


@pytest.mark.parametrize(
    ("shape", "setting", "value"),
    [
        ({"name": "circle", "cx": 1, "cy": 1, "r": 3}, "name", "circle"),
        ({"name": "polygon", "all_points_x": [1, 2], "all_points_y": [1]}, None, (2, 1)),
        ({"name": "rect", "x": 1, "y": 2, "width": 3}, None, None),
        (None, "shape_attributes", None),
    ],
)
def test_a_damaged_region_is_named(read, tmp_path, shape, setting, value):
    with rejects(AnnotationError, setting=setting, value=value, path=tmp_path / "via.json") as caught:
        read([rect(), {"shape_attributes": shape, "region_attributes": {}}])
    assert "a.jpg: region 2:" in str(caught.value)
