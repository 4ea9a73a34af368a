"""Lines pasted elsewhere: on free paper of the page, pixels and polygons together, and no patch around them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import run
from rejection import rejects

from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.copy_paste import Copies, CopyPasteLines
from ocr.pipeline.sample import NO_IMAGE, Sample
from ocr.pipeline.stage import moves_polygons

SIZE = 160


def box(left: int, top: int, width: int, height: int) -> np.ndarray:
    return np.array([[left, top], [left + width, top], [left + width, top + height], [left, top + height]], np.float32)


def page_of(*words: np.ndarray, ignore: list[bool] | None = None, paper: int = 200, ink: int = 30) -> Sample:
    """Words with a bar of ink in the middle of each."""
    image = np.full((SIZE, SIZE, 3), paper, np.uint8)
    for word in words:
        (left, top), (right, bottom) = word[0].astype(int), word[2].astype(int)
        image[top + 3 : bottom - 2, left + 2 : right - 1] = ink
    texts = [str(number) for number in range(len(words))]
    return Sample(0, "", "", Polygons.pack(words, ignore, texts), image=image, shape=(SIZE, SIZE))


WORDS = (box(10, 10, 40, 10), box(90, 20, 30, 12), box(20, 120, 60, 8), box(120, 130, 20, 10))


@given(st.integers(0, 2**32 - 1))
def test_copies_keep_half_their_height_from_all_text_and_stay_within_the_text_of_the_page(seed):
    page = page_of(*WORDS)
    pasted = run([CopyPasteLines(6, p=1)], page, np.random.default_rng(seed))

    bounds = pasted.polygons.bounds
    assert np.array_equal(bounds[: len(WORDS)], page.polygons.bounds)
    assert (bounds[:, :2].min(axis=0) == (10, 10)).all()
    assert (bounds[:, 2:].max(axis=0) == (140, 140)).all()
    for index in range(len(WORDS), len(bounds)):
        left, top, right, bottom = bounds[index]
        margin = (bottom - top) / 2
        left, top, right, bottom = left - margin, top - margin, right + margin, bottom + margin
        others = np.delete(bounds[: index + 1], index, axis=0)  # Those that were there when it came.
        apart = (others[:, 0] >= right) | (others[:, 2] <= left) | (others[:, 1] >= bottom) | (others[:, 3] <= top)
        assert apart.all()


def test_a_copy_has_the_pixels_and_the_text_of_its_line_and_leaves_no_patch():
    page = page_of(*WORDS)
    page.image[60:100, 60:110] = 170  # Paper of another brightness.
    copied = 0
    for seed in range(20):
        pasted = run([CopyPasteLines(3, p=1)], page, np.random.default_rng(seed))
        changed = (pasted.image != page.image).any(axis=2)
        for polygon, text in list(zip(pasted.polygons, pasted.polygons.texts, strict=True))[len(WORDS) :]:
            shift = (polygon[0] - WORDS[int(text)][0]).astype(int)
            assert np.array_equal(polygon, WORDS[int(text)] + shift)
            (left, top), (right, bottom) = polygon[0].astype(int), polygon[2].astype(int)
            source = page.image[top - shift[1] : bottom - shift[1], left - shift[0] : right - shift[0], 0]
            assert np.array_equal(changed[top:bottom, left:right], source == 30), "ink, and nothing but ink"
            changed[top : bottom + 1, left : right + 1] = False
            copied += 1
        assert not changed.any()
    assert copied > 20


def test_ink_beside_a_slanted_line_is_not_copied_with_it():
    slanted = np.array([[10, 30], [70, 10], [72, 18], [12, 38]], np.float32)
    page = page_of(box(100, 140, 40, 10))
    page.image[34:38, 50:72] = 30  # Of another line, within the bounds of the slanted one.
    page = replace(page, polygons=Polygons.pack([slanted, box(100, 140, 40, 10)], [False, True]))
    page.image[20:26, 30:50] = 60
    pasted = CopyPasteLines(1, p=1).apply(page, Copies(np.array([0]), np.array([[20, 50]])))
    assert (pasted.image[70:76, 60:65] == 60).any()
    assert (pasted.image[84:88, 70:92] == 200).all()


def test_light_ink_on_dark_paper_stays_light():
    page = page_of(*WORDS, paper=40, ink=220)
    pasted = run([CopyPasteLines(3, p=1)], page, np.random.default_rng(0))
    assert len(pasted.polygons) > len(WORDS)
    assert pasted.image.astype(int).sum() > page.image.astype(int).sum()
    assert set(np.unique(pasted.image)) == {40, 220}


def test_parameters_are_drawn_without_pixels_and_applied_without_randomness():
    page = page_of(*WORDS)
    stage = CopyPasteLines(p=1)
    view = Sample(0, "", "", page.polygons, image=NO_IMAGE, reduced_from=(SIZE, SIZE)).view
    parameters = stage.draw(np.random.default_rng(3), view)
    for found in (stage.apply(page, parameters), stage.apply(page, parameters)):
        assert np.array_equal(found.image, run([stage], page, np.random.default_rng(3)).image)
    assert moves_polygons([stage])


@pytest.mark.parametrize(
    "page",
    [page_of(), page_of(WORDS[0], ignore=[True]), page_of(box(0, 0, 159, 159)), page_of(box(-5, 10, 30, 10))],
    ids=["no text", "ignored text", "no free paper", "text that is cut"],
)
def test_a_page_with_nothing_to_copy_or_no_room_for_it_is_left_alone(page):
    assert CopyPasteLines(p=1).run(page, np.random.default_rng(0)) is page


def test_text_marked_ignore_is_kept_clear_of_and_not_copied():
    page = page_of(*WORDS, ignore=[False, True, False, True])
    for seed in range(10):
        pasted = run([CopyPasteLines(6, p=1)], page, np.random.default_rng(seed))
        assert pasted.polygons.ignore[:4].tolist() == [False, True, False, True]
        assert not pasted.polygons.ignore[4:].any()
        assert set(pasted.polygons.texts[4:]) <= {"0", "2"}


def test_no_lines_are_rejected():
    with rejects(ConfigError, setting="CopyPasteLines.lines", value=0):
        CopyPasteLines(lines=0)
