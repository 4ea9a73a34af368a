"""Albumentations transforms that ask for more than an image and its points: boxes they get, the rest is refused."""

from typing import Any

import albumentations as A  # noqa: N812
import numpy as np
import pytest
from numpy.typing import NDArray

from ocr.datasets.albumentations_stages import RandomAlbumentations, translate
from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.sample import Sample

WIDTH, HEIGHT = 130, 100
QUAD = np.array([[45, 35], [88, 42], [84, 64], [41, 57]], np.float32)
SECOND = np.array([[90, 70], [120, 70], [120, 82], [90, 82]], np.float32)
OFF_PAGE = QUAD - 200


def page_of(words: list[NDArray[np.float32]], ignore: list[bool] | None = None) -> Sample:
    image = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    return Sample(0, "", "", Polygons.pack(words, ignore), image=image, shape=(WIDTH, HEIGHT))


@pytest.mark.parametrize(
    "transform",
    [
        A.BBoxSafeRandomCrop(p=1),
        A.RandomSizedBBoxSafeCrop(height=200, width=260, p=1),
        A.OneOf([A.BBoxSafeRandomCrop(p=1)], p=1),
        A.Sequential([A.HorizontalFlip(p=1), A.BBoxSafeRandomCrop(p=1)]),
    ],
    ids=["plain", "resized", "in a choice", "after a flip"],
)
def test_a_crop_that_is_safe_for_boxes_keeps_every_word_whole(transform: Any) -> None:
    page = page_of([QUAD, SECOND, OFF_PAGE])
    shifts = set()
    for seed in range(30):
        moved = RandomAlbumentations((transform,))(page, np.random.default_rng(seed))
        words = np.concatenate(list(moved.polygons)[:2])
        assert words.min() > -0.5
        assert (words < np.array([moved.width, moved.height]) + 0.5).all()
        shifts.add(moved.inverse_matrix[0, 2])
    assert len(shifts) > 5


def test_a_crop_around_one_box_keeps_a_word_whole() -> None:
    stage = RandomAlbumentations((A.AtLeastOneBBoxRandomCrop(height=40, width=60, p=1),))
    for seed in range(30):
        moved = stage(page_of([QUAD, SECOND]), np.random.default_rng(seed))
        assert any((word >= 0).all() and (word < (60, 40)).all() for word in moved.polygons)


@pytest.mark.parametrize("words", [[], [OFF_PAGE]], ids=["none", "off the page"])
def test_a_crop_around_boxes_works_on_a_page_without_words(words: list[NDArray[np.float32]]) -> None:
    moved = RandomAlbumentations((A.BBoxSafeRandomCrop(erosion_rate=0.5, p=1),))(
        page_of(words), np.random.default_rng(0)
    )

    assert len(moved.polygons) == 0
    assert moved.width < WIDTH


def test_text_marked_ignore_does_not_hold_a_crop_around_boxes() -> None:
    page = page_of([QUAD, SECOND], ignore=[False, True])
    stage = RandomAlbumentations((A.BBoxSafeRandomCrop(p=1),))

    assert any(len(stage(page, np.random.default_rng(seed)).polygons) == 1 for seed in range(30))


@pytest.mark.parametrize(
    ("transform", "needs"),
    [
        (A.MaskDropout(), "mask"),
        (A.CropNonEmptyMaskIfExists(height=20, width=20), "mask"),
        (A.ConstrainedCoarseDropout(), "mask or labelled bboxes"),
        (A.Mosaic(), "mosaic_metadata"),
        (A.OverlayElements(), "overlay_metadata"),
        (A.FDA(), "fda_metadata"),
        (A.HistogramMatching(), "hm_metadata"),
        (A.PixelDistributionAdaptation(), "pda_metadata"),
        (A.RandomCropNearBBox(), "cropping_bbox"),
        (A.CoarseDropout3D(), "volume"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "in a choice"])
def test_a_transform_that_needs_what_a_page_does_not_have_is_named(transform: Any, needs: str, nested: bool) -> None:
    name = type(transform).__name__
    with pytest.raises(ConfigError, match=rf"transforms: {name}\(.* needs {needs}, but a page has only"):
        translate([A.OneOf([transform, A.NoOp()]) if nested else transform])
