"""ALTO as libraries, Tesseract, ABBYY, Kraken and eScriptorium write it: versions, units, lines, strings, polygons."""

import pytest
from PIL import Image
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import Page, read_annotations

# Of a newspaper in METS/ALTO: version 2, tenths of a millimetre, hyphenated words, a block that nobody read.
LIBRARY = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v2#" xmlns:xlink="http://www.w3.org/1999/xlink"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<Description><MeasurementUnit>UNIT</MeasurementUnit>
<sourceImageInformation><fileName>/data/scans/0042.tif</fileName></sourceImageInformation></Description>
<Styles><TextStyle ID="TS10" FONTSIZE="10"/></Styles>
<Layout><Page ID="Page1" PHYSICAL_IMG_NR="42" WIDTH="2000" HEIGHT="3000">
<PrintSpace HPOS="0" VPOS="0" WIDTH="2000" HEIGHT="3000">
<ComposedBlock ID="CB1"><TextBlock ID="TB1" language="de" HPOS="100" VPOS="100" WIDTH="900" HEIGHT="80">
<TextLine HPOS="100" VPOS="100" WIDTH="900" HEIGHT="80">
<String ID="S1" CONTENT="Buch" HPOS="100" VPOS="100" WIDTH="400" HEIGHT="80" WC="0.98"/><SP WIDTH="20"/>
<String ID="S2" CONTENT="druk" SUBS_TYPE="HypPart1" SUBS_CONTENT="x" HPOS="520" VPOS="100" WIDTH="400" HEIGHT="80"/>
<HYP CONTENT="-" HPOS="920" VPOS="100" WIDTH="20"/></TextLine></TextBlock></ComposedBlock>
<Illustration ID="I1" HPOS="0" VPOS="1000" WIDTH="500" HEIGHT="500"/>
<TextBlock ID="TB2" HPOS="100" VPOS="2000" WIDTH="900" HEIGHT="80"/>
</PrintSpace></Page></Layout></alto>"""
# Of eScriptorium: version 4, pixels, the line drawn, all of its text in one string; a type of line in the tags.
DRAWN = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#">
<Description><MeasurementUnit>pixel</MeasurementUnit>
<sourceImageInformation><fileName>0042.jpg</fileName></sourceImageInformation></Description>
<Tags><OtherTag ID="LT1" LABEL="default" DESCRIPTION="line type"/><OtherTag ID="LT2" LABEL="Illegible"/></Tags>
<Layout><Page WIDTH="100" HEIGHT="150" PHYSICAL_IMG_NR="0" ID="p"><PrintSpace>
<TextBlock ID="b" LANG="la"><Shape><Polygon POINTS="0 0 99 0 99 99"/></Shape>
<TextLine ID="l1" TAGREFS="LT1" BASELINE="5 9 40 9" HPOS="5" VPOS="2" WIDTH="35" HEIGHT="8">
<Shape><Polygon POINTS="5 2 40 3 40 10 5 9"/></Shape>
<String CONTENT="In principio" HPOS="5" VPOS="2" WIDTH="35" HEIGHT="8"></String></TextLine>
<TextLine ID="l2" TAGREFS="LT2" HPOS="5" VPOS="20" WIDTH="35" HEIGHT="8">
<Shape><Polygon POINTS="5,20 40,20 40,28"/></Shape></TextLine>
<TextLine ID="l3" HPOS="5" VPOS="40" WIDTH="35" HEIGHT="8">
<String CONTENT="a" HPOS="5" VPOS="40" WIDTH="9" HEIGHT="8">
<Shape><Polygon POINTS="5,40,15,40,15,48"/></Shape></String>
<String CONTENT="b" HPOS="25" VPOS="40" WIDTH="15" HEIGHT="8"/></TextLine>
</TextBlock></PrintSpace></Page></Layout></alto>"""


def write(folder, content, name="0042.xml"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    return folder / name


@pytest.fixture
def images(tmp_path):
    (tmp_path / "images").mkdir()
    Image.new("L", (100, 150)).save(tmp_path / "images" / "0042.jpg")
    return tmp_path / "images"


@pytest.mark.parametrize("unit", ["mm10", "inch1200"])
def test_units_other_than_pixels_are_scaled_to_the_image_that_is_found_by_the_name_of_the_file(tmp_path, images, unit):
    file = write(tmp_path / "alto", LIBRARY.replace("UNIT", unit))
    found = read_annotations(file, image_path=images)
    assert found.format == "alto"
    assert found.pages["0042.jpg"].size == (100, 150)
    first, second, block = found.pages["0042.jpg"].words
    assert first.points == [[5, 5], [25, 5], [25, 9], [5, 9]]
    assert [(word.text, word.language, word.ignore) for word in (first, second, block)] == [
        ("Buch", "de", False), ("druk", "de", False), (None, None, True)
    ]  # fmt: skip
    assert read_annotations(file.parent, image_path=images).pages == found.pages
    with rejects(AnnotationError, setting="image_path", path=file):
        read_annotations(file)


def test_pixels_need_no_image(tmp_path):
    (page,) = read_annotations(write(tmp_path, LIBRARY.replace("UNIT", "pixel"))).pages.values()
    assert page.size == (2000, 3000)
    assert page.words[0].points[2] == [500, 180]


def test_a_line_that_is_drawn_around_its_only_string_keeps_its_outline(tmp_path):
    page = read_annotations(write(tmp_path, DRAWN)).pages["0042.jpg"]
    assert page == Page(page.words, (100, 150))
    assert [(word.points, word.text, word.ignore) for word in page.words] == [
        ([[5, 2], [40, 3], [40, 10], [5, 9]], "In principio", False),
        ([[5, 20], [40, 20], [40, 28]], None, True),
        ([[5, 40], [15, 40], [15, 48]], "a", False),
        ([[25, 40], [40, 40], [40, 48], [25, 48]], "b", False),
    ]
    assert {word.language for word in page.words} == {"la"}


@pytest.mark.parametrize(
    "namespace", ["http://schema.ccs-gmbh.com/ALTO", "http://www.loc.gov/standards/alto/ns-v3#", "x"]
)
def test_every_namespace_and_a_prefix_are_read(tmp_path, namespace):
    content = DRAWN.replace("http://www.loc.gov/standards/alto/ns-v4#", namespace)
    assert len(read_annotations(write(tmp_path, content)).pages["0042.jpg"].words) == 4


@pytest.mark.parametrize(
    ("change", "setting", "value"),
    [
        (("<MeasurementUnit>pixel", "<MeasurementUnit>dpi"), "MeasurementUnit", "dpi"),
        (('POINTS="5 2 40 3 40 10 5 9"', 'POINTS="5 2 40"'), "POINTS", "5 2 40"),
        (('POINTS="5 2 40 3 40 10 5 9"', 'POINTS="a b"'), "POINTS", "a"),
        (("<PrintSpace>", "<PrintSpace/></Page><Page><PrintSpace>"), None, 2),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, change, setting, value):
    file = write(tmp_path, DRAWN.replace(*change))
    with rejects(AnnotationError, setting=setting, value=value, path=file):
        read_annotations(file)
