"""RandomScale(resizes=True): the whole page grows or shrinks, and windows are cut from anywhere on it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import Sample
from ocr.pipeline.sampling import run_in_one_pass
from ocr.pipeline.stage import run
from ocr.pipeline.suffix import RandomRotate, RandomScale, RandomWindow, merge_geometry

WIDTH, HEIGHT = 80, 120
CORNERS = [(2, 2, 22, 12), (58, 2, 78, 12), (2, 108, 22, 118), (58, 108, 78, 118)]
RESIZE = RandomScale(0.6, 1.5, p=1, resizes=True)


def page() -> Sample:
    image = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    polygons = []
    for left, top, right, bottom in CORNERS:
        image[top : bottom + 1, left : right + 1] = 255
        polygons.append(np.array([[left, top], [right, top], [right, bottom], [left, bottom]], dtype=np.float32))
    return Sample(0, "", "", Polygons.pack(polygons), image=image, shape=(WIDTH, HEIGHT), raw_size=(WIDTH, HEIGHT))


def assert_words_are_bright(sample: Sample) -> None:
    for left, top, right, bottom in sample.polygons.bounds:
        x, y = round(float(left + right) / 2), round(float(top + bottom) / 2)
        # A window may cut a word beyond its middle.
        if 0 <= x < sample.width and 0 <= y < sample.height:
            assert sample.image[y, x].min() == 255


@given(st.integers(0, 10_000))
def test_no_word_leaves_a_page_that_is_resized(seed):
    (stage,) = merge_geometry([RESIZE])
    scaled = run([stage], page(), np.random.default_rng(seed))
    factor = scaled.width / WIDTH
    assert 0.6 - 0.01 <= factor <= 1.5 + 0.01
    assert abs(scaled.height - factor * HEIGHT) <= 1.5
    assert len(scaled.polygons) == 4
    assert_words_are_bright(scaled)
    back = scaled.polygons.moved(scaled.inverse_matrix).bounds
    assert np.allclose(back, CORNERS, atol=1e-3)


def test_by_default_enlarging_cuts_the_borders_and_keeps_the_size():
    (stage,) = merge_geometry([RandomScale(1.5, 1.5, p=1)])
    scaled = run([stage], page(), np.random.default_rng(0))
    assert scaled.size == (WIDTH, HEIGHT)
    assert len(scaled.polygons) < 4 or (scaled.polygons.bounds[:, :2] < 0).any()


@given(st.integers(0, 10_000))
def test_windows_of_resized_pages_hold_their_words_in_one_pass_too(seed):
    stages = merge_geometry([RandomRotate(3, p=0.5), RESIZE, RandomWindow(48)])
    one_by_one = run(stages, page(), np.random.default_rng(seed))
    in_one_pass = run_in_one_pass(stages, page(), np.random.default_rng(seed)).unpacked()
    assert np.array_equal(one_by_one.image, in_one_pass.image)
    assert one_by_one.size <= (48, 48)
    assert_words_are_bright(one_by_one)


@pytest.mark.parametrize("window", [48, 100])
def test_no_page_is_larger_than_it_was_planned(window):
    stages = merge_geometry([RESIZE, RandomWindow(window)])
    planned = np.array([[WIDTH, HEIGHT]])
    for stage in stages:
        planned = stage.sizes_after(planned)
    sizes = [run(stages, page(), np.random.default_rng(seed)).size for seed in range(40)]
    assert (np.max(sizes, axis=0) <= planned[0]).all()
    assert planned[0].tolist() == [min(120, window), min(180, window)]
