"""Pages at an angle and pages turned: polygons stay on their pixels, pixels are sampled once, turns are exact."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import run, run_one_by_one
from rejection import rejects

from ocr.dali.plan import divide
from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons, move_points
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.suffix import (
    ColourJitter,
    QuarterTurn,
    RandomPerspective,
    RandomRotate,
    RandomScale,
    RandomWindow,
    TextAwareCrop,
    Warp,
    merge_geometry,
)
from ocr.pipeline.warp import Placement, WarpPass, Window

WIDTH, HEIGHT = 120, 90
WORD = np.array([[30, 35], [85, 40], [83, 55], [28, 50]], np.float32)
CHAINS = (
    [RandomPerspective(40, p=1)],
    [RandomPerspective(30, p=1), RandomRotate(20, p=1)],
    [TextAwareCrop(p=1), RandomScale(p=1), RandomPerspective(20, p=1)],
    [QuarterTurn(p=1), RandomPerspective(20, p=1)],
    [RandomPerspective(20, p=1), QuarterTurn(p=1)],
)


def page_with_a_word() -> Sample:
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    cv2.fillPoly(image, [WORD.astype(np.int32)], (255, 255, 255))
    return Sample(0, "", "", Polygons.pack([WORD]), image=image, shape=(WIDTH, HEIGHT))


def noise_page(width: int = WIDTH, height: int = HEIGHT) -> Sample:
    image = np.random.default_rng(5).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Sample(0, "", "", Polygons.pack([WORD]), image=cv2.GaussianBlur(image, (0, 0), 1.5), shape=(width, height))


@pytest.mark.parametrize("stages", CHAINS, ids=repr)
def test_polygons_move_with_the_pixels_under_them(stages):
    for seed in range(10):
        moved = run(merge_geometry(stages), page_with_a_word(), np.random.default_rng(seed))

        (polygon,) = list(moved.polygons)
        covered = np.zeros(moved.image.shape[:2], np.uint8)
        cv2.fillPoly(covered, [np.rint(polygon).astype(np.int32)], 1)
        painted = moved.image[:, :, 0] > 127
        inner, outer = cv2.erode(covered, np.ones((5, 5))) > 0, cv2.dilate(covered, np.ones((5, 5))) > 0
        assert painted[inner].all()
        assert not painted[~outer].any()
        np.testing.assert_allclose(move_points(polygon, moved.inverse_matrix), WORD, atol=0.01)


@given(st.integers(0, 2**32 - 1))
def test_a_page_at_an_angle_has_the_pixels_of_opencv_up_to_a_gray_level(seed):
    page = noise_page()
    matrix = RandomPerspective(40, p=1).draw(np.random.default_rng(seed), page.view)

    seen = RandomPerspective(40, p=1).apply(page, matrix)

    by_opencv = cv2.warpPerspective(page.image, matrix, (WIDTH, HEIGHT)).astype(int)
    # OpenCV rounds coordinates to 1/32 of a pixel.
    assert np.abs(seen.image - by_opencv).max() <= 6
    assert np.abs(seen.image - by_opencv).mean() < 0.5


def test_the_middle_of_the_page_stays_and_more_degrees_are_more_of_an_angle():
    centre = np.array([[(WIDTH - 1) / 2, (HEIGHT - 1) / 2]], np.float32)
    slants = []
    for degrees in (0, 5, 40):
        stage = RandomPerspective(degrees, p=1)
        matrices = [stage.draw(np.random.default_rng(seed), noise_page().view) for seed in range(50)]
        for matrix in matrices:
            np.testing.assert_allclose(move_points(centre, matrix), centre, atol=1e-4)
            corners = np.array([[0, 0], [WIDTH, 0], [0, HEIGHT], [WIDTH, HEIGHT]])
            assert (corners @ matrix[2, :2] + matrix[2, 2] > 0.2).all(), "all of the page is in front of the camera"
        slants.append(np.abs([matrix[2, :2] for matrix in matrices]).mean())
    assert slants[0] == 0 < slants[1] < slants[2]


def test_a_perspective_and_other_geometry_sample_the_pixels_once():
    steps = (RandomRotate(10, p=1), RandomPerspective(20, p=1), RandomScale(p=1))
    merged = merge_geometry(steps)

    moved = run(merged, noise_page(), np.random.default_rng(7))

    assert merged == (Warp(steps),)
    total = np.linalg.inv(moved.inverse_matrix)
    by_opencv = cv2.warpPerspective(noise_page().image, total, (WIDTH, HEIGHT)).astype(int)
    assert np.abs(moved.image - by_opencv).mean() < 0.5


def test_a_window_of_a_page_at_an_angle_is_made_without_the_rest_and_has_its_pixels():
    warp, window, colours = RandomPerspective(20, p=1), RandomWindow(48), ColourJitter(p=1)
    made = run(merge_geometry([warp, window, colours]), noise_page(), np.random.default_rng(2))
    stepwise = run_one_by_one([warp, window, colours], noise_page(), np.random.default_rng(2))
    assert np.array_equal(made.image, stepwise.image)


def test_what_lies_beyond_the_horizon_is_not_drawn():
    matrix = np.array([[1.0, 0, 0], [0, 1, 0], [-1 / 60, 0, 1]])
    page = noise_page()
    behind = np.array([[80, 10], [110, 10], [110, 20], [80, 20]], np.float32)
    view = page.view._replace(polygons=Polygons.pack([WORD / 4, behind], texts=["near", "behind"]))

    assert Placement.start(view).then(matrix).page.polygons.texts == ("near",)

    out = WarpPass(page.image, Window(0, 0, WIDTH, HEIGHT), matrix, (WIDTH, HEIGHT), fill=7).pixels()
    assert (out[:, :20] != 7).any(axis=(0, 2)).all()
    assert (out[:, 60:] == 7).all()


@pytest.mark.parametrize(("width", "height"), [(120, 90), (90, 120), (64, 64), (33, 1)])
def test_a_quarter_turn_is_exact_and_turns_the_sides_of_the_page(width, height):
    page = noise_page(width, height)
    seen = set()
    for seed in range(12):
        turned = run([QuarterTurn(p=1)], page, np.random.default_rng(seed))
        (turns,) = {k for k in (1, 2, 3) if np.allclose(turned.inverse_matrix[:2, :2], _turn_back(k))}
        seen.add(turns)
        assert np.array_equal(turned.image, np.rot90(page.image, turns))
        if len(turned.polygons):
            np.testing.assert_array_equal(move_points(turned.polygons.vertices, turned.inverse_matrix), WORD)
    assert seen == {1, 2, 3}


def _turn_back(quarters: int) -> np.ndarray:
    """From a page after `np.rot90` to the one before it."""
    return np.linalg.matrix_power(np.array([[0, -1], [1, 0]]), quarters)


def test_a_letterbox_after_a_quarter_turn_makes_pages_of_one_size():
    stages = merge_geometry([Letterbox(64), QuarterTurn(p=0.5), Letterbox(32)])
    sizes = {run(stages, noise_page(), np.random.default_rng(seed)).image.shape for seed in range(8)}
    assert sizes == {(32, 32, 3)}


def test_dali_leaves_pages_at_an_angle_to_the_host():
    angled = merge_geometry([Letterbox(64), RandomRotate(), RandomPerspective(), RandomWindow(32)])
    turned = merge_geometry([Letterbox(64), RandomRotate(), QuarterTurn(), RandomWindow(32)])

    assert divide(angled, random_too=True).rest == angled[1:]
    assert divide(turned, random_too=True).geometry == turned[1:]


def test_float_pages_go_the_same_way():
    page = noise_page()
    floats = Sample(0, "", "", page.polygons, image=page.image.astype(np.float32), shape=page.shape)
    stage = RandomPerspective(20, p=1)
    expected = run([stage], page, np.random.default_rng(1)).image
    assert np.abs(run([stage], floats, np.random.default_rng(1)).image - expected).max() <= 6


def test_more_degrees_than_a_camera_sees_are_rejected():
    with rejects(ConfigError, setting="RandomPerspective.degrees", value=60):
        RandomPerspective(degrees=60)
