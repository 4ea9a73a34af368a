"""CTW1500: XML, marked text and the 32 numbers of the first release."""

import pytest
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations
from ocr.formats.curved_text import parse_ctw1500

POINTS = [[10 * at, 5] for at in range(7)] + [[60 - 10 * at, 25] for at in range(7)]
OUTLINE = ",".join(f"{x},{y}" for x, y in POINTS)
XML = f"""<Annotations>
<image file="0001.jpg">
<box height="20" left="0" top="5" width="60">
<label>Tom &amp; Co, Ltd</label>
<segs>{OUTLINE}</segs>
<pts x="1" y="2"/>
</box>
<box height="20" left="0" top="5" width="60"><label>###</label><segs>{OUTLINE}</segs></box>
</image>
</Annotations>"""


def test_the_xml_of_the_training_set_is_read(tmp_path):
    (tmp_path / "0001.xml").write_text(XML)
    annotations = read_annotations(tmp_path)
    assert annotations.format == "ctw1500"
    words = annotations.pages["0001.jpg"].words
    assert [(word.text, word.ignore) for word in words] == [("Tom & Co, Ltd", False), ("###", True)]
    assert words[0].points == POINTS


def test_the_marked_text_of_the_test_set_is_read():
    words = parse_ctw1500(f"{OUTLINE},####Tom, Dick\n{OUTLINE},#######\n{OUTLINE},###\n{OUTLINE},####\n", "0001001.txt")
    assert [(word.text, word.ignore) for word in words] == [
        ("Tom, Dick", False),
        ("###", True),
        ("###", True),
        ("", False),
    ]
    assert all(word.points == POINTS for word in words)


def test_the_32_numbers_are_a_box_and_offsets_from_its_corner():
    offsets = ",".join(f"{x},{y - 5}" for x, y in POINTS)
    (word,) = parse_ctw1500(f"100,5,160,25,{offsets}", "0001.txt")
    assert word.points == [[x + 100, y] for x, y in POINTS]
    assert word.text is None


def test_a_marked_line_of_sixteen_points_is_a_polygon_not_offsets():
    line = ",".join(map(str, range(32)))
    assert parse_ctw1500(f"{line},####a", "f.txt")[0].points[2] == [4, 5]
    assert parse_ctw1500(line, "f.txt")[0].points[0] == [4, 6]


def test_an_image_element_without_boxes_is_a_page_without_text():
    assert parse_ctw1500('<Annotations><image file="1.jpg"/></Annotations>', "1.xml") == ()


@pytest.mark.parametrize(
    ("content", "setting", "value"),
    [
        ("1,2,3,####a", None, "1,2,3,####a"),
        ("<a><b></a>", None, "mismatched tag: line 1, column 8"),
        ("<a><image><box><segs>1,2,x,4</segs></box></image></a>", "segs", "1,2,x,4"),
        ("<a><image><box><segs></segs></box></image></a>", "segs", ""),
        ("<a><image><box><label>a</label></box></image></a>", None, "a"),
        ("<a><image/></a>", None, "a"),
    ],
)
def test_a_broken_file_is_refused_with_the_culprit(content, setting, value):
    with rejects(AnnotationError, setting=setting, value=value):
        parse_ctw1500(content, "1.txt")


VOC = """<annotation><folder>x</folder><filename>a.jpg</filename><source><image>flickr</image></source>
<object><name>text</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>5</ymax></bndbox></object></annotation>"""
CVAT = """<annotations><version>1.1</version><image id="0" name="a.jpg" width="40" height="30">
<polygon label="text" points="1.0,2.0;9.0,2.0;9.0,5.0"/></image></annotations>"""
CVAT_BOX = """<annotations><image id="0" name="a.jpg" width="40" height="30">
<box label="text" xtl="1" ytl="2" xbr="9" ybr="5"/></image></annotations>"""
SVT = """<tagset><image><imageName>img/14_03.jpg</imageName><taggedRectangles>
<taggedRectangle height="75" width="236" x="375" y="253"><tag>LIVING</tag></taggedRectangle>
</taggedRectangles></image></tagset>"""


@pytest.mark.parametrize(
    ("content", "name", "format"),
    [
        (VOC, "Pascal VOC (pascal_voc)", "ctw1500"),
        (CVAT, "CVAT (cvat)", "ctw1500"),
        (CVAT_BOX, "CVAT (cvat)", "ctw1500"),
        (SVT, "SVT or ICDAR-2003", "ctw1500"),
        (SVT, "SVT or ICDAR-2003", "auto"),
    ],
)
def test_xml_of_another_format_is_refused_by_its_name(tmp_path, content, name, format):
    (tmp_path / "a.xml").write_text(content)
    (tmp_path / "b.xml").write_text(content)
    with rejects(AnnotationError, value=name, path=tmp_path / "a.xml") as caught:
        read_annotations(tmp_path, format)
    assert "b.xml: " in str(caught.value)


def test_an_xml_file_of_several_images_is_not_one_page():
    image = '<image file="1.jpg"><box><segs>0,0,9,0,9,5</segs></box></image>'
    with rejects(AnnotationError, setting=None, value="Annotations"):
        parse_ctw1500(f"<Annotations>{image}{image}</Annotations>", "1.xml")


def test_lines_of_one_point_are_skipped_and_named(tmp_path):
    (tmp_path / "a.txt").write_text(f"{OUTLINE},####a\n115,322,####\n{OUTLINE},####b\n")
    found = read_annotations(tmp_path)
    assert found.format == "ctw1500"
    assert [word.text for word in found.pages["a.jpg"].words] == ["a", "b"]
    (note,) = found.notes
    assert note.startswith(f"{tmp_path / 'a.txt'}, line 2:")
