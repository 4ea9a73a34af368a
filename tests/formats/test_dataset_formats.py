"""What the formats of public datasets and other detectors have of their own, beyond the example that all share."""

import json
import math

import pytest
from format_examples import JSON, XML, corners, quad, write_example
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations


def read(tmp_path, format, content, **options):
    text = content if isinstance(content, str) else json.dumps(content)
    return read_annotations(write_example(tmp_path, format, text), format, **options)


def test_td500_boxes_turn_about_their_middle_by_radians(tmp_path):
    found = read(tmp_path, "td500", f"0 0 100 200 40 20 {math.pi / 2}\n7 1 100 200 40 20 0\n")
    turned, straight = found.pages["a.jpg"].words
    assert turned.points == [[130, 190], [130, 230], [110, 230], [110, 190]]
    assert (straight.points, straight.ignore) == (corners((100, 200, 140, 220)), True)


@pytest.mark.parametrize("line", ["0 0 1 2 3 4", "0 2 10 10 80 20 0", "0 0 10 10 80 20 90", "0 0 x 10 80 20 0"])
def test_td500_refuses_other_lines(tmp_path, line):
    with rejects(AnnotationError, setting=None, value=line, path=tmp_path / "td500" / "a.gt"):
        read(tmp_path, "td500", f"0 0 10 10 80 20 0\n{line}\n")


def test_voc_reads_rotated_boxes_and_leaves_other_objects_out(tmp_path):
    rotated = "<robndbox><cx>30</cx><cy>40</cy><w>20</w><h>10</h><angle>1.570796327</angle></robndbox>"
    logo = "<object><name>logo</name><bndbox/></object>"
    content = XML["pascal_voc"].replace(
        "</annotation>", f"<object><name>text</name>{rotated}</object>{logo}</annotation>"
    )
    found = read(tmp_path, "pascal_voc", content)
    assert found.pages["a.jpg"].words[2].points == [[35, 30], [35, 50], [25, 50], [25, 30]]
    assert (found.pages["a.jpg"].size, len(found.notes)) == ((100, 200), 1)
    with rejects(AnnotationError, setting=None, value="", path=tmp_path / "pascal_voc" / "a.xml"):
        read(tmp_path, "pascal_voc", XML["pascal_voc"].replace("<xmin>10</xmin>", "", 1))


def page_xml(inner):
    return f'<p:PcGts xmlns:p="x"><p:Page imageFilename="a.jpg">{inner}</p:Page></p:PcGts>'.replace(
        "<T", "<p:T"
    ).replace("</T", "</p:T")


def test_page_xml_reads_words_before_lines_and_lines_before_regions(tmp_path):
    coords = '<p:Coords points="1,2 9,2 9,5"/>'
    line = f'<TextLine>{coords}<p:Word id="w">{coords}</p:Word><p:Word>{coords}</p:Word></TextLine>'
    second = (
        f'<TextLine>{coords}<TextEquiv index="1"><p:Unicode>b</p:Unicode></TextEquiv>'
        '<TextEquiv index="0"><p:Unicode>a</p:Unicode></TextEquiv></TextLine>'
    )
    table = f'<p:TableRegion><TextRegion primaryLanguage="German">{coords}{line}{second}</TextRegion></p:TableRegion>'
    found = read(tmp_path, "page_xml", page_xml(f"{table}<TextRegion>{coords}</TextRegion>"))
    words = found.pages["a.jpg"].words
    assert [word.ignore for word in words] == [False, False, False, True]
    assert [word.text for word in words] == [None, None, "a", None]
    assert [word.language for word in words] == ["German"] * 3 + [None]


def test_page_xml_of_2010_has_points_as_elements(tmp_path):
    points = "".join(f'<p:Point x="{x}" y="{y}"/>' for x, y in ((1, 2), (9, 2), (9, 5)))
    found = read(tmp_path, "page_xml", page_xml(f"<TextRegion><p:Coords>{points}</p:Coords></TextRegion>"))
    assert found.pages["a.jpg"].words[0].points == [[1, 2], [9, 2], [9, 5]]
    with rejects(AnnotationError, setting="points", value="1,2 9", path=tmp_path / "page_xml" / "a.xml"):
        read(tmp_path, "page_xml", page_xml('<TextRegion id="r"><p:Coords points="1,2 9"/></TextRegion>'))


def test_mmocr_reads_boxes_where_there_are_no_polygons(tmp_path):
    page = {"img_path": "textdet_imgs/train/a.jpg", "instances": [{"bbox": [1, 2, 9, 5], "bbox_label": 0}]}
    found = read(tmp_path, "mmocr", {"metainfo": {}, "data_list": [page]})
    assert found.pages["textdet_imgs/train/a.jpg"].words[0].points == corners((1, 2, 9, 5))


def test_lsvt_finds_the_images_by_their_stem_and_keeps_its_prefix(tmp_path):
    word = {"transcription": "a", "points": corners((1, 2, 9, 5)), "language": "Latin"}
    found = read(tmp_path, "lsvt", {"gt_0": [word], "gt_1": []})
    assert list(found.pages) == ["gt_0.jpg", "gt_1.jpg"]
    assert found.pages["gt_0.jpg"].words[0].language == "Latin"
    (tmp_path / "gt_0.png").touch()
    (tmp_path / "gt_1.jpg").touch()
    assert list(read(tmp_path, "lsvt", {"gt_0": [word], "gt_1": []}, image_path=tmp_path).pages) == [
        "gt_0.png",
        "gt_1.jpg",
    ]


def test_doctr_polygons_may_be_by_class(tmp_path):
    box, other = corners((1, 2, 9, 5)), corners((1, 9, 9, 12))
    root = {"a.png": {"img_dimensions": [9, 9], "img_hash": "x", "polygons": {"words": [box], "logo": [other, other]}}}
    found = read(tmp_path, "doctr", root)
    assert [word.points for word in found.pages["a.png"].words] == [box]
    assert "2 of logo" in found.notes[0]


def test_hiertext_ignores_what_is_not_taken_apart_to_words(tmp_path):
    vertices = corners((1, 2, 9, 5))
    word = {"vertices": vertices, "text": "a", "legible": True}
    lines = [{"vertices": vertices, "words": [word, {**word, "legible": False}]}, {"vertices": vertices, "text": "b"}]
    paragraphs = [{"vertices": vertices, "lines": lines}, {"vertices": vertices, "lines": [], "legible": False}]
    page = {"image_id": "a", "paragraphs": paragraphs}
    words = read(tmp_path, "hiertext", {"info": {}, "annotations": [page]}).pages["a.jpg"].words
    assert [word.ignore for word in words] == [False, True, True, True]


def test_cord_and_funsd_name_the_word_that_is_damaged(tmp_path):
    broken = {**JSON["cord"], "valid_line": [{"words": [{"quad": {**quad((1, 2, 9, 5)), "x3": None}, "text": "a"}]}]}
    with rejects(AnnotationError, setting="quad", value=None, path=tmp_path / "cord" / "a.json"):
        read(tmp_path, "cord", broken)
    with rejects(AnnotationError, setting="box", value=[1, 2, 3], path=tmp_path / "funsd" / "a.json"):
        read(tmp_path, "funsd", {"form": [{"words": [{"box": [1, 2, 3], "text": "a"}]}]})


def test_wildreceipt_ignores_its_class_of_that_name_and_names_damaged_lines(tmp_path):
    line = {"file_name": "image_files/a.jpeg", "height": 9, "width": 9, "annotations": []}
    word = {"box": [1, 2, 9, 2, 9, 5, 1, 5], "text": "a", "label": 0}
    found = read(tmp_path, "wildreceipt", json.dumps({**line, "annotations": [word, {**word, "label": 1}]}))
    assert [word.ignore for word in found.pages["image_files/a.jpeg"].words] == [True, False]
    old = {**line, "file_name": "b.jpeg", "annotations": [{"segmentation": [[1, 2]], "bbox": [1, 2, 3, 4]}]}
    with rejects(AnnotationError, value=[[1, 2]], path=tmp_path / "wildreceipt" / "a.txt") as caught:
        read(tmp_path, "wildreceipt", f"{json.dumps(line)}\n{json.dumps(old)}\n{{")
    assert [" line 2: " in fault or " line 3: " in fault for fault in str(caught.value).split("\n")] == [True, True]
