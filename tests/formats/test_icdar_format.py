"""ICDAR text files, as the two challenges hand them out."""

import pytest
from rejection import rejects

from ocr.errors import AnnotationError
from ocr.formats import read_annotations
from ocr.formats.icdar import parse_icdar2013, parse_icdar2015

QUAD = [[377, 117], [463, 117], [465, 130], [378, 130]]


def test_icdar2015_reads_a_file_with_byte_order_mark_and_windows_line_ends(tmp_path):
    content = "\ufeff377,117,463,117,465,130,378,130,Genaxis Theatre\r\n493,115,519,115,519,131,493,131,###\r\n\r\n"
    (tmp_path / "gt_img_1.txt").write_bytes(content.encode())
    words = read_annotations(tmp_path).pages["img_1.jpg"].words
    assert [(word.key, word.text, word.ignore) for word in words] == [
        ("0001", "Genaxis Theatre", False),
        ("0002", "###", True),
    ]
    assert words[0].points == QUAD


def test_icdar2015_keeps_commas_and_quotes_in_the_text():
    (word,) = parse_icdar2015('1,2,9,2,9,5,1,5,"Joe", Inc, 10,50', "f.txt")
    assert word.text == '"Joe", Inc, 10,50'


@pytest.mark.parametrize(("ending", "text"), [("", None), (",", ""), (",2015", "2015"), (",1,000.50", "1,000.50")])
def test_icdar2015_text_may_be_missing_empty_or_a_number(ending, text):
    assert parse_icdar2015(f"1,2,9,2,9,5,1,5{ending}", "f.txt")[0].text == text


def test_icdar2015_keeps_whole_numbers_whole_and_fractions_exact():
    (word,) = parse_icdar2015("-1, 2.25, 9, 2, 9, 5e0, 1, 5, a", "f.txt")
    assert word.points == [[-1, 2.25], [9, 2], [9, 5.0], [1, 5]]
    assert type(word.points[0][0]) is int


@pytest.mark.parametrize(
    "line",
    ['158 128 411 181 "Foot, path"', '158, 128, 411, 181, "Foot, path"', '158,128,411,181,"Foot, path"'],
)
def test_icdar2013_reads_spaces_and_commas_alike(line):
    (word,) = parse_icdar2013(line, "gt_100.txt")
    assert word.points == [[158, 128], [411, 128], [411, 181], [158, 181]]
    assert word.text == "Foot, path"


def test_icdar2013_strips_only_the_outer_quotes_and_honours_ignored_words():
    words = parse_icdar2013('1 2 3 4 ""Hi""\n1, 2, 3, 4, "###"\n1,2,3,4,plain\n1 2 3 4\n', "gt_100.txt")
    assert [(word.text, word.ignore) for word in words] == [
        ('"Hi"', False),
        ("###", True),
        ("plain", False),
        (None, False),
    ]


def test_mlt_has_a_script_before_the_text():
    lines = "1,2,9,2,9,5,1,5,Latin,Tel, Fax\n1,2,9,2,9,5,1,5,Arabic,###\n1,2,9,2,9,5,1,5,None,\n"
    words = parse_icdar2015(lines, "gt_img_1.txt")
    assert [(word.text, word.ignore, word.language) for word in words] == [
        ("Tel, Fax", False, "Latin"),
        ("###", True, "Arabic"),
        ("", False, "None"),
    ]


def test_a_text_that_begins_like_a_script_is_kept_beside_one_that_does_not():
    words = parse_icdar2015("1,2,9,2,9,5,1,5,Mixed,grill\n1,2,9,2,9,5,1,5,12.50\n", "gt_img_1.txt")
    assert [(word.text, word.language) for word in words] == [("Mixed,grill", None), ("12.50", None)]


@pytest.mark.parametrize(
    ("line", "format"),
    [
        ("1,2,9,2,9,5,1,5,Total", "icdar2015"),
        ("1,2,9,2,9,5,1,Total", "quotes"),
        ("0 0 523 467 315 40 0.1", "td500"),
        ("3 1 523 467 315 40 -0.31", "td500"),
        ("12 0 1 2 3 4 0", "td500"),
        ("1,2,9,5,2015", "quotes"),
        ("1 2 9 5 12 Main", "quotes"),
        ("0 0.48 0.63 0.69 0.71", "YOLO"),
    ],
)
def test_icdar2013_refuses_a_fifth_number_and_says_what_it_looks_like(line, format):
    fine = '1 2 9 5 "fine"'
    with rejects(AnnotationError, value=line) as caught:
        parse_icdar2013(f"{fine}\n{line}\n", "gt_1.txt")
    assert str(caught.value).startswith("gt_1.txt, line 2:")
    assert [name for name in ("icdar2015", "td500", "YOLO", "quotes") if name in str(caught.value)] == [format]


def test_icdar2013_reads_numbers_in_quotes_and_texts_that_begin_with_one():
    words = parse_icdar2013('1,2,9,5,"2015"\n1 2 9 5 "1 2 3"\n1,2,9,5,12 Main St\n', "a.txt")
    assert [word.text for word in words] == ["2015", "1 2 3", "12 Main St"]


CURVES = {
    "28 numbers": ",".join(f"{10 * at},{at}" for at in range(14)),
    "12 numbers": "0,0,5,1,9,0,9,5,5,6,0,5",
    "10 numbers": "0,0,9,0,9,5,5,7,0,5",
    "a closed ring": "0,0,9,0,9,5,0,5,0,0",
}


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_icdar2015_never_takes_the_points_of_a_polygon_for_text(curve):
    for ending in (",a", "", ",2024", ",####a"):
        with rejects(AnnotationError, value=curve + ending) as caught:
            parse_icdar2015(f"1,2,9,2,9,5,1,5,fine\n{curve}{ending}\n", "a.txt")
        assert str(caught.value).startswith("a.txt, line 2:")
        assert "total_text" in str(caught.value)


def test_icdar2015_reads_texts_that_begin_with_numbers():
    texts = ["1,000", "10,50", "1,000,000", "2,4,6 & 8,JALAN", "12,50,EUR"]
    words = parse_icdar2015("".join(f"310,820,590,818,591,851,311,853,{text}\n" for text in texts), "a.txt")
    assert [word.text for word in words] == texts
    assert all(len(word.points) == 4 for word in words)


def test_icdar2015_reads_a_text_of_numbers_that_would_be_a_point_in_its_own_box():
    words = parse_icdar2015("9,48,200,51,200,81,9,81,10,50\n14,31,34,28,34,36,14,39,31,33,JALAN X\n", "a.txt")
    assert [(word.text, len(word.points)) for word in words] == [("10,50", 4), ("31,33,JALAN X", 4)]


def test_icdar2015_reads_the_marks_of_adelaidet():
    words = parse_icdar2015("1,2,9,2,9,5,1,5,####Tel\n1,2,9,2,9,5,1,5,#######\n", "0000001.txt")
    assert [(word.text, word.ignore) for word in words] == [("Tel", False), ("###", True)]


def test_icdar2015_reads_the_difficult_flag_of_rctw17(tmp_path):
    lines = '1,2,9,2,9,5,1,5,0,"Tel, 5"\n1,2,9,2,9,5,1,5,1,"dim"\n1,2,9,2,9,5,1,5,0,"###"\n'
    (tmp_path / "image_0.txt").write_text(lines)
    for format in ("auto", "icdar2015"):
        words = read_annotations(tmp_path, format).pages["image_0.jpg"].words
        assert [(word.text, word.ignore) for word in words] == [("Tel, 5", False), ("dim", True), ("###", True)]


def test_a_text_like_a_flag_is_kept_beside_one_that_is_not():
    words = parse_icdar2015('1,2,9,2,9,5,1,5,1,"dim"\n1,2,9,2,9,5,1,5,Tel\n', "a.txt")
    assert [(word.text, word.ignore) for word in words] == [('1,"dim"', False), ("Tel", False)]


def test_all_lines_that_cannot_be_read_are_listed_at_once():
    with rejects(AnnotationError, value="hello") as caught:
        parse_icdar2015("1,2,9,2,9,5,1,5,fine\nhello\n1,2,3\n", "a.txt")
    assert [message.split(":")[0] for message in str(caught.value).split("\n")] == ["a.txt, line 2", "a.txt, line 3"]


@pytest.mark.parametrize(
    ("parse", "fine"), [(parse_icdar2013, "1,2,3,4,fine"), (parse_icdar2015, "1,2,3,4,5,6,7,8,fine")]
)
@pytest.mark.parametrize("line", ["hello", "1,2,three,4,5,6,7,8,a", "1_0,2,3", "nan,2,3,4,5,6,7,8"])
def test_a_line_that_cannot_be_split_is_named(parse, fine, line):
    with rejects(AnnotationError, value=line) as caught:
        parse(f"{fine}\n\n{line}\n", "gt_1.txt")
    assert str(caught.value).startswith("gt_1.txt, line 3:")
