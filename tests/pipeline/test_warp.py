"""warp: stages in one pass make the samples that they make one by one, wherever they are written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import run, run_one_by_one
from sameness import assert_same

from ocr.datasets import DBTransforms, OCRDataset
from ocr.geometry.polygons import Polygons
from ocr.loader import Loader
from ocr.pipeline.batch import Slot
from ocr.pipeline.copy_paste import CopyPasteLines
from ocr.pipeline.dense import DensePage
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import NO_IMAGE, Sample
from ocr.pipeline.stage import FixedStage, Stage
from ocr.pipeline.suffix import (
    ColourJitter,
    JpegNoise,
    QuarterTurn,
    RandomBlur,
    RandomFlip,
    RandomPerspective,
    RandomRotate,
    RandomScale,
    RandomShadow,
    RandomWindow,
    TextAwareCrop,
    merge_geometry,
)
from ocr.pipeline.targets import Targets, empty_maps
from ocr.pipeline.warp import WarpPass, Window

SIZE = 64


@dataclass(frozen=True, slots=True)
class Invert(FixedStage):
    """A fixed stage among random ones."""

    def __call__(self, sample: Sample) -> Sample:
        return replace(sample, image=255 - sample.image)


STAGES: tuple[Stage, ...] = (
    TextAwareCrop(p=0.6),
    RandomFlip(p=0.6),
    RandomRotate(p=0.6),
    RandomScale(p=0.6),
    RandomPerspective(p=0.6),
    QuarterTurn(p=0.6),
    CopyPasteLines(p=0.6),
    RandomShadow(p=0.4),
    RandomWindow(40),
    ColourJitter(p=0.6),
    ColourJitter(p=0.6),
    RandomBlur(p=0.4),
    JpegNoise(p=0.4),
    Invert(),
)
chains = st.lists(st.sampled_from(STAGES), max_size=7).map(
    lambda stages: merge_geometry([Letterbox(SIZE), *stages])[1:]
)


def letterboxed(fill: int = 0) -> Sample:
    """A page of noise with a word, padded left and right."""
    image = np.full((SIZE, SIZE, 3), fill, np.uint8)
    image[:, 14:50] = np.random.default_rng(3).integers(0, 256, (SIZE, 36, 3))
    word = np.array([[20, 20], [44, 20], [44, 30], [20, 30]])
    return Sample(0, "a.jpg", "", Polygons.pack([word]), image=image, shape=(SIZE, SIZE))


def left_open(stages: Sequence[Stage], page: Sample, rng: np.random.Generator) -> Sample:
    """A page after some stages, the last pass over its pixels yet to be made."""
    for stage in stages:
        page = stage.run(page, rng)
    return page


def assert_same_samples(left: Sample, right: Sample) -> None:
    """Pixels, polygons and the way back."""
    for name in ("image", "inverse_matrix", "size", "reduced_from", "dropped_polygons"):
        assert_same(getattr(left, name), getattr(right, name), name)
    assert_same(left.polygons.vertices, right.polygons.vertices)


@given(chains, st.integers(0, 2**32 - 1), st.booleans())
def test_one_pass_makes_the_samples_that_stages_make_one_by_one(
    stages: Sequence[Stage], seed: int, dense: bool
) -> None:
    page = letterboxed()
    kept = replace(page, image=NO_IMAGE, lazy=DensePage.pack(page.image)) if dense else page

    found = left_open(stages, kept, np.random.default_rng(seed))

    expected = run_one_by_one(stages, page, np.random.default_rng(seed))
    assert found.size == expected.size
    assert_same_samples(found.unpacked(), expected)


@pytest.mark.parametrize("normalize", [None, Normalize()], ids=["uint8", "float"])
def test_a_pass_is_written_straight_into_its_slot(normalize: Normalize | None) -> None:
    stages = merge_geometry([RandomRotate(p=1), RandomScale(p=1), RandomWindow(40), ColourJitter(p=1)])
    sample = left_open(stages, letterboxed(), np.random.default_rng(1))
    image = np.zeros((40, 40, 3), np.uint8) if normalize is None else np.zeros((3, 40, 40), np.float32)

    Slot(image, empty_maps(40, 40)).write(sample, normalize, Targets())

    assert sample.image.size == 0, "nothing was made before it was written"
    pixels = run_one_by_one(stages, letterboxed(), np.random.default_rng(1)).image
    assert np.array_equal(image, pixels if normalize is None else normalize.on_host(pixels))


@pytest.mark.parametrize(
    ("stages", "joined"),
    [
        ((RandomRotate(p=1), RandomFlip(p=1), ColourJitter(p=1)), True),
        ((ColourJitter(p=1), RandomRotate(p=1)), True),
        ((ColourJitter(p=1), ColourJitter(p=1)), True),
        ((RandomBlur(p=1), RandomRotate(p=1)), True),
        ((RandomRotate(p=1), RandomBlur(p=0)), True),
        ((RandomRotate(p=1), RandomBlur(p=1)), False),
        ((RandomRotate(p=1), JpegNoise(p=1)), False),
        ((RandomRotate(p=1), Invert()), False),
    ],
    ids=repr,
)
def test_the_last_pass_is_left_open_unless_a_stage_needs_its_pixels(stages: Sequence[Stage], joined: bool) -> None:
    sample = left_open(merge_geometry(stages), letterboxed(), np.random.default_rng(1))

    assert (sample.lazy is not None) == joined
    assert (sample.image.size == 0) == joined


def test_a_page_that_nothing_happens_to_is_handed_on() -> None:
    page = letterboxed()
    stages = merge_geometry([RandomRotate(p=0), ColourJitter(p=0), RandomBlur(p=0)])

    assert left_open(stages, page, np.random.default_rng(0)) is page


def test_maps_that_still_fit_stay_with_a_page_whose_colours_change() -> None:
    maps: Any = object()
    coloured = left_open([ColourJitter(p=1)], replace(letterboxed(), maps=maps), np.random.default_rng(0))
    turned = left_open([RandomFlip(p=1)], replace(letterboxed(), maps=maps), np.random.default_rng(0))

    assert coloured.maps is maps
    assert turned.maps is None


@pytest.mark.parametrize("side", [1, 2, 3])
def test_pages_of_a_few_pixels_are_sampled(side: int) -> None:
    page = Sample(0, "", "", Polygons.pack([]), image=np.full((side, side, 3), 200, np.uint8))
    stages = merge_geometry([RandomFlip(p=1), RandomRotate(90, p=1), RandomScale(p=1), ColourJitter(p=1)])

    assert run(stages, page, np.random.default_rng(0)).image.shape == (side, side, 3)
    assert np.array_equal(run([RandomFlip(p=1)], page, np.random.default_rng(0)).image, page.image)


def test_pixels_that_are_not_in_one_piece_give_the_same_page() -> None:
    page = letterboxed()
    strided = replace(page, image=np.ascontiguousarray(page.image.transpose(2, 0, 1)).transpose(1, 2, 0))
    stages = merge_geometry([RandomRotate(p=1), ColourJitter(p=1)])

    assert not strided.image.flags.c_contiguous
    assert_same_samples(*(run(stages, sample, np.random.default_rng(4)) for sample in (page, strided)))


def test_pages_of_floats_are_left_to_opencv() -> None:
    page = replace(letterboxed(), image=letterboxed().image.astype(np.float32) / 255)
    matrix = RandomRotate(p=1).draw(np.random.default_rng(0), page.view)
    turned = run(merge_geometry([RandomRotate(p=1)]), page, np.random.default_rng(0))

    assert WarpPass.of(page) is None
    assert matrix is not None
    assert np.array_equal(turned.image, cv2.warpAffine(page.image, matrix[:2], (SIZE, SIZE)))


@pytest.mark.parametrize("normalize", ["host", "device"])
def test_loader_and_items_have_the_same_pages_with_and_without_a_cache(synthetic, tmp_path, normalize) -> None:
    def dataset(cache: str) -> OCRDataset:
        geometry = [TextAwareCrop(), RandomFlip(), RandomRotate(), QuarterTurn(), RandomPerspective(), Letterbox(96)]
        pixels = [ColourJitter(p=0.8), RandomShadow(), RandomBlur(), Normalize()]
        transform = DBTransforms([Letterbox(128), CopyPasteLines(), *geometry, *pixels], normalize=normalize)
        paths = synthetic / "images" / "train", synthetic / "jsons" / "train.json"
        return OCRDataset(*paths, transform, cache=cache, cache_folder=tmp_path, seed=3)

    expected = [dataset("off")[index]["image"] for index in range(8)]
    for cache in ("off", "auto"):
        pages = dataset(cache)
        for _ in range(2):
            assert_same([pages[index]["image"] for index in range(8)], expected)
        for workers in (0, 2):
            batches = [batch["images"] for batch in Loader(dataset(cache), 4, workers)]
            assert_same([image for images in batches for image in images], expected)


EDGES = {
    "right edge on the first column": ([-9, 2, 0, 8], True),
    "lower edge on the first row": ([2, -9, 8, 0], True),
    "half a pixel before the first column": ([-9, 2, -0.5, 8], False),
    "half a pixel before the first row": ([2, -9, 8, -0.5], False),
    "left edge on the last column": ([19, 2, 30, 8], True),
    "left edge beside the last column": ([20, 2, 30, 8], False),
    "upper edge under the last row": ([2, 10, 8, 19], False),
}


@pytest.mark.parametrize(("bounds", "touches"), EDGES.values(), ids=EDGES)
def test_a_page_and_a_window_of_it_hold_the_same_words(bounds, touches):
    left, top, right, bottom = bounds
    box = Polygons.pack([[[left, top], [right, top], [right, bottom], [left, bottom]]])
    assert box.on_page(20, 10).tolist() == [touches]
    assert Window(0, 0, 20, 10).touches(box.bounds).tolist() == [touches]
