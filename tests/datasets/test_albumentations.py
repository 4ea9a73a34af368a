"""Any Albumentations transform as a stage: polygons follow their pixels, and what needs more than a page is refused."""

from typing import Any

import albumentations as A  # noqa: N812
import cv2
import numpy as np
import pytest
import shapely
import torch
from numpy.typing import NDArray
from pages import open_split, run
from rejection import rejects
from sameness import assert_same

from ocr.datasets import DBTransforms
from ocr.datasets.albumentations import FixedAlbumentations, RandomAlbumentations, is_fixed, translate
from ocr.datasets.conditional_normalize import ConditionalNormalize
from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons, move_points
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample

WIDTH, HEIGHT = 130, 100
QUAD = np.array([[45, 35], [88, 42], [84, 64], [41, 57]], np.float32)
OUTSIDE = np.array([[-30, -20], [5, -18], [6, 4], [-28, 5]], np.float32)


def covered(polygon: NDArray[np.float32], width: int, height: int, grow: float = 0.0) -> NDArray[np.bool_]:
    ys, xs = np.mgrid[:height, :width]
    inside: NDArray[np.bool_] = shapely.contains_xy(shapely.Polygon(polygon).buffer(grow), xs, ys)
    return inside


def painted_page(*more: NDArray[np.float32]) -> Sample:
    image = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    image[covered(QUAD, WIDTH, HEIGHT)] = 255
    return Sample(0, "", "", Polygons.pack([QUAD, *more]), image=image, shape=(WIDTH, HEIGHT))


def noise_page() -> Sample:
    image = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    return Sample(0, "", "", Polygons.pack([QUAD]), image=image, shape=(WIDTH, HEIGHT))


def by_albumentations(page: Sample, steps: list[Any], seed: int = 0) -> tuple[NDArray[Any], NDArray[np.float32]]:
    compose = A.Compose(steps, keypoint_params=A.KeypointParams(format="xy", remove_invisible=False), seed=seed)
    result = compose(image=page.image, keypoints=page.polygons.vertices)
    return result["image"], np.asarray(result["keypoints"], np.float32)


GEOMETRIC = [
    A.Rotate(limit=40, p=1),
    A.SafeRotate(limit=40, p=1),
    A.Perspective(scale=(0.05, 0.15), p=1),
    A.Perspective(scale=(0.05, 0.15), keep_size=False, p=1),
    A.Affine(scale=(0.7, 1.3), translate_percent=(-0.1, 0.1), rotate=(-30, 30), shear=(-10, 10), p=1),
    A.RandomCrop(60, 70, p=1),
    A.RandomResizedCrop(size=(80, 90), scale=(0.5, 1), p=1),
    A.RandomScale(scale_limit=0.3, p=1),
    A.Transpose(p=1),
    A.RandomRotate90(p=1),
    A.VerticalFlip(p=1),
    A.D4(p=1),
    A.Rotate(limit=40, border_mode=cv2.BORDER_REFLECT_101, p=1),
    A.OneOf([A.Rotate(limit=40, p=1), A.HorizontalFlip(p=1)], p=1),
]


@pytest.mark.parametrize("transform", GEOMETRIC, ids=lambda transform: type(transform).__name__)
def test_an_arbitrary_geometric_transform_keeps_polygons_on_their_pixels(transform: Any) -> None:
    (stage,) = translate([transform])
    reflects = getattr(transform, "border_mode", None) == cv2.BORDER_REFLECT_101
    for seed in range(6):
        page = painted_page()
        moved = (
            run([stage], page, np.random.default_rng(seed)) if isinstance(stage, RandomAlbumentations) else stage(page)
        )  # type: ignore[call-arg]
        there = move_points(QUAD, np.linalg.inv(moved.inverse_matrix))
        painted = moved.image[:, :, 0] > 127
        assert painted[covered(there, moved.width, moved.height, -2)].all()
        if not reflects:
            assert not (painted & ~covered(there, moved.width, moved.height, 2)).any()
        for polygon in moved.polygons:
            assert np.abs(polygon - there).max() < 0.1
            assert np.abs(move_points(polygon, moved.inverse_matrix) - QUAD).max() < 0.5


@pytest.mark.filterwarnings("ignore:Some keypoints are not in any tile")
@pytest.mark.parametrize(
    "transform",
    [
        A.ElasticTransform(p=1),
        A.GridDistortion(p=1),
        A.OpticalDistortion(p=1),
        A.RandomGridShuffle(p=1),
        A.CoarseDropout(p=1),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_a_transform_that_is_no_matrix_does_not_crash(transform: Any) -> None:
    for seed in range(3):
        moved = run([RandomAlbumentations((transform,))], painted_page(OUTSIDE), np.random.default_rng(seed))
        assert moved.image.shape == (HEIGHT, WIDTH, 3)
        assert np.isfinite(moved.inverse_matrix).all()
        assert np.isfinite(moved.polygons.vertices).all()


@pytest.mark.parametrize("transform", [A.ElasticTransform(p=1), A.GridDistortion(distort_limit=0.1, p=1)])
def test_a_bent_page_keeps_polygons_near_their_pixels(transform: Any) -> None:
    # Two words that share a corner, which Albumentations cannot tell apart, and one over the border.
    page = painted_page(QUAD + np.float32([0, 22]), OUTSIDE)
    for seed in range(5):
        moved = run([RandomAlbumentations((transform,))], page, np.random.default_rng(seed))
        assert len(moved.polygons) == 3
        word = next(iter(moved.polygons))
        painted = moved.image[:, :, 0] > 127
        assert not (painted & ~covered(word, WIDTH, HEIGHT, 4)).any()
        assert painted[covered(word, WIDTH, HEIGHT, -4)].all()


def test_a_bent_word_is_bent_as_albumentations_bends_it() -> None:
    transform = A.GridDistortion(distort_limit=0.3, p=1)
    seed = int(np.random.default_rng(3).integers(2**31))

    moved = run([RandomAlbumentations((transform,))], noise_page(), np.random.default_rng(3))

    image, points = by_albumentations(noise_page(), [transform], seed)
    assert np.array_equal(moved.image, image)
    assert np.array_equal(moved.polygons.vertices, points)


def test_a_reflecting_border_does_not_mix_up_the_vertices() -> None:
    steps = [A.LongestMaxSize(64), A.PadIfNeeded(64, 64, border_mode=cv2.BORDER_REFLECT_101)]
    page = noise_page()
    plain = Letterbox(64)(page)

    (stage,) = translate(steps)
    boxed = stage(page)  # type: ignore[call-arg]

    assert isinstance(stage, FixedAlbumentations)
    assert np.array_equal(boxed.image, by_albumentations(page, steps)[0])
    np.testing.assert_allclose(boxed.polygons.vertices, plain.polygons.vertices, atol=1e-3)
    np.testing.assert_allclose(boxed.inverse_matrix, plain.inverse_matrix, atol=1e-3)


UNUSUAL = {
    "a list of sizes": [A.LongestMaxSize([48, 64]), A.PadIfNeeded(64, 64)],
    "sizes by side": [A.LongestMaxSize(max_size_hw=(64, 60)), A.PadIfNeeded(64, 64)],
    "a random position": [A.LongestMaxSize(64), A.PadIfNeeded(64, 64, position="random")],
    "a chance": [A.LongestMaxSize(64, p=0.5), A.PadIfNeeded(64, 64)],
    "a replicated border": [A.LongestMaxSize(64), A.PadIfNeeded(64, 64, border_mode=cv2.BORDER_REPLICATE)],
    "a reflected border": [A.LongestMaxSize(64), A.PadIfNeeded(64, 64, border_mode=cv2.BORDER_REFLECT)],
    "a coloured border": [A.LongestMaxSize(64), A.PadIfNeeded(64, 64, fill=(1, 2, 3))],
    "another size": [A.LongestMaxSize(64), A.PadIfNeeded(80, 64)],
    "a divisor": [A.LongestMaxSize(64), A.PadIfNeeded(None, None, pad_height_divisor=32, pad_width_divisor=32)],
    "nearest pixels": [A.LongestMaxSize(64, interpolation=cv2.INTER_NEAREST), A.PadIfNeeded(64, 64)],
    "area also to enlarge": [A.LongestMaxSize(64, interpolation=cv2.INTER_AREA), A.PadIfNeeded(64, 64)],
    "only the resize": [A.LongestMaxSize(64)],
    "only the padding": [A.PadIfNeeded(200, 200)],
}


@pytest.mark.parametrize("steps", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_options_are_left_to_albumentations_with_its_result(steps: list[Any]) -> None:
    page = noise_page()
    stages = translate(steps)
    assert not any(isinstance(stage, Letterbox) for stage in stages)
    if not all(map(is_fixed, steps)):
        assert any(isinstance(stage, RandomAlbumentations) for stage in stages)
        return
    (stage,) = stages
    image, points = by_albumentations(page, steps)

    moved = stage(page)  # type: ignore[call-arg]

    assert np.array_equal(moved.image, image)
    if len(points) == len(QUAD):
        np.testing.assert_allclose(moved.polygons.vertices, points, atol=1e-3)


@pytest.mark.parametrize(
    ("resize", "pad", "expected"),
    [
        ({}, {"fill": 255, "position": "top_left"}, Letterbox(64, "top_left", 255)),
        ({"interpolation": cv2.INTER_CUBIC}, {"fill": (7, 7, 7)}, Letterbox(64, fill=7, interpolation="cubic")),
        ({"area_for_downscale": "image"}, {}, Letterbox(64, interpolation="area")),
    ],
)
def test_usual_options_become_the_bundled_letterbox_with_the_same_result(
    resize: dict[str, Any], pad: dict[str, Any], expected: Letterbox
) -> None:
    steps = [A.LongestMaxSize(64, **resize), A.PadIfNeeded(64, 64, **pad)]
    page = noise_page()

    assert translate(steps) == [expected]
    image, points = by_albumentations(page, steps)
    assert np.array_equal(expected(page).image, image)
    np.testing.assert_allclose(expected(page).polygons.vertices, points, atol=1e-3)


@pytest.mark.parametrize(
    ("transform", "fixed"),
    [
        (A.HorizontalFlip(p=1), True),
        (A.HorizontalFlip(p=0.5), False),
        (A.SmallestMaxSize([32, 64]), False),
        (A.CenterCrop(50, 50), True),
        (A.CenterCrop(50, 50, pad_if_needed=True, pad_position="random"), False),
        (A.Rotate(limit=10, p=1), False),
        (A.OneOf([A.NoOp()], p=1), False),
    ],
)
def test_only_what_draws_nothing_is_fixed(transform: Any, fixed: bool) -> None:
    assert is_fixed(transform) is fixed


@pytest.mark.parametrize(
    ("transform", "moves"),
    [
        (A.GaussNoise(p=1), False),
        (A.ColorJitter(p=1), False),
        (A.OneOf([A.Blur(p=1), A.Sequential([A.CLAHE(p=1)])]), False),
        (A.OneOf([A.Blur(p=1), A.Rotate(p=1)]), True),
        (A.HorizontalFlip(p=0.5), True),
    ],
)
def test_a_transform_of_pixels_alone_does_not_move_geometry(transform: Any, moves: bool) -> None:
    stage = RandomAlbumentations((transform,))

    assert stage.moves_geometry is moves
    if not moves:
        changed = run([stage], noise_page(), np.random.default_rng(0))
        assert np.array_equal(changed.polygons.vertices, QUAD)
        np.testing.assert_allclose(changed.inverse_matrix, np.eye(3), atol=1e-6)


def test_words_that_lose_their_area_are_dropped_and_counted() -> None:
    speck = np.array([[60, 20], [62, 20], [62, 22], [60, 22]], np.float32)

    moved = FixedAlbumentations((A.Resize(20, 26),))(painted_page(speck))

    assert len(moved.polygons) == 1
    assert moved.dropped_polygons == 1


class Forgetful(A.HorizontalFlip):  # type: ignore[misc]
    """A flip that keeps only the points from `first` on."""

    first = 0

    def apply_to_keypoints(self, keypoints: NDArray[Any], **params: Any) -> NDArray[Any]:
        flipped: NDArray[Any] = super().apply_to_keypoints(keypoints, **params)
        return flipped[self.first :]


def test_a_vertex_that_a_transform_loses_is_moved_with_the_page() -> None:
    forgetful = Forgetful(p=1)
    forgetful.first = 2

    moved = run([RandomAlbumentations((forgetful,))], noise_page(), np.random.default_rng(0))

    np.testing.assert_allclose(
        moved.polygons.vertices, np.column_stack([WIDTH - 1 - QUAD[:, 0], QUAD[:, 1]]), atol=1e-3
    )


def test_a_transform_that_loses_all_points_is_named() -> None:
    forgetful = Forgetful(p=1)
    forgetful.first = 12

    with rejects(ConfigError, setting="transforms", value=(forgetful,)):
        run([RandomAlbumentations((forgetful,))], noise_page(), np.random.default_rng(0))


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
        moved = run([RandomAlbumentations((transform,))], page, np.random.default_rng(seed))
        words = np.concatenate(list(moved.polygons)[:2])
        assert words.min() > -0.5
        assert (words < np.array([moved.width, moved.height]) + 0.5).all()
        shifts.add(moved.inverse_matrix[0, 2])
    assert len(shifts) > 5


def test_a_crop_around_one_box_keeps_a_word_whole() -> None:
    stage = RandomAlbumentations((A.AtLeastOneBBoxRandomCrop(height=40, width=60, p=1),))
    for seed in range(30):
        moved = run([stage], page_of([QUAD, SECOND]), np.random.default_rng(seed))
        assert any((word >= 0).all() and (word < (60, 40)).all() for word in moved.polygons)


@pytest.mark.parametrize("words", [[], [OFF_PAGE]], ids=["none", "off the page"])
def test_a_crop_around_boxes_works_on_a_page_without_words(words: list[NDArray[np.float32]]) -> None:
    crop = RandomAlbumentations((A.BBoxSafeRandomCrop(erosion_rate=0.5, p=1),))
    moved = run([crop], page_of(words), np.random.default_rng(0))

    assert len(moved.polygons) == 0
    assert moved.width < WIDTH


def test_text_marked_ignore_does_not_hold_a_crop_around_boxes() -> None:
    page = page_of([QUAD, SECOND], ignore=[False, True])
    stage = RandomAlbumentations((A.BBoxSafeRandomCrop(p=1),))

    assert any(len(run([stage], page, np.random.default_rng(seed)).polygons) == 1 for seed in range(30))


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
    with rejects(ConfigError, setting="transforms", value=transform) as caught:
        translate([A.OneOf([transform, A.NoOp()]) if nested else transform])
    assert f" needs {needs}, " in str(caught.value)


GRAY = np.full((32, 32, 3), 100, np.uint8)


def namesake(name: str, base: Any = A.ImageOnlyTransform) -> Any:
    """A transform of a user with the name of one that Albumentations has; it adds a random number."""

    def apply(self: Any, img: Any, **params: Any) -> Any:
        return img + np.uint8(self.py_random.randint(1, 100))

    return type(name, (base,), {"apply": apply, "normalization": "standard"})


@pytest.mark.parametrize(
    "transform",
    [
        namesake("Equalize")(p=1),
        namesake("Equalize", A.Equalize)(p=1),
        namesake("ConditionalNormalize", A.Normalize)(),
        namesake("ConditionalNormalize", ConditionalNormalize)(),
    ],
    ids=["a namesake", "a namesake that extends it", "a namesake of GlyphFeed's", "one that extends GlyphFeed's"],
)
def test_a_transform_that_is_named_like_a_fixed_one_is_random(transform: Any) -> None:
    assert not is_fixed(transform)
    (stage,) = translate([transform])
    assert isinstance(stage, RandomAlbumentations)


def test_the_real_ones_are_still_known() -> None:
    assert is_fixed(ConditionalNormalize())
    assert is_fixed(A.Equalize(p=1))


def test_the_cut_is_in_front_of_a_transform_that_makes_floats(synthetic, tmp_path) -> None:
    transforms = DBTransforms([Letterbox(64), A.Equalize(p=1), A.ToFloat(max_value=255), A.HorizontalFlip(p=0.5)])
    assert [type(stage).__name__ for stage in transforms.fixed] == ["Letterbox", "FixedAlbumentations"]
    assert [type(stage).__name__ for stage in transforms.random] == ["FixedAlbumentations", "RandomAlbumentations"]
    expected = [open_split(synthetic, "val", transforms)[index] for index in range(3)]
    assert expected[0]["image"].dtype == torch.float32
    for _ in range(2):
        kept = open_split(synthetic, "val", transforms, preload_images=True, cache_folder=tmp_path)
        assert_same([kept[index] for index in range(3)], expected)


def test_a_letterbox_is_made_of_the_transforms_themselves_only() -> None:
    resize = namesake("LongestMaxSize", A.LongestMaxSize)(32)
    stages = translate([resize, A.PadIfNeeded(32, 32)])
    assert [type(stage) for stage in stages] == [RandomAlbumentations, FixedAlbumentations]


@pytest.mark.parametrize("name", ["Normalize", "ConditionalNormalize", "ToTensorV2"])
def test_what_is_only_named_like_a_normalisation_or_conversion_runs_as_it_is(name: str) -> None:
    transforms = DBTransforms([namesake(name)(p=1)])
    assert transforms.normalization is None
    assert len(transforms.random) == 1
    item = transforms(GRAY, rng=np.random.default_rng(0))
    assert item["image"].min() > 100


def test_a_composition_that_is_changed_is_not_taken_apart() -> None:
    class Compose(A.Compose):  # type: ignore[misc]
        def __call__(self, *args: Any, force_apply: bool = False, **data: Any) -> Any:
            return data | {"image": data["image"] + np.uint8(1)}

    transforms = DBTransforms(Compose([A.HorizontalFlip(p=1)]))
    assert not transforms.fixed
    assert len(transforms.random) == 1


@pytest.mark.parametrize("name", ["CropNonEmptyMaskIfExists", "ConstrainedCoarseDropout", "BBoxSafeRandomCrop"])
def test_a_namesake_of_one_that_needs_more_than_a_page_is_not_refused(name: str) -> None:
    (stage,) = translate([namesake(name)(p=1)])
    assert isinstance(stage, RandomAlbumentations)
    assert not stage.around_boxes


def mask(changed: int | None = None) -> Any:
    made = np.ones((100, 100), np.uint8)
    if changed is not None:
        made.flat[changed] = 0
    return made


def equalizing(**parameters: Any) -> str:
    return stages_digest(DBTransforms([A.Equalize(p=1, **parameters)]).fixed)


def test_all_of_a_large_mask_counts() -> None:
    assert equalizing(mask=mask()) == equalizing(mask=mask()) != equalizing(mask=mask(5000))


def test_a_mask_that_is_a_function_counts_by_its_code() -> None:
    def make(side: int) -> Any:
        return lambda image: np.ones((side, side), np.uint8)

    kept = [make(3), make(3)]
    assert equalizing(mask=kept[0]) == equalizing(mask=kept[1]) != equalizing(mask=make(4))


def test_a_transform_that_was_used_has_the_digest_it_had() -> None:
    fixed = DBTransforms([A.Equalize(p=1), A.CenterCrop(16, 16)]).fixed
    before = stages_digest(fixed)
    DBTransforms([*fixed])(GRAY)
    assert stages_digest(fixed) == before


def test_a_word_below_the_width_of_a_tall_page_holds_a_crop_around_boxes() -> None:
    image = np.zeros((400, 60, 3), dtype=np.uint8)
    low = np.array([[5, 300], [50, 300], [50, 320], [5, 320]], np.float32)
    page = Sample(0, "", "", Polygons.pack([low]), image=image, shape=(60, 400))
    stage = RandomAlbumentations((A.BBoxSafeRandomCrop(p=1),))
    for seed in range(20):
        moved = run([stage], page, np.random.default_rng(seed))
        (word,) = moved.polygons
        assert word.min() > -0.5
        assert (word < np.array([moved.width, moved.height]) + 0.5).all()
