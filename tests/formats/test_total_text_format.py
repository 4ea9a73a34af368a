"""Total-Text in its own notation and as plain polygons."""

import pytest
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations
from ocr.formats.curved_text import parse_total_text

RECORDS = """\
x: [[206 251 386 542 620 646 550 358 189 140]], y: [[ 633  811  931  946  926  976 1009  989  845  629]], \
ornt: [u'c'], transcriptions: [u'PETROSAINS']
x: [[2 8 10
 8 2]], y: [[10 8 12
 16 14]], ornt: [u'h'], transcriptions: [u"Joe's"]
x: [[ -3 105 105 -3]], y: [[  1   1 -20  20]], ornt: [u'#'], transcriptions: [u'#']
x: [[1 9 9]], y: [[1 1 5]], ornt: [u'm'], transcriptions: [u'caf\\xe9, 24']
x: [[1 9 9]], y: [[1 1 5]], ornt: [], transcriptions: []
"""


def test_records_are_read_over_line_breaks_escapes_and_quotes():
    words = parse_total_text(RECORDS, "poly_gt_img1.txt")
    assert [(word.text, word.ignore, word.orientation) for word in words] == [
        ("PETROSAINS", False, "curved"),
        ("Joe's", False, "horizontal"),
        ("#", True, None),
        ("café, 24", False, "multi-oriented"),
        (None, True, None),
    ]
    assert words[0].points[:2] == [[206, 633], [251, 811]]
    assert words[1].points == [[2, 10], [8, 8], [10, 12], [8, 16], [2, 14]]
    assert words[2].points[0] == [-3, 1]


def test_plain_polygons_have_any_number_of_points_and_numbers_for_text():
    words = parse_total_text(
        "0,0,9,0,9,5,The, end\n0,0,9,0,9,5,5,7,0,5,2024\n0,0,9,0,9,5,###\n0,0,9,0,9,5\n", "img1.txt"
    )
    assert [(len(word.points), word.text, word.ignore) for word in words] == [
        (3, "The, end", False),
        (5, "2024", False),
        (3, "###", True),
        (3, None, False),
    ]


@pytest.mark.parametrize(
    "record",
    [
        "x: [[1 2 3]], y: [[1 2 3]]",
        "x: [[1 2 b]], y: [[1 2 3]], ornt: [u'c'], transcriptions: [u'a']",
        "x: [[1 2 3]], y: [[1 2 3]], ornt: [u'c'], transcriptions: [u'a]",
        "x: [[1 2 3]], y: [[1 2 3]], ornt: [u'c'], transcriptions: [5]",
    ],
)
def test_a_broken_record_is_named_by_its_line(record):
    with rejects(AnnotationError, value=record) as caught:
        parse_total_text(RECORDS + record, "img1.txt")
    assert str(caught.value).startswith("img1.txt, line 8:")


def test_unequal_numbers_of_x_and_y_are_counted_in_the_error():
    record = "x: [[1 2 3]], y: [[1 2]], ornt: [u'c'], transcriptions: [u'a']"
    with rejects(AnnotationError, value=record) as caught:
        parse_total_text(record, "img1.txt")
    assert "3 x for 2 y" in str(caught.value)


def test_text_before_the_first_record_and_lines_without_a_polygon_are_refused():
    for number, line, text in (
        (1, "hello", "hello\n" + RECORDS),
        (2, "1,2,3,4,two", "0,0,9,0,9,5,one\n1,2,3,4,two\n"),
    ):
        with rejects(AnnotationError, value=line) as caught:
            parse_total_text(text, "img1.txt")
        assert str(caught.value).startswith(f"img1.txt, line {number}:")


def test_a_straight_word_keeps_its_numbers_as_text_and_an_outline_its_points():
    words = parse_total_text(
        "310,820,590,818,591,851,311,853,1,000.50\n0,0,100,0,100,40,10,44,0,30\n",
        "a.txt",
    )
    assert [(len(word.points), word.text) for word in words] == [(4, "1,000.50"), (5, None)]


def test_plain_polygons_have_the_marks_of_adelaidet():
    words = parse_total_text("0,0,9,0,9,5,####one\n0,0,9,0,9,5,#######\n", "0000001.txt")
    assert [(word.text, word.ignore) for word in words] == [("one", False), ("###", True)]


def test_regions_of_one_point_are_skipped_and_all_named_with_their_line(tmp_path):
    record = "x: [[115]], y: [[322]], ornt: [u'#'], transcriptions: [u'#']\n"
    (tmp_path / "poly_gt_img1.txt").write_text(RECORDS + record)
    (tmp_path / "poly_gt_img2.txt").write_text(record)
    (tmp_path / "poly_gt_img3.txt").write_text("0,0,9,0,9,5,one\n115,322,###\n")
    found = read_annotations(tmp_path)
    assert {name: len(page.words) for name, page in found.pages.items()} == {
        "img1.jpg": 5,
        "img2.jpg": 0,
        "img3.jpg": 1,
    }
    assert [note.removeprefix(f"{tmp_path}/").split(":")[0] for note in found.notes] == [
        "poly_gt_img1.txt, line 8",
        "poly_gt_img2.txt, line 1",
        "poly_gt_img3.txt, line 2",
    ]


def test_broken_records_of_all_files_are_listed_at_once(tmp_path):
    bad = "x: [[1 2]], y: [[1]], ornt: [u'c'], transcriptions: [u'a']\n"
    (tmp_path / "a.txt").write_text(bad + RECORDS + bad)
    (tmp_path / "b.txt").write_text(bad)
    with rejects(AnnotationError, value=bad.strip(), path=tmp_path / "a.txt") as caught:
        read_annotations(tmp_path)
    places = [message.removeprefix(f"{tmp_path}/").split(":")[0] for message in str(caught.value).split("\n")]
    assert places == ["a.txt, line 1", "a.txt, line 9", "b.txt, line 1"]
