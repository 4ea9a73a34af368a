"""One entry for all formats: detection, image names, and what may be wrong with files and folders."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rejection import rejects

from ocr.errors import AnnotationError, ConfigError
from ocr.formats import FORMATS, read_annotations
from ocr.formats.foreign import SUFFIXES

QUAD = "1,2,9,2,9,5,1,5"
CURVE = "0,0,5,1,9,0,9,5,5,6,0,5"
LABELS = {
    "icdar2015": [f"{QUAD},10,50\n{QUAD},a\n", f"{QUAD}\n", f"{QUAD},2015\n{QUAD},1,000,000\n"],
    "icdar2013": ['1 2 9 5 "a"\n', '1, 2, 9, 5, "Tel, Fax"\n', '1,2,9,5,"2015"\n'],
    "total_text": [
        "x: [[1 2\n 3]], y: [[4 5 6]], ornt: [u'c'], transcriptions: [u'a']\n",
        f"{QUAD},a\n{QUAD},b\n{CURVE},c\n",
        "0,0,9,0,9,5,a\n",
    ],
    "ctw1500": [
        f"{CURVE},####a\n",
        ",".join(["7"] * 32) + "\n",
        "<a><image><box><segs>0,0,9,0,9,5</segs></box></image></a>",
    ],
}
FILES = {
    "native": '{"images": {"a.jpg": {"words": {"1": {"points": [[0, 0], [9, 0], [9, 5]]}}}}}',
    "coco": '{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": []}',
    "paddle": '\na.jpg\t[{"points": [[0, 0], [9, 0], [9, 5]], "transcription": "a"}]\n',
}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["images", "annotations", "words", "points", "id", "image_id", "file_name", "bbox"]), inner
        )
    ),
    max_leaves=12,
)


def format_or_complaint(path, format):
    """An error that does not name the file is returned whole, and so fails the test."""
    try:
        return read_annotations(path, format).format
    except AnnotationError as error:
        return "a complaint" if path.name in str(error) else str(error)


def test_every_format_is_covered_here():
    assert list(FORMATS)[:7] == ["native", "icdar2015", "icdar2013", "total_text", "ctw1500", "coco", "paddle"]


@pytest.mark.parametrize(("format", "content"), [(name, text) for name, texts in LABELS.items() for text in texts])
def test_auto_finds_the_format_of_a_folder_and_of_one_file_in_it(tmp_path, format, content):
    (tmp_path / "a0.txt").write_text("\n")
    (tmp_path / "a1.txt").write_text(content)
    (tmp_path / "._a1.txt").write_bytes(b"\x00\xff")
    (tmp_path / "notes.md").write_text("not an annotation")
    found = read_annotations(tmp_path)
    assert found.format == format
    assert list(found.pages) == ["a0.jpg", "a1.jpg"]
    assert found.pages["a0.jpg"].words == ()
    assert found.pages == read_annotations(tmp_path, format).pages
    single = read_annotations(tmp_path / "a1.txt")
    assert (single.format, single.pages) == (format, {"a1.jpg": found.pages["a1.jpg"]})


@pytest.mark.parametrize("format", FILES)
def test_auto_finds_the_format_of_a_file(tmp_path, format):
    path = tmp_path / "annotations"
    path.write_bytes(b"\xef\xbb\xbf" + FILES[format].encode())
    found = read_annotations(path)
    assert found.format == format
    assert list(found.pages) == ["a.jpg"]
    assert found == read_annotations(str(path), format)


def test_an_unknown_format_is_refused_with_the_names_that_are_known(tmp_path):
    with rejects(ConfigError, setting="annotation_format", value="icdar15") as caught:
        read_annotations(tmp_path, "icdar15")
    assert all(name in str(caught.value) for name in ("auto", *FORMATS))


@pytest.mark.parametrize(
    ("label", "images", "expected"),
    [
        ("gt_img_1.txt", ["img_1.png"], "img_1.png"),
        ("poly_gt_img1.txt", ["img1.JPG"], "img1.JPG"),
        ("res_img_1.txt", ["img_1.tiff"], "img_1.tiff"),
        ("gt_1.txt", ["gt_1.jpg", "1.jpg"], "gt_1.jpg"),
        ("img11.jpg.txt", ["img11.jpg", "img11.png"], "img11.jpg"),
        ("img11.jpg.txt", ["img11.png"], "img11.png"),
        ("0001001.txt", ["1001.jpg"], "1001.jpg"),
        ("gt_missing.txt", ["other.jpg", "missing.md"], "missing.jpg"),
    ],
)
def test_the_image_of_a_label_is_found_by_its_stem(tmp_path, label, images, expected):
    labels, folder = tmp_path / "labels", tmp_path / "images"
    labels.mkdir()
    folder.mkdir()
    (labels / label).write_text(f"{QUAD},a\n")
    for image in images:
        (folder / image).touch()
    assert list(read_annotations(labels, image_path=folder).pages) == [expected]


def test_without_an_image_folder_the_image_is_a_jpg(tmp_path):
    for name in ("gt_img_1.txt", "b.txt", "c.png.txt"):
        (tmp_path / name).write_text(f"{QUAD},a\n")
    assert list(read_annotations(tmp_path).pages) == ["b.jpg", "c.png", "img_1.jpg"]


def test_a_label_between_two_images_asks_for_a_rename(tmp_path):
    (tmp_path / "a.txt").write_text(f"{QUAD},a\n")
    (tmp_path / "a.png").touch()
    (tmp_path / "a.webp").touch()
    with rejects(AnnotationError, value=["a.png", "a.webp"], path=tmp_path / "a.txt"):
        read_annotations(tmp_path, image_path=tmp_path)


def test_two_labels_for_one_image_are_refused(tmp_path):
    for name in ("gt_a.txt", "a.txt"):
        (tmp_path / name).write_text(f"{QUAD},a\n")
    with rejects(AnnotationError, value="a.jpg", path=tmp_path / "gt_a.txt"):
        read_annotations(tmp_path)


def test_a_missing_path_or_image_folder_is_named(tmp_path):
    with rejects(AnnotationError, setting="annotation_path", path=tmp_path / "gone.json"):
        read_annotations(tmp_path / "gone.json")
    (tmp_path / "a.json").write_text(FILES["native"])
    with rejects(AnnotationError, setting="image_path", value=tmp_path / "gone", path=tmp_path / "gone"):
        read_annotations(tmp_path / "a.json", image_path=tmp_path / "gone")


def test_a_folder_without_annotations_is_named(tmp_path):
    with rejects(AnnotationError, setting="annotation_path", value=None, path=tmp_path):
        read_annotations(tmp_path)


@pytest.mark.parametrize("format", ["native", "coco", "paddle"])
def test_a_folder_is_refused_for_a_format_of_one_file(tmp_path, format):
    with rejects(AnnotationError, setting="annotation_format", value=format, path=tmp_path):
        read_annotations(tmp_path, format)


@pytest.mark.parametrize("format", ["auto", "native", "coco", "paddle"])
def test_an_empty_file_is_named(tmp_path, format):
    (tmp_path / "a.json").touch()
    with rejects(AnnotationError, value="", path=tmp_path / "a.json"):
        read_annotations(tmp_path / "a.json", format)


@pytest.mark.parametrize("format", ["native", "coco"])
def test_text_that_is_not_json_is_named(tmp_path, format):
    (tmp_path / "a.txt").write_text(f"{QUAD},a\n")
    with rejects(AnnotationError, value="Extra data: line 1 column 2 (char 1)", path=tmp_path / "a.txt"):
        read_annotations(tmp_path / "a.txt", format)


@pytest.mark.parametrize(
    ("content", "value", "lines", "held"),
    [
        (f"{QUAD},a\nhello\n1,2,3\n", "hello", [2, 3], " 0 numbers "),
        ("1,2,9,5,2015\n", "1,2,9,5,2015", [1], " 5 numbers "),
        ("1,2,3\n", "1,2,3", [1], " 3 numbers "),
    ],
)
def test_lines_in_no_known_format_are_listed_with_what_each_format_has(tmp_path, content, value, lines, held):
    path = tmp_path / "a.txt"
    path.write_text(content)
    for source in (tmp_path, path):
        with rejects(AnnotationError, setting=None, value=value, path=path) as caught:
            read_annotations(source)
        *listed, tried = str(caught.value).split("\n")
        assert [line.split(": ")[0] for line in listed] == [f"{path}, line {number}" for number in lines]
        assert held in str(caught.value)
        assert [
            name for name in ("paddle", "icdar2013", "icdar2015", "total_text", "ctw1500") if name not in tried
        ] == []


def test_files_without_a_polygon_show_no_format(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("115,322,###\n")
    for source in (tmp_path, path):
        with rejects(AnnotationError, setting="annotation_format", path=source):
            read_annotations(source)
    path.write_text("\n")
    with rejects(AnnotationError, setting="annotation_format", path=tmp_path):
        read_annotations(tmp_path)
    with rejects(AnnotationError, setting=None, value="", path=path):
        read_annotations(path)


def write_labels(folder, *contents):
    for at, content in enumerate(contents):
        (folder / f"{at:02d}.txt").write_text(content)


@pytest.mark.parametrize(
    "others", [f"{CURVE},a\n", f"{CURVE}\n", f"{CURVE},2024\n", LABELS["total_text"][0]], ids=str.strip
)
def test_auto_looks_at_all_files_of_a_folder(tmp_path, others):
    write_labels(tmp_path, *[f"{QUAD},a\n"] * 25, others)
    found = read_annotations(tmp_path)
    assert found.format == "total_text"
    assert len(found.pages["00.jpg"].words[0].points) == 4
    assert len(found.pages["25.jpg"].words[0].points) in (3, 6)


def test_one_curved_word_leaves_the_texts_of_straight_ones_alone(tmp_path):
    write_labels(tmp_path, *["310,820,590,818,591,851,311,853,1,000.50\n"] * 25, f"{CURVE},a\n")
    found = read_annotations(tmp_path)
    assert found.format == "total_text"
    assert [(len(word.points), word.text) for word in found.pages["00.jpg"].words] == [(4, "1,000.50")]


def test_a_mixed_folder_is_refused_with_the_files_of_each_format(tmp_path):
    write_labels(tmp_path, *[f"{QUAD},a\n"] * 25, '1,2,9,5,"a"\n', LABELS["ctw1500"][2])
    with rejects(AnnotationError, value=["quad", "box", "xml"], path=tmp_path) as caught:
        read_annotations(tmp_path)
    assert "25 files: 00.txt, 01.txt, 02.txt, ...;" in str(caught.value)
    assert "1 file: 25.txt;" in str(caught.value)
    assert "1 file: 26.txt)" in str(caught.value)


def test_faults_of_all_files_are_listed_at_once_and_many_are_counted(tmp_path):
    write_labels(tmp_path, *[f"{QUAD},a\nhello\n"] * 60)
    with rejects(AnnotationError, value="hello", path=tmp_path / "00.txt") as caught:
        read_annotations(tmp_path, "icdar2015")
    messages = str(caught.value).split("\n")
    assert len(messages) == 51
    assert " 10 " in messages[-1]
    assert "00.txt, line 2" in messages[0]
    assert "49.txt, line 2" in messages[49]


@pytest.mark.parametrize(("name", "value"), [("gt.mat", ".mat"), ("gt.zip", ".zip"), ("gt.csv", "filename,file_size")])
def test_files_that_are_never_read_get_an_answer_of_their_own(tmp_path, name, value):
    path = tmp_path / name
    path.write_bytes(b"filename,file_size\n" if name.endswith("csv") else b"PK\x03\x04\xff\xfe")
    with rejects(AnnotationError, setting="annotation_path", value=path.suffix, path=tmp_path) as caught:
        read_annotations(tmp_path)
    assert SUFFIXES[path.suffix] in str(caught.value)
    with rejects(AnnotationError, value=value, path=path) as caught:
        read_annotations(path)
    assert SUFFIXES[path.suffix] in str(caught.value)


@pytest.mark.parametrize(
    ("root", "name"),
    [
        (
            {"project": {}, "config": {}, "attribute": {}, "file": {}, "metadata": {}, "view": {}},
            "VGG Image Annotator 3 (export the annotations with version 2)",
        ),
        ([{"id": 1, "ocr": "a.jpg", "annotator": 1, "annotation_id": 2}], "Label Studio's JSON-MIN (export JSON)"),
        ({"size": {"height": 9, "width": 9}, "objects": []}, "Supervisely"),
        ({"Blocks": [], "DocumentMetadata": {}}, "Amazon Textract"),
        ([{"file_name": "a.jpg"}], "a list"),
    ],
)
def test_json_of_another_format_is_refused_by_its_name(tmp_path, root, name):
    (tmp_path / "a.json").write_text(json.dumps(root))
    with rejects(AnnotationError, setting=None, value=name, path=tmp_path / "a.json") as caught:
        read_annotations(tmp_path / "a.json")
    assert ("not read" in str(caught.value)) == (name != "a list")
    assert "native" in str(caught.value)
    assert " coco, " in str(caught.value)


def test_a_label_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "a.txt").write_bytes(f"{QUAD},caf\xe9\n".encode("latin-1"))
    with rejects(AnnotationError, value=19, path=tmp_path / "a.txt"):
        read_annotations(tmp_path)


def test_a_label_that_is_a_folder_is_named(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with rejects(AnnotationError, setting="annotation_path", path=tmp_path / "a.txt"):
        read_annotations(tmp_path)


@given(root=json_values, format=st.sampled_from(["native", "coco"]))
@example(root={"images": {"a.jpg": {"img_w": 10**400, "img_h": 9}}}, format="native")
def test_no_json_whatever_breaks_the_readers(tmp_path_factory, root, format):
    path = tmp_path_factory.mktemp("json") / "a.json"
    path.write_text(json.dumps({"images": root, "annotations": root} if format == "coco" else {"images": root}))
    assert format_or_complaint(path, format) in (format, "a complaint")


@given(
    text=st.text(st.sampled_from("0123456789,, .-#\n\t[]{}<>x:y'\"u"), max_size=60),
    format=st.sampled_from(list(FORMATS)),
)
@example(text="9" * 5000 + ",1,2,3,4,5,6,7", format="icdar2015")
@example(text='<?xml version="1.0" encoding="gbk"?><a><image/></a>', format="ctw1500")
@example(text="x: [[1]], y: [[1]], ornt: [u'c'], transcriptions: [" + "[" * 500 + "]", format="total_text")
def test_no_text_whatever_breaks_the_readers(tmp_path_factory, text, format):
    path = tmp_path_factory.mktemp("text") / "a.txt"
    path.write_text(text)
    assert format_or_complaint(path, format) in (format, "a complaint")
    assert format_or_complaint(path, "auto") in (*FORMATS, "a complaint")
