"""CVAT for images 1.1: boxes, boxes turned about their middle, polygons, attributes."""

import pytest
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations

BOX = 'xtl="10" ytl="20" xbr="50" ybr="30"'


@pytest.fixture
def read(tmp_path):
    def read_shapes(shapes, **options):
        path = tmp_path / "annotations.xml"
        path.write_text(
            "<?xml version='1.0' encoding='utf-8'?>\n<annotations><version>1.1</version><meta/>"
            f'<image id="0" name="sub/a.jpg" width="100" height="200">{shapes}</image>'
            '<image id="1" name="b.jpg" width="30" height="40"/></annotations>'
        )
        return read_annotations(path, **options)

    return read_shapes


def test_a_rotated_box_turns_clockwise_about_its_middle(read):
    found = read(f'<box label="text" {BOX} rotation="90.00"/>')
    assert found.pages["sub/a.jpg"].words[0].points == [[35, 5], [35, 45], [25, 45], [25, 5]]
    assert (found.pages["sub/a.jpg"].size, found.pages["b.jpg"].words) == ((100, 200), ())


def test_attributes_are_text_flag_language_and_orientation(read):
    found = read(
        f'<box label="text" {BOX}><attribute name="Text">Jö &amp; Co</attribute>'
        '<attribute name="illegible">true</attribute><attribute name="language">de</attribute>'
        '<attribute name="orientation">curved</attribute></box>'
    )
    (word,) = found.pages["sub/a.jpg"].words
    assert (word.text, word.ignore, word.language, word.orientation) == ("Jö & Co", True, "de", "curved")


def test_other_labels_are_left_out_and_those_that_say_illegible_are_ignored(read):
    found = read(f'<box label="text" {BOX}/><box label="illegible" {BOX}/><box label="logo" {BOX}/><tag label="ok"/>')
    assert [word.ignore for word in found.pages["sub/a.jpg"].words] == [False, True]
    assert "left out 1 of logo" in found.notes[0]


def test_shapes_without_an_area_are_skipped_and_named(read):
    found = read(f'<points label="text" points="1,2"/><box label="text" {BOX}/>')
    assert len(found.pages["sub/a.jpg"].words) == 1
    (note,) = found.notes
    assert note.startswith(f"{found.path}: sub/a.jpg: points 1:")


@pytest.mark.parametrize(
    ("shapes", "setting", "value"),
    [
        ('<polygon label="text" points="1,2;3"/>', "points", "1,2;3"),
        ('<polygon label="text"/>', "points", ""),
        ('<box label="text" xtl="1" ytl="nan" xbr="3" ybr="4"/>', None, "nan"),
        ('<box label="text" xtl="1"/>', None, None),
        ('<mask label="text" rle="1,2"/>', None, "mask"),
    ],
)
def test_a_damaged_shape_is_named(read, tmp_path, shapes, setting, value):
    with rejects(AnnotationError, setting=setting, value=value, path=tmp_path / "annotations.xml") as caught:
        read(shapes)
    assert "sub/a.jpg" in str(caught.value)


def test_cvat_for_video_is_refused(tmp_path):
    (tmp_path / "a.xml").write_text('<annotations><track id="0" label="text"/></annotations>')
    with rejects(AnnotationError, value="track", path=tmp_path / "a.xml"):
        read_annotations(tmp_path / "a.xml")


@pytest.mark.parametrize(
    ("format", "entities"),
    [
        ("auto", '<!DOCTYPE a [<!ENTITY x "1"><!ENTITY y "&x;&x;">]>'),
        ("cvat", '<!-- a --><!DOCTYPE a SYSTEM "file:///etc/passwd">'),
        ("pascal_voc", '<?pi?>\n<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
        ("page_xml", '<!DOCTYPE a [<!ENTITY x "1">]>'),
        ("ctw1500", '<!DOCTYPE a [<!ENTITY x "1">]>'),
    ],
)
def test_no_document_type_is_ever_read(tmp_path, entities, format):
    (tmp_path / "a.xml").write_text(f'<?xml version="1.0"?>{entities}<annotations><image name="&x;"/></annotations>')
    with rejects(AnnotationError, value="<!DOCTYPE", path=tmp_path / "a.xml"):
        read_annotations(tmp_path / "a.xml", format)
