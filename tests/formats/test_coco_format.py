"""COCO JSON, COCO-Text and TextOCR."""

import json

import pytest
from rejection import rejects

from ocr.errors import AnnotationError, ConfigError
from ocr.formats import read_annotations

SQUARE = [0, 0, 9, 0, 9, 5, 0, 5]
CORNERS = [[0, 0], [9, 0], [9, 5], [0, 5]]


@pytest.fixture
def read_coco(tmp_path):
    def read(annotations, images=({"id": 1, "file_name": "a.jpg", "width": 40, "height": 30},), names=(), **options):
        path = tmp_path / "coco.json"
        named = [{"id": at, "name": name} for at, name in enumerate(names, start=1)]
        path.write_text(json.dumps({"images": list(images), "annotations": annotations, "categories": named}))
        return read_annotations(path, **options)

    return read


def words_of(annotations):
    return annotations.pages["a.jpg"].words


def test_polygons_sizes_and_pages_without_text_are_read(read_coco):
    images = [{"id": 1, "file_name": "a.jpg", "width": 40.0, "height": 30}, {"id": 2, "file_name": "b.jpg"}]
    found = read_coco([{"id": 7, "image_id": 1, "segmentation": [SQUARE], "text": "hi"}], images)
    assert found.format == "coco"
    assert found.pages["a.jpg"].size == (40, 30)
    assert found.pages["b.jpg"].size is None
    assert found.pages["b.jpg"].words == ()
    (word,) = words_of(found)
    assert (word.key, word.points, word.text) == ("7", CORNERS, "hi")


def test_every_part_of_a_word_becomes_a_word_of_its_own(read_coco):
    parts = [SQUARE, [20, 0, 30, 0, 30, 5]]
    words = words_of(read_coco([{"id": 7, "image_id": 1, "segmentation": parts, "text": "hi", "iscrowd": 1}]))
    assert [(word.key, len(word.points), word.text, word.ignore) for word in words] == [
        ("7.1", 4, "hi", True),
        ("7.2", 3, "hi", True),
    ]


@pytest.mark.parametrize(
    "outline",
    [
        {"segmentation": [SQUARE]},
        {"segmentation": SQUARE},
        {"segmentation": CORNERS},
        {"segmentation": [CORNERS]},
        {"segmentation": [], "bbox": [0, 0, 9, 5]},
        {"bbox": [0, 0, 9, 5]},
        {"polygon": SQUARE},
        {"mask": SQUARE},
    ],
)
def test_an_outline_may_be_flat_nested_or_a_box(read_coco, outline):
    (word,) = words_of(read_coco([{"id": 7, "image_id": 1, **outline}]))
    assert word.points == CORNERS


@pytest.mark.parametrize(
    "mark",
    [
        {"iscrowd": 1},
        {"ignore": 1},
        {"legibility": "illegible"},
        {"attributes": {"legible": False}},
        {"attributes": {"illegible": True}},
        {"utf8_string": "###"},
    ],
)
def test_marks_of_illegible_text_are_honoured(read_coco, mark):
    plain, marked = words_of(
        read_coco(
            [
                {"id": 1, "image_id": 1, "bbox": [0, 0, 9, 5], "iscrowd": 0, "attributes": {"legible": True}},
                {"id": 2, "image_id": 1, "bbox": [0, 0, 9, 5], **mark},
            ]
        )
    )
    assert (plain.ignore, marked.ignore) == (False, True)


def test_a_crowd_written_as_a_mask_is_ignored_by_its_box(read_coco):
    crowd = {
        "id": 7,
        "image_id": 1,
        "iscrowd": 1,
        "segmentation": {"counts": [1], "size": [9, 9]},
        "bbox": [0, 0, 9, 5],
    }
    (word,) = words_of(read_coco([crowd]))
    assert (word.points, word.ignore) == (CORNERS, True)


def test_coco_text_and_text_ocr_are_read_with_their_dots(tmp_path):
    path = tmp_path / "TextOCR.json"
    images = {"x1": {"id": "x1", "file_name": "a.jpg", "width": 40, "height": 30}}
    words = {
        "x1_1": {"id": "x1_1", "image_id": "x1", "points": SQUARE, "utf8_string": "hi", "language": "english"},
        "x1_2": {"id": "x1_2", "image_id": "x1", "points": SQUARE, "utf8_string": "."},
        "x1_3": {"id": "x1_3", "image_id": "x1", "mask": SQUARE, "utf8_string": ".", "legibility": "legible"},
    }
    path.write_text(json.dumps({"imgs": images, "anns": words, "imgToAnns": {}}))
    found = read_annotations(path)
    assert found.format == "coco"
    assert [(word.text, word.ignore) for word in words_of(found)] == [("hi", False), (".", True), (".", False)]
    assert words_of(found)[0].language == "english"


def test_file_names_are_resolved_in_the_image_folder(read_coco, tmp_path):
    (tmp_path / "images" / "sub").mkdir(parents=True)
    (tmp_path / "images" / "sub" / "a.jpg").touch()
    images = [{"id": 1, "file_name": "val2017/sub/a.jpg"}, {"id": 2, "file_name": "gone/b.jpg"}]
    assert list(read_coco([], images, image_path=tmp_path / "images").pages) == ["sub/a.jpg", "b.jpg"]


def test_without_an_image_folder_a_relative_path_is_kept_and_any_other_cut(read_coco):
    names = [
        "sub/a.jpg",
        "./b.jpg",
        "x/../c.jpg",
        "win\\d.jpg",
        "../e.jpg",
        "x/../../f.jpg",
        "/abs/g.jpg",
        "C:\\x\\h.jpg",
    ]
    found = read_coco([], [{"id": at, "file_name": name} for at, name in enumerate(names)])
    assert list(found.pages) == ["sub/a.jpg", "b.jpg", "c.jpg", "win/d.jpg", "e.jpg", "f.jpg", "g.jpg", "h.jpg"]


def test_an_odd_number_of_coordinates_is_kept_for_the_doctor(read_coco):
    (word,) = words_of(read_coco([{"id": 7, "image_id": 1, "segmentation": [[*SQUARE, 3]]}]))
    assert word.points == [*CORNERS, [3]]


RLE = {"counts": "abc", "size": [9, 9]}


@pytest.mark.parametrize(
    ("annotation", "setting", "value"),
    [
        ({"id": 7, "image_id": 1, "segmentation": RLE}, "segmentation", RLE),
        ({"id": 7, "image_id": 1, "segmentation": "abc"}, "segmentation", "abc"),
        ({"id": 7, "image_id": 1, "segmentation": [SQUARE, 5]}, "segmentation", [SQUARE, 5]),
        ({"id": 7, "image_id": 1}, "bbox", None),
        ({"id": 7, "image_id": 1, "bbox": [1, 2, 3, "4"]}, "bbox", [1, 2, 3, "4"]),
        ({"id": 7, "image_id": 1, "bbox": [1, 2, 3]}, "bbox", [1, 2, 3]),
        ({"id": 7, "image_id": 3, "bbox": [1, 2, 3, 4]}, "image_id", 3),
        ("hello", None, "hello"),
    ],
)
def test_a_broken_annotation_is_named(read_coco, tmp_path, annotation, setting, value):
    with rejects(AnnotationError, setting=setting, value=value, path=tmp_path / "coco.json"):
        read_coco([annotation])


@pytest.mark.parametrize(
    ("images", "value"),
    [
        ([{"id": 1}], {"id": 1}),
        ([{"file_name": "a.jpg"}], {"file_name": "a.jpg"}),
        (["a.jpg"], "a.jpg"),
        ([{"id": 1, "file_name": "a.jpg"}, {"id": 1, "file_name": "b.jpg"}], "b.jpg"),
        ([{"id": 1, "file_name": "/x/a.jpg"}, {"id": 2, "file_name": "/y/a.jpg"}], "a.jpg"),
        ([{"id": 1, "file_name": "a.jpg", "width": "4O", "height": 30}], ("4O", 30)),
    ],
)
def test_a_broken_image_entry_is_named(read_coco, tmp_path, images, value):
    with rejects(AnnotationError, setting=None, value=value, path=tmp_path / "coco.json"):
        read_coco([], images)


@pytest.mark.parametrize(
    ("root", "setting", "value"),
    [
        ({"images": []}, "annotations", None),
        ({"images": {}, "annotations": []}, "images", {}),
        ([], None, []),
    ],
)
def test_a_file_that_is_not_coco_is_refused(tmp_path, root, setting, value):
    (tmp_path / "a.json").write_text(json.dumps(root))
    with rejects(AnnotationError, setting=setting, value=value, path=tmp_path / "a.json"):
        read_annotations(tmp_path / "a.json", "coco")


def test_a_size_may_be_written_as_text(read_coco):
    found = read_coco([], [{"id": 1, "file_name": "a.jpg", "width": "40", "height": "30"}])
    assert found.pages["a.jpg"].size == (40, 30)


def one_of_each(count):
    return [{"id": at, "image_id": 1, "category_id": at, "bbox": [0, 0, 9, 5]} for at in range(1, count + 1)]


PUBLAYNET = ("text", "title", "list", "table", "figure")


def test_categories_that_are_not_named_like_text_are_left_out_and_counted(read_coco):
    found = read_coco([*one_of_each(5), *one_of_each(5)], names=PUBLAYNET)
    assert [word.key for word in words_of(found)] == ["1", "1"]
    (note,) = found.notes
    assert "2 of figure, 2 of list, 2 of table, 2 of title" in note
    assert "annotation_categories" in note


def test_categories_may_be_named(read_coco):
    found = read_coco(one_of_each(5), names=PUBLAYNET, categories=["text", "title"])
    assert [word.key for word in words_of(found)] == ["1", "2"]
    assert "1 of figure, 1 of list, 1 of table" in found.notes[0]
    assert read_coco(one_of_each(5), names=PUBLAYNET, categories=PUBLAYNET).notes == ()


@pytest.mark.parametrize(
    ("names", "read", "notes"),
    [
        ((), 2, 0),
        (("receipt",), 2, 0),
        (("price", "name"), 2, 1),
        (("text_line", "stamp"), 1, 1),
        (("non-text", "Word"), 1, 1),
        (("texture", "wordless"), 2, 1),
    ],
)
def test_all_categories_are_read_if_none_is_named_like_text(read_coco, names, read, notes):
    found = read_coco(one_of_each(2), names=names)
    assert (len(words_of(found)), len(found.notes)) == (read, notes)


def test_an_unknown_category_is_refused_with_the_names_of_the_file(read_coco):
    with rejects(ConfigError, setting="annotation_categories", value="txt") as caught:
        read_coco(one_of_each(5), names=PUBLAYNET, categories=["txt"])
    assert all(name in str(caught.value) for name in PUBLAYNET)
    for wrong in ("text", [], None, 3):
        with rejects(ConfigError, setting="annotation_categories", value=wrong):
            read_coco(one_of_each(5), names=PUBLAYNET, categories=wrong)


def test_categories_of_a_format_without_any_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("1,2,9,2,9,5,1,5,a\n")
    with rejects(ConfigError, setting="annotation_categories", value=["text"], path=tmp_path):
        read_annotations(tmp_path, categories=["text"])


def test_bezier_outlines_are_sampled_not_boxed(read_coco):
    top, bottom = [0, 10, 10, 0, 20, 0, 30, 10], [30, 20, 20, 10, 10, 10, 0, 20]
    (word,) = words_of(read_coco([{"id": 7, "image_id": 1, "bezier_pts": top + bottom, "bbox": [0, 0, 30, 20]}]))
    assert [word.points[at] for at in (0, 9, 10, 19)] == [[0, 10], [30, 10], [30, 20], [0, 20]]
    middle = [point[1] for point in word.points[4:6]]
    assert middle == pytest.approx([2.6, 2.6], abs=0.1)


def test_a_segmentation_comes_before_its_bezier_fit(read_coco):
    (word,) = words_of(read_coco([{"id": 7, "image_id": 1, "bezier_pts": [0] * 16, "segmentation": [SQUARE]}]))
    assert word.points == CORNERS


def test_broken_annotations_are_listed_at_once(read_coco):
    broken = [{"id": 7, "image_id": 1, "bezier_pts": [0] * 15}, {"id": 8, "image_id": 1}, {"id": 9, "image_id": 5}]
    with rejects(AnnotationError, setting="bezier_pts", value=[0] * 15) as caught:
        read_coco(broken)
    first, second, third = str(caught.value).split("\n")
    assert "word 7" in first
    assert "word 8" in second
    assert "image_id=5" in third
