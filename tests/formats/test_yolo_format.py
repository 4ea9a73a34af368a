"""YOLO as ultralytics, labelImg and Darknet write it: shares become pixels, classes are named by the files around."""

import pytest
import yaml
from PIL import Image
from rejection import rejects

from ocr.errors import AnnotationError, ConfigError
from ocr.formats import Annotations, Page, Word, read_annotations, write_annotations

DETECT = "0 0.5 0.1 0.8 0.1\n0 0.35 0.25 0.5 0.1\n"
SEGMENT = "0 0.1 0.1 0.9 0.1 0.9 0.2\n0 0.1 0.3 0.5 0.25 0.9 0.3 0.9 0.4 0.1 0.4\n"
ORIENTED = "0 0.1 0.1 0.9 0.12 0.9 0.2 0.1 0.18\n"
BOX = [[10, 10], [90, 10], [90, 30], [10, 30]]


@pytest.fixture
def data(tmp_path):
    """A dataset of ultralytics: two splits, a page without a file, a photograph that is stored on its side."""
    for split, names in {"train": ("a.jpg", "empty.png"), "val": ("b.jpg", "turned.jpg")}.items():
        (tmp_path / "images" / split).mkdir(parents=True)
        (tmp_path / "labels" / split).mkdir(parents=True)
        for name in names:
            exif = Image.Exif()
            exif[0x0112] = 6 if name == "turned.jpg" else 1
            size = (200, 100) if name == "turned.jpg" else (100, 200)
            Image.new("L", size).save(tmp_path / "images" / split / name, exif=exif)
    (tmp_path / "labels/train/a.txt").write_text(DETECT)
    (tmp_path / "labels/val/b.txt").write_text(SEGMENT)
    (tmp_path / "labels/val/turned.txt").write_text(ORIENTED)
    (tmp_path / "data.yaml").write_text(
        "# made by a labelling tool\npath: .\ntrain: images/train\nval: images/val\nnc: 1\nnames: ['text']\n"
    )
    return tmp_path


def points_of(page):
    return [word.points for word in page.words]


def test_boxes_polygons_and_oriented_boxes_become_pixels_of_the_upright_page(data):
    train = read_annotations(data / "labels/train", image_path=data / "images/train")
    assert train.format == "yolo"
    assert points_of(train.pages["a.jpg"]) == [BOX, [[10, 40], [60, 40], [60, 60], [10, 60]]]
    val = read_annotations(data / "labels/val", image_path=data / "images/val")
    assert points_of(val.pages["b.jpg"])[0] == [[10, 20], [90, 20], [90, 40]]
    assert len(points_of(val.pages["b.jpg"])[1]) == 5
    assert points_of(val.pages["turned.jpg"]) == [[[10, 20], [90, 24], [90, 40], [10, 36]]]
    assert {page.size for page in (*train.pages.values(), *val.pages.values())} == {(100, 200)}


def test_an_image_without_a_file_is_a_page_without_text_and_is_noted(data):
    found = read_annotations(data / "labels/train", image_path=data / "images/train")
    assert found.pages["empty.png"] == Page((), (100, 200))
    (note,) = found.notes
    assert "1 images have no file" in note


@pytest.mark.parametrize("line", ["0 0.5 0.1 0.8 0.1 0.93", f"{ORIENTED.strip()} 0.5"])
def test_the_confidence_of_a_prediction_is_no_coordinate(data, line):
    (data / "labels/train/a.txt").write_text(line)
    (word,) = read_annotations(data / "labels/train", image_path=data / "images/train").pages["a.jpg"].words
    assert len(word.points) == 4


def test_data_yaml_stands_for_the_labels_of_the_images_that_are_named(data):
    for split in ("train", "val"):
        images = data / "images" / split
        assert read_annotations(data / "data.yaml", image_path=images) == read_annotations(
            data / "labels" / split, "yolo", images
        )
    with rejects(AnnotationError, setting="image_path", value=["train", "val"], path=data / "data.yaml"):
        read_annotations(data / "data.yaml")
    with rejects(AnnotationError, setting="annotation_path", path=data / "data.yaml"):
        read_annotations(data / "data.yaml", image_path=data / "labels/val")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.yaml", "names: {0: text, 1: logo, 2: ignore}"),
        ("data.yaml", "names:\n- text\n- logo\n- ignore\n"),
        ("receipts.yml", "names: [text, logo, ignore]"),
        ("labels/train/classes.txt", "text\nlogo\nignore\n"),
        ("obj.names", "text\nlogo\nignore\n"),
    ],
)
def test_classes_that_are_not_text_are_left_out_and_a_class_ignore_is_ignored(data, name, content):
    (data / "data.yaml").unlink()
    (data / name).write_text(content)
    (data / "labels/train/a.txt").write_text("0 0.5 0.1 0.8 0.1\n1 0.5 0.5 0.1 0.1\n2 0.5 0.8 0.1 0.1\n")
    found = read_annotations(data / "labels/train", image_path=data / "images/train")
    assert [(word.key, word.ignore) for word in found.pages["a.jpg"].words] == [("0001", False), ("0003", True)]
    assert any("1 of logo" in note for note in found.notes)
    chosen = read_annotations(data / "labels/train", "auto", data / "images/train", ["logo"])
    assert [word.key for word in chosen.pages["a.jpg"].words] == ["0002", "0003"]
    with rejects(ConfigError, setting="annotation_categories", value="txt"):
        read_annotations(data / "labels/train", "auto", data / "images/train", ["txt"])


def test_pixels_in_place_of_shares_and_a_missing_image_are_named(data):
    file = data / "labels/train/a.txt"
    file.write_text("0 0.5 0.1 0.8 0.1\n0 523 467 315 40\n")
    with rejects(AnnotationError, value="0 523 467 315 40", path=file):
        read_annotations(data / "labels/train", "yolo", data / "images/train")
    (data / "images/train/a.jpg").unlink()
    with rejects(AnnotationError, setting="image_path", value="a.jpg", path=data / "images/train/a.jpg"):
        read_annotations(data / "labels/train", "yolo", data / "images/train")


WRITTEN = Annotations("x", "native", {"a.jpg": Page((Word("1", BOX), Word("2", BOX[:3], "x", True)), (100, 200))})


def test_written_labels_are_where_ultralytics_looks_and_come_back(data):
    (data / "data.yaml").unlink()
    losses = write_annotations(WRITTEN, data / "labels/train", "yolo")
    assert (
        data / "labels/train/a.txt"
    ).read_text() == "0 0.1 0.05 0.9 0.05 0.9 0.15 0.1 0.15\n1 0.1 0.05 0.9 0.05 0.9 0.15\n"
    assert yaml.safe_load((data / "data.yaml").read_text()) == {
        "path": ".",
        "train": "images/train",
        "names": {0: "text", 1: "ignore"},
    }
    assert ["class ignore" in losses[0], "text of 1 words" in losses[1]] == [True, True]
    found = read_annotations(data / "data.yaml", image_path=data / "images/train").pages["a.jpg"]
    assert [(word.points, word.ignore) for word in found.words] == [(BOX, False), (BOX[:3], True)]


def test_a_data_yaml_keeps_its_splits_and_is_never_given_other_classes(data):
    write_annotations(WRITTEN, data / "labels/test", "yolo")
    assert yaml.safe_load((data / "data.yaml").read_text()) == {
        "path": ".", "train": "images/train", "val": "images/val", "test": "images/test", "nc": 2,
        "names": {0: "text", 1: "ignore"},
    }  # fmt: skip
    (data / "data.yaml").write_text("names: [receipt, logo]")
    with rejects(AnnotationError, value=["receipt", "logo"], path=data / "data.yaml"):
        write_annotations(WRITTEN, data / "labels/test", "yolo")
