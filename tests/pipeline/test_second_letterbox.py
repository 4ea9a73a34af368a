"""A second letterbox behind geometry: part of the same sampling, as long as it only changes the size."""

import cv2
import numpy as np

from ocr.geometry.polygons import Polygons
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.suffix import RandomFlip, RandomRotate, TextAwareCrop, merge_geometry


def test_a_second_letterbox_behind_geometry_is_part_of_the_same_sampling():
    transform = merge_geometry([Letterbox(128), TextAwareCrop(p=1), RandomRotate(p=1), Letterbox(64), RandomFlip(p=1)])
    assert [type(stage).__name__ for stage in transform] == ["Letterbox", "Warp", "Warp"]
    assert transform[1].size == 64
    image = np.zeros((128, 128, 3), dtype=np.uint8)
    image[40:60, 20:80] = 255
    polygons = Polygons.pack([[[20, 40], [79, 40], [79, 59], [20, 59]]])
    page = Sample(0, "a", "a", polygons, image=image, shape=(128, 128), raw_size=(128, 128))
    moved = transform[1](page, np.random.default_rng(3))
    assert moved.image.shape == (64, 64, 3)
    # Polygon and pixels went the same way, and the matrix leads back.
    filled = np.zeros((64, 64), dtype=np.uint8)
    cv2.fillPoly(filled, [moved.polygons.vertices.round().astype(np.int32)], 1)
    assert (filled == (moved.image[:, :, 0] > 127)).mean() > 0.97
    np.testing.assert_allclose(moved.polygons.moved(moved.inverse_matrix).vertices, polygons.vertices, atol=1e-3)


def test_a_letterbox_is_left_alone_where_pages_may_not_be_square():
    stages = merge_geometry([RandomFlip(), Letterbox(64)])
    assert [type(stage).__name__ for stage in stages] == ["Warp", "Letterbox"]


def test_a_page_of_the_right_size_is_not_sampled_again_for_its_letterbox():
    warp = merge_geometry([Letterbox(64), RandomFlip(p=0), Letterbox(64)])[1]
    page = Sample(0, "a", "a", Polygons.pack([]), image=np.zeros((64, 64, 3), dtype=np.uint8))
    assert warp(page, np.random.default_rng(0)) is page


def test_pages_that_keep_their_shape_become_squares_in_a_stage_of_its_own():
    page, square = Letterbox(128, shape="page"), Letterbox(64, position="bottom_right")
    stages = merge_geometry([page, RandomFlip(p=1), square])
    assert [type(stage).__name__ for stage in stages] == ["Letterbox", "Warp", "Letterbox"]
    assert merge_geometry([page, RandomFlip(p=1), Letterbox(64, shape="page")])[1].shape == "page"
