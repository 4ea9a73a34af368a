"""Annotations written for tools and other detectors come back as they were, as far as the format holds them."""

import json
from pathlib import Path

import pytest
from PIL import Image
from rejection import rejects

from ocr.errors import AnnotationError, ConfigError
from ocr.formats import FORMATS, Annotations, Page, Word, read_annotations, write_annotations
from ocr.formats.values import RotatedBox
from ocr.formats.write import WRITTEN

BOX = [[94, 40], [316, 40], [316, 79.5], [94, 79.5]]
ROTATED = RotatedBox(120.25, 300.5, 180, 32, 0.21).corners()
UPSIDE_DOWN = [[316, 79], [94, 79], [94, 40], [316, 40]]
CURVE = [[10, 500], [60, 480], [110, 500.1234], [108, 520], [60, 505], [12, 520]]
WORDS = (
    Word("0001", BOX, 'TOTAL <5> & "more"', False, "en", note="look <here>"),
    Word("0002", ROTATED, "Crème\nbrûlée", False, None, "horizontal"),
    Word("0003", UPSIDE_DOWN, None, True),
    Word("0004", CURVE, "合計", True, "ja", "curved"),
)
ANNOTATIONS = Annotations("x", "native", {"a.jpg": Page(WORDS, (640, 960)), "sub/b c.png": Page((), (30, 20))})


def written(tmp_path, format, annotations=ANNOTATIONS, **more):
    target = tmp_path / ("out" if FORMATS[format].write_page else "out.file")
    notes = write_annotations(annotations, target, format, **more)
    return target, notes


def images_of(folder):
    folder.mkdir(exist_ok=True)
    for name, page in ANNOTATIONS.pages.items():
        Image.new("L", page.size).save(folder / Path(name).name)
    return folder


def read_back(target, format):
    """One file, or the folder and what is in its sub-folders."""
    if not target.is_dir():
        return read_annotations(target).pages
    files = [file for file in sorted(target.rglob("*")) if file.is_file() and file.suffix != ".yaml"]
    images = images_of(target.parent / "images") if format == "yolo" else None
    pages = [page for file in files for page in read_annotations(file, format, images).pages.items()]
    return dict(pages)


def text_of(target):
    return next(target.glob("a.*")).read_text() if target.is_dir() else target.read_text()


def test_the_formats_that_are_written():
    assert set(WRITTEN) == {
        *("native", "coco", "label_studio", "cvat", "labelme", "via", "mmocr", "paddle", "pascal_voc", "yolo", "alto")
    }


@pytest.mark.parametrize("format", [name for name in WRITTEN if name not in ("pascal_voc", "yolo")])
def test_words_survive_the_way_there_and_back(tmp_path, format):
    target, notes = written(tmp_path, format)
    pages = read_back(target, format)
    assert list(pages) == ["a.jpg", "b c.png" if format == "labelme" else "sub/b c.png"]
    lacks = FORMATS[format].lacks
    assert len(notes) == len(lacks)
    assert all(f"the {field} of " in note for field, note in zip(lacks, notes, strict=True))
    for word, found in zip(WORDS, pages["a.jpg"].words, strict=True):
        for expected_point, point in zip(word.points, found.points, strict=True):
            assert point == pytest.approx(expected_point, abs=2e-4)
        assert (found.text or None) == word.text
        assert found.ignore == word.ignore
        assert found.language == (None if "language" in lacks else word.language)
        assert found.orientation == (None if "orientation" in lacks else word.orientation)
    if format not in ("via", "paddle"):
        assert pages["a.jpg"].size == (640, 960)


def test_pascal_voc_keeps_boxes_and_flags_and_says_what_it_loses(tmp_path):
    target, notes = written(tmp_path, "pascal_voc")
    words = read_annotations(target / "a.xml").pages["a.jpg"].words
    assert [word.ignore for word in words] == [False, False, True, True]
    assert words[0].points == BOX
    assert words[3].points == [[10, 480], [110, 480], [110, 520], [10, 520]]
    assert notes[0].startswith("a.jpg: 3 words")
    assert "text of 3 words" in notes[1]


def test_label_studio_gets_the_regions_of_its_ocr_template_in_percent(tmp_path):
    target, _ = written(tmp_path, "label_studio", image_prefix="https://pages.example/")
    first, second = json.loads(target.read_text())
    assert first["data"] == {"ocr": "https://pages.example/a.jpg", "reason": "look <here>"}
    assert second == {"data": {"ocr": "https://pages.example/sub/b%20c.png"}, "annotations": [{"result": []}]}
    shape, label, text, *_ = first["annotations"][0]["result"]
    assert (shape["type"], label["type"], text["type"]) == ("rectangle", "labels", "textarea")
    assert shape["meta"] == {"language": "en", "text": ["look <here>"]}
    assert shape["value"]["x"] == pytest.approx(94 / 6.4)
    assert shape["value"]["height"] == pytest.approx(39.5 / 9.6)
    assert (label["value"]["labels"], text["value"]["text"]) == (["Text"], ['TOTAL <5> & "more"'])
    rotations = [part["value"]["rotation"] for part in first["annotations"][0]["result"] if part["type"] == "rectangle"]
    assert rotations == pytest.approx([0, 12.0321, 180], abs=1e-3)


def test_predictions_carry_scores_and_the_version_of_the_model(tmp_path):
    scores = {"a.jpg": [0.9, 0.8, 0.7, 0.6], "sub/b c.png": []}
    target, _ = written(tmp_path, "label_studio", scores=scores, model_version="receipts-3")
    first, second = json.loads(target.read_text())
    (prediction,) = first["predictions"]
    assert (prediction["model_version"], prediction["score"]) == ("receipts-3", 0.75)
    assert [part["score"] for part in prediction["result"] if part["type"] in ("rectangle", "polygon")] == scores[
        "a.jpg"
    ]
    assert "annotations" not in first
    assert second["predictions"][0]["result"] == []
    with rejects(AnnotationError, value=2, path=target):
        read_annotations(target)


@pytest.mark.parametrize("format", [name for name in WRITTEN if name not in ("label_studio", "pascal_voc")])
def test_scores_are_kept_by_the_other_formats_and_the_words_still_read(tmp_path, format):
    scores = {"a.jpg": [0.9125, 0.8, 0.7, 0.6], "sub/b c.png": []}
    target, _ = written(tmp_path, format, scores=scores)
    text = text_of(target)
    assert "0.9125" in text
    assert len(read_back(target, format)["a.jpg"].words) == 4


@pytest.mark.parametrize("format", [name for name in WRITTEN if "note" not in FORMATS[name].lacks])
def test_notes_for_the_person_who_looks_are_written(tmp_path, format):
    target, _ = written(tmp_path, format)
    text = text_of(target)
    assert ("look &lt;here&gt;" if format == "cvat" else "look <here>") in text


def test_scores_must_be_as_many_as_words(tmp_path):
    with rejects(AnnotationError, setting=None, value="a.jpg"):
        written(tmp_path, "coco", scores={"a.jpg": [0.5]})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["label_studio", "cvat", "mmocr", "pascal_voc", "yolo", "alto"])
def test_a_format_that_needs_the_size_of_a_page_asks_for_the_images(tmp_path, format):
    with rejects(AnnotationError, setting="image_path", value="a.jpg"):
        written(tmp_path, format, Annotations("x", "native", {"a.jpg": Page(WORDS)}))


def test_a_word_that_is_no_polygon_is_named_and_nothing_is_written(tmp_path):
    broken = Annotations("x", "native", {"a.jpg": Page((Word("7", [[1, 2], [3, 4]]),), (9, 9))})
    with rejects(AnnotationError, setting=None, value=[[1, 2], [3, 4]]):
        written(tmp_path, "cvat", broken)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../a.jpg", "/a.jpg", "C:\\a.jpg", "x/../../a.jpg", ""])
def test_names_never_lead_out_of_the_folder(tmp_path, name):
    with rejects(AnnotationError, value=name, path=tmp_path / "out"):
        written(tmp_path, "labelme", Annotations("x", "native", {name: Page((), (9, 9))}))
    assert list(tmp_path.iterdir()) == []


def test_two_images_of_one_stem_are_refused(tmp_path):
    with rejects(AnnotationError, value=("a.jpg", "a.png"), path=tmp_path / "out" / "a.json"):
        written(tmp_path, "labelme", Annotations("x", "native", {"a.jpg": Page(), "a.png": Page()}))


def test_labelme_and_via_find_the_images_from_where_the_annotations_are(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    (images / "a.jpg").write_bytes(b"12345")
    target, _ = written(tmp_path, "labelme", image_path=images)
    assert json.loads((target / "a.json").read_text())["imagePath"] == "../images/a.jpg"
    assert json.loads((target / "sub" / "b c.json").read_text())["imagePath"] == "../../images/sub/b c.png"
    target, _ = written(tmp_path, "via", image_path=images)
    project = json.loads(target.read_text())
    assert project["_via_settings"]["core"]["default_filepath"] == "images/"
    assert project["_via_image_id_list"] == ["a.jpg5", "sub/b c.png-1"] == list(project["_via_img_metadata"])


def test_characters_that_XML_cannot_hold_do_not_break_the_file(tmp_path):
    page = Page((Word("1", BOX, "a\x00b\ud800c\rd"),), (640, 960))
    target, _ = written(tmp_path, "cvat", Annotations("x", "native", {"a.jpg": page}))
    assert read_annotations(target).pages["a.jpg"].words[0].text == "a\ufffdb\ufffdc\rd"


def test_half_a_surrogate_pair_survives_in_json(tmp_path):
    page = Page((Word("1", BOX, "\ud800"),), (640, 960))
    for format in ("native", "coco", "via", "mmocr"):
        target, _ = written(tmp_path, format, Annotations("x", "native", {"a.jpg": page}))
        assert read_annotations(target).pages["a.jpg"].words[0].text == "\ud800"


def test_a_text_that_PaddleOCR_takes_for_a_mark_is_named(tmp_path):
    page = Page((Word("1", BOX, "*"), Word("2", BOX, "*", True), Word("3", BOX, "a")), (640, 960))
    target, notes = written(tmp_path, "paddle", Annotations("x", "native", {"a.jpg": page}))
    (note,) = notes
    assert note.startswith("a.jpg: 1 ")
    assert [word.ignore for word in read_annotations(target).pages["a.jpg"].words] == [True, True, False]


def test_an_annotation_without_pages_is_written_too(tmp_path):
    for format in ("native", "coco", "label_studio", "cvat", "mmocr"):
        target, _ = written(tmp_path, format, Annotations("x", "native", {}))
        assert read_annotations(target, format).pages == {}


def test_a_format_that_is_not_written_is_refused_by_name(tmp_path):
    with rejects(ConfigError, setting="--to", value="page_xml"):
        write_annotations(ANNOTATIONS, tmp_path / "x", "page_xml")
