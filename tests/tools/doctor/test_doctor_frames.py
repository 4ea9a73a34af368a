"""EXIF pages: the doctor tells in which frame the polygons are, and what training would make of them."""

import numpy as np
import pytest
from doctor_data import BOXES, SIZE, SmallDataset, box, kinds, raw_points, text_page
from numpy.typing import NDArray
from rejection import rejects

from ocr.errors import ConfigError

TURNS = range(2, 9)
SIDEWAYS = range(5, 9)


def blank_page(size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    return np.full((size[1], size[0], 3), 255, dtype=np.uint8)


def add(dataset: SmallDataset, orientation: int, frame: str, **page: object) -> None:
    size = page.pop("page_size", SIZE)
    assert isinstance(size, tuple)
    boxes = page.pop("boxes", BOXES)
    assert isinstance(boxes, list)
    points = [raw_points(each, orientation, size) if frame == "raw" else each for each in boxes]
    words = {str(at): {"points": each} for at, each in enumerate(points)}
    dataset.add("a.jpg", words=words, orientation=orientation, **page)


def expected_kinds(frame: str) -> list[str]:
    return ["other-frame"] if frame == "raw" else []


@pytest.mark.parametrize("frame", ["raw", "upright"])
@pytest.mark.parametrize("orientation", SIDEWAYS)
def test_the_page_size_in_the_annotation_tells_the_frame(dataset: SmallDataset, orientation: int, frame: str) -> None:
    width, height = SIZE if frame == "upright" else SIZE[::-1]
    few = [box(20, 20, 60), box(30, 60, 90)]
    add(dataset, orientation, frame, image=blank_page(), boxes=few, img_w=width, img_h=height)
    report = dataset.examine()
    assert kinds(report) == expected_kinds(frame)
    assert report.splits[0].frames["a.jpg"].evidence == "the annotation's page size fits this frame"


@pytest.mark.parametrize("frame", ["raw", "upright"])
@pytest.mark.parametrize("orientation", SIDEWAYS)
def test_bounds_that_fit_one_frame_only_tell_it(dataset: SmallDataset, orientation: int, frame: str) -> None:
    add(dataset, orientation, frame, image=blank_page())
    report = dataset.examine()
    assert kinds(report) == expected_kinds(frame)
    assert report.splits[0].frames["a.jpg"].evidence == "the polygons fit into this frame only"


@pytest.mark.parametrize("frame", ["raw", "upright"])
@pytest.mark.parametrize("orientation", TURNS)
def test_the_pixels_tell_the_frame_where_sizes_cannot(dataset: SmallDataset, orientation: int, frame: str) -> None:
    square = (400, 400)
    add(dataset, orientation, frame, image=text_page(square), page_size=square, img_w=400, img_h=400)
    report = dataset.examine()
    assert kinds(report) == expected_kinds(frame)
    assert report.splits[0].frames["a.jpg"].evidence == "the polygons cover the text in this frame only"


@pytest.mark.parametrize("orientation", TURNS)
def test_two_words_are_enough_for_the_pixels(dataset: SmallDataset, orientation: int) -> None:
    few = [box(20, 20, 80), box(30, 60, 90)]
    image = text_page((400, 400), few)
    add(dataset, orientation, "raw", image=image, page_size=(400, 400), boxes=few)
    assert kinds(dataset.examine()) == ["other-frame"]


def test_an_upright_page_has_no_other_frame(dataset: SmallDataset) -> None:
    add(dataset, 1, "upright", image=text_page())
    report = dataset.examine()
    assert report.findings == ()
    assert report.splits[0].frames == {}


def test_a_blank_page_that_fits_both_ways_is_a_note(dataset: SmallDataset) -> None:
    add(dataset, 3, "upright", image=blank_page())
    report = dataset.examine()
    assert kinds(report) == ["ambiguous-frame"]
    assert report.ok
    assert "EXIF orientation 3, both frames fit; upright is used" in report.findings[0].message


def test_under_annotation_frame_raw_the_upright_page_is_the_odd_one(dataset: SmallDataset) -> None:
    add(dataset, 6, "upright", image=text_page())
    report = dataset.examine(annotation_frame="raw")
    assert kinds(report) == ["other-frame"]
    assert "polygons in the upright frame" in report.findings[0].message
    assert "annotation_frame=upright" in report.findings[0].message
    add(dataset, 6, "raw", image=text_page())
    assert dataset.examine(annotation_frame="raw").ok


def test_a_raw_page_size_over_upright_polygons_would_mislead_training(dataset: SmallDataset) -> None:
    add(dataset, 6, "upright", image=text_page(), img_w=SIZE[1], img_h=SIZE[0])
    report = dataset.examine()
    assert kinds(report) == ["other-frame"]
    assert "its page size makes training use raw" in report.findings[0].message
    assert dataset.examine(annotation_frame="upright").ok


def test_a_contradiction_that_the_pixels_cannot_settle_is_a_note(dataset: SmallDataset) -> None:
    add(dataset, 6, "upright", image=blank_page(), img_w=SIZE[1], img_h=SIZE[0])
    report = dataset.examine()
    assert "ambiguous-frame" in kinds(report)
    assert "contradict each other" in report.findings[0].message


def test_one_stray_vertex_does_not_tip_a_page_into_the_other_frame(dataset: SmallDataset) -> None:
    boxes = [*BOXES[:3], box(60, 200, 120), box(200, 30, 120)]
    add(dataset, 6, "upright", image=text_page(SIZE, boxes[:4]), boxes=boxes)
    report = dataset.examine(annotation_frame="upright")
    assert kinds(report) == ["out-of-page"]


def test_words_of_a_raw_page_are_judged_on_the_raw_page(dataset: SmallDataset) -> None:
    boxes = [*BOXES, box(200, 30, 120)]
    add(dataset, 6, "raw", image=text_page(), boxes=boxes, img_w=SIZE[1], img_h=SIZE[0])
    report = dataset.examine()
    assert kinds(report) == ["other-frame", "out-of-page"]
    assert "out of a page of 400 x 240" in report.findings[1].message


def test_a_page_size_that_is_neither_frame_is_a_mismatch(dataset: SmallDataset) -> None:
    dataset.add("a.jpg", img_w=100, img_h=60)
    report = dataset.examine()
    assert kinds(report) == ["size-mismatch"]
    assert "the annotation says 100 x 60, the image is 200 x 120" in report.findings[0].message


def test_a_frame_that_does_not_exist_is_refused(dataset: SmallDataset) -> None:
    dataset.add()
    with rejects(ConfigError, setting="annotation_frame", value="sideways"):
        dataset.examine(annotation_frame="sideways")
