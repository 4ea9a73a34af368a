"""EXIF orientation x annotation_frame: polygons cover the pixels they were drawn around, in whichever frame."""

import io

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ocr.geometry.orientation import frame_by_geometry, upright_size
from ocr.geometry.polygons import Polygons
from ocr.pipeline.decode import ORIENTATION_TAG, Decode
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample

RED = (255, 0, 0)
TURN_BACK = {
    1: lambda page: page,
    2: lambda page: page[:, ::-1],
    3: lambda page: page[::-1, ::-1],
    4: lambda page: page[::-1],
    5: lambda page: page.transpose(1, 0, 2),
    6: lambda page: np.rot90(page),
    7: lambda page: page[::-1, ::-1].transpose(1, 0, 2),
    8: lambda page: np.rot90(page, -1),
}


def draw_box(size, box):
    page = np.full((size[1], size[0], 3), 255, np.uint8)
    left, top, right, bottom = box
    page[top : bottom + 1, left : right + 1] = RED
    return page


def box_around(page):
    y, x = np.nonzero(is_red(page))
    return [[x.min(), y.min()], [x.max(), y.min()], [x.max(), y.max()], [x.min(), y.max()]]


def is_red(page):
    return (page[:, :, 0] > 128) & (page[:, :, 1] < 128)


def pixels_under(sample):
    mask = np.zeros(sample.image.shape[:2], np.uint8)
    cv2.fillPoly(mask, [polygon.round().astype(np.int32) for polygon in sample.polygons], 1)
    return mask.astype(bool)


def stored(upright, orientation):
    """The page as a camera writes it, and the box in its own frame."""
    raw = np.ascontiguousarray(TURN_BACK[orientation](upright))
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    stream = io.BytesIO()
    Image.fromarray(raw).save(stream, "PNG", exif=exif)
    return stream.getvalue(), raw


def read(data, polygon, claimed_size=None, **settings):
    return Decode(**settings)(Sample(0, "a", "a", Polygons.pack([polygon]), claimed_size=claimed_size, encoded=data))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("frame", ["upright", "raw"])
def test_a_stated_frame_puts_polygons_on_their_pixels(orientation, frame):
    upright = draw_box((60, 90), (8, 55, 30, 62))
    data, raw = stored(upright, orientation)
    page = read(data, box_around(upright if frame == "upright" else raw), annotation_frame=frame)
    assert np.array_equal(page.image, upright)
    assert np.array_equal(pixels_under(page), is_red(upright))
    assert (page.polygon_frame, page.orientation) == (frame, orientation)
    assert (page.shape, page.raw_size) == ((60, 90), upright_size(orientation, 60, 90))


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
@pytest.mark.parametrize("frame", ["upright", "raw"])
def test_auto_finds_the_frame_by_the_size_that_the_annotation_claims(orientation, frame):
    upright = draw_box((60, 90), (8, 20, 30, 28))
    data, raw = stored(upright, orientation)
    annotated = upright if frame == "upright" else raw
    page = read(data, box_around(annotated), claimed_size=(annotated.shape[1], annotated.shape[0]))
    assert page.polygon_frame == frame
    assert np.array_equal(pixels_under(page), is_red(upright))


@pytest.mark.parametrize("orientation", [5, 6, 7, 8])
@pytest.mark.parametrize("frame", ["upright", "raw"])
def test_auto_finds_the_frame_by_the_page_that_holds_the_polygons(orientation, frame):
    upright = draw_box((60, 90), (8, 5, 30, 85))
    data, raw = stored(upright, orientation)
    page = read(data, box_around(upright if frame == "upright" else raw))
    assert page.polygon_frame == frame
    assert np.array_equal(pixels_under(page), is_red(upright))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_auto_takes_polygons_that_fit_both_frames_as_upright(orientation):
    upright = draw_box((60, 90), (8, 20, 30, 28))
    page = read(stored(upright, orientation)[0], box_around(upright))
    assert page.polygon_frame == "upright"
    assert np.array_equal(pixels_under(page), is_red(upright))


@pytest.mark.parametrize("orientation", [2, 3, 4])
def test_auto_cannot_see_a_turn_that_keeps_the_size_so_raw_must_be_stated(orientation):
    upright = draw_box((60, 90), (8, 20, 30, 28))
    data, raw = stored(upright, orientation)
    assert read(data, box_around(raw), claimed_size=(60, 90)).polygon_frame == "upright"
    page = read(data, box_around(raw), annotation_frame="raw")
    assert np.array_equal(pixels_under(page), is_red(upright))


@pytest.mark.parametrize(("vertex", "frame"), [((300, 400), "upright"), ((400, 300), "raw")])
def test_a_vertex_exactly_on_the_edge_of_a_page_is_on_it(vertex, frame):
    assert frame_by_geometry(np.array([vertex], np.float32), 6, (400, 300)) == frame


def test_a_page_without_polygons_is_upright():
    data, _ = stored(draw_box((60, 90), (8, 20, 30, 28)), 6)
    page = Decode()(Sample(0, "a", "a", Polygons.pack([]), encoded=data))
    assert (page.polygon_frame, page.shape) == ("upright", (60, 90))


def test_a_polygon_beside_the_page_is_dropped_and_counted():
    upright = draw_box((60, 90), (8, 20, 30, 28))
    beside = [[200, 10], [230, 10], [230, 40]]
    data, _ = stored(upright, 1)
    page = Decode()(Sample(0, "a", "a", Polygons.pack([box_around(upright), beside]), encoded=data))
    assert (len(page.polygons), page.dropped_polygons) == (1, 1)


@given(st.data(), st.integers(1, 8), st.sampled_from(["upright", "raw"]), st.integers(70, 200), st.integers(40, 200))
def test_a_letterboxed_polygon_covers_what_it_covered_from_any_frame(data, orientation, frame, width, height):
    left, top = data.draw(st.integers(0, width - 24)), data.draw(st.integers(0, height - 24))
    right, bottom = data.draw(st.integers(left + 20, width - 1)), data.draw(st.integers(top + 20, height - 1))
    upright = draw_box((width, height), (left, top, right, bottom))
    encoded, raw = stored(upright, orientation)
    polygon = box_around(upright if frame == "upright" else raw)
    page = Letterbox(64)(read(encoded, polygon, annotation_frame=frame))
    covered, red = pixels_under(page), is_red(page.image)
    # Rounding to whole pixels and the sampling of the resize together move an outline by up to two pixels.
    ring = np.ones((5, 5), np.uint8)
    assert not (cv2.erode(red.astype(np.uint8), ring).astype(bool) & ~covered).any()
    assert not (covered & ~cv2.dilate(red.astype(np.uint8), ring).astype(bool)).any()
    back = page.polygons.vertices @ page.inverse_matrix[:2, :2].T + page.inverse_matrix[:2, 2]
    assert np.abs(np.sort(back, axis=0) - np.sort(np.array(box_around(upright)), axis=0)).max() < 0.5
