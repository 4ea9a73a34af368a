"""The text-aware crop: its borders pass between the words, and nothing of the words outside stays in sight."""

import cv2
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pages import run

from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import Sample
from ocr.pipeline.suffix import TextAwareCrop

WIDTH, HEIGHT = 128, 112
seeds = st.integers(0, 2**32 - 1)


def page_of(polygons: list[NDArray[np.float32]], ignore: list[bool] | None = None) -> Sample:
    packed = Polygons.pack(polygons, ignore, [str(p) for p in range(len(polygons))])
    return Sample(0, "", "", packed, image=np.zeros((HEIGHT, WIDTH, 3), np.uint8), shape=(WIDTH, HEIGHT))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[NDArray[np.float32]], list[bool]]:
    """Boxes anywhere, also over the page's border; many of them leave no free line."""
    lefts, tops = st.floats(-15, WIDTH - 1), st.floats(-15, HEIGHT - 1)
    boxes = draw(st.lists(st.tuples(lefts, tops, st.floats(1, 50), st.floats(1, 20)), min_size=1, max_size=25))
    ignore = draw(st.lists(st.booleans(), min_size=len(boxes), max_size=len(boxes)))
    quads = [np.array([[x, y], [x + w, y + 1], [x + w, y + h], [x, y + h]], np.float32) for x, y, w, h in boxes]
    return quads, ignore


@given(layouts(), seeds)
def test_a_crop_never_cuts_through_a_kept_word(layout: tuple[list[NDArray[np.float32]], list[bool]], seed: int) -> None:
    quads, ignore = layout
    page = page_of(quads, ignore=ignore).view
    window = TextAwareCrop(smallest=0.1, p=1).draw(np.random.default_rng(seed), page)
    if window is None:
        return
    for quad, may_be_cut in zip(quads, ignore, strict=True):
        if may_be_cut:
            continue
        low = np.clip(quad.min(axis=0), 0, (WIDTH - 1, HEIGHT - 1))
        high = np.clip(quad.max(axis=0), 0, (WIDTH - 1, HEIGHT - 1))
        inside = (low >= window[:2]).all() and (high <= np.array(window[2:]) - 1).all()
        # A free pixel lies between the window and the words outside of it.
        outside = (high <= np.array(window[:2]) - 1).any() or (low >= window[2:]).any()
        assert inside or outside, f"{quad.tolist()} is cut by {window}"


@given(layouts(), seeds)
def test_a_crop_blanks_the_words_it_drops_and_shows_all_of_those_it_keeps(
    layout: tuple[list[NDArray[np.float32]], list[bool]], seed: int
) -> None:
    quads, ignore = layout
    page = page_of(quads, ignore=ignore)
    crop = TextAwareCrop(smallest=0.1, p=1)
    kept = run([crop], page, np.random.default_rng(seed)).polygons.texts
    red, green = np.zeros((2, HEIGHT, WIDTH), np.uint8)
    for p, quad in enumerate(quads):
        if not ignore[p]:
            # Half a pixel before the page rounds to beyond it, as a crop takes it.
            cv2.fillPoly(green if str(p) in kept else red, [np.int32(np.ceil(quad - 0.5))], 255)
    page.image[:] = np.stack([red, green, red], axis=-1)

    cropped = run([crop], page, np.random.default_rng(seed))

    assert not cropped.image[:, :, 0].any(), "pixels of a dropped word are still in sight"
    scale = abs(np.linalg.det(np.linalg.inv(cropped.inverse_matrix)[:2, :2]))
    expected, shown = green.sum() * scale, cropped.image[:, :, 1].sum(dtype=np.float64)
    edge = 255 * 4 * sum(float(np.ptp(quad, axis=0).sum()) for quad in quads) * scale
    assert abs(shown - expected) <= edge


def test_a_page_without_a_free_line_is_cropped_at_its_own_border_or_not_at_all() -> None:
    rows = [np.array([[-2, y], [WIDTH + 2, y], [WIDTH + 2, y + 5], [-2, y + 5]], np.float32) for y in range(-3, 115, 4)]
    page = page_of(rows)
    for seed in range(20):
        cropped = run([TextAwareCrop(p=1)], page, np.random.default_rng(seed))
        assert len(cropped.polygons) == len(rows)
        assert np.array_equal(cropped.inverse_matrix, np.eye(3))


def test_ignored_words_may_be_cut_and_do_not_stop_a_crop() -> None:
    rows = [np.array([[0, y], [WIDTH, y], [WIDTH, y + 5], [0, y + 5]], np.float32) for y in range(0, HEIGHT, 4)]
    page = page_of(rows, ignore=[True] * len(rows))
    crops = [run([TextAwareCrop(p=1)], page, np.random.default_rng(seed)) for seed in range(20)]

    assert any(len(cropped.polygons) < len(rows) for cropped in crops)


def test_a_crop_of_a_page_with_words_always_holds_one() -> None:
    word = np.array([[10, 10], [20, 10], [20, 14], [10, 14]], np.float32)
    for seed in range(50):
        assert len(run([TextAwareCrop(smallest=0.1, p=1)], page_of([word]), np.random.default_rng(seed)).polygons) == 1


def test_a_page_without_words_is_cropped_too() -> None:
    page = page_of([])
    matrices = [run([TextAwareCrop(p=1)], page, np.random.default_rng(seed)).inverse_matrix for seed in range(20)]

    assert any(not np.array_equal(matrix, np.eye(3)) for matrix in matrices)


def test_words_outside_a_crop_are_left_out_but_not_counted_as_lost() -> None:
    words = [np.array([[x, 50], [x + 8, 50], [x + 8, 60], [x, 60]], np.float32) for x in range(5, 115, 12)]
    crops = [run([TextAwareCrop(p=1)], page_of(words), np.random.default_rng(seed)) for seed in range(20)]

    assert any(len(cropped.polygons) < len(words) for cropped in crops)
    assert all(cropped.dropped_polygons == 0 for cropped in crops)
