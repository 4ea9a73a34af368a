"""Any Albumentations transform as a stage: polygons stay on their pixels, and there is a way back."""

from typing import Any

import albumentations as A  # noqa: N812
import cv2
import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from ocr.datasets.albumentations_stages import FixedAlbumentations, RandomAlbumentations, is_fixed, translate
from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons, move_points
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
        moved = stage(page, np.random.default_rng(seed)) if isinstance(stage, RandomAlbumentations) else stage(page)  # type: ignore[call-arg]
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
        moved = RandomAlbumentations((transform,))(painted_page(OUTSIDE), np.random.default_rng(seed))
        assert moved.image.shape == (HEIGHT, WIDTH, 3)
        assert np.isfinite(moved.inverse_matrix).all()
        assert np.isfinite(moved.polygons.vertices).all()


@pytest.mark.parametrize("transform", [A.ElasticTransform(p=1), A.GridDistortion(distort_limit=0.1, p=1)])
def test_a_bent_page_keeps_polygons_near_their_pixels(transform: Any) -> None:
    # Two words that share a corner, which Albumentations cannot tell apart, and one over the border.
    page = painted_page(QUAD + np.float32([0, 22]), OUTSIDE)
    for seed in range(5):
        moved = RandomAlbumentations((transform,))(page, np.random.default_rng(seed))
        assert len(moved.polygons) == 3
        word = next(iter(moved.polygons))
        painted = moved.image[:, :, 0] > 127
        assert not (painted & ~covered(word, WIDTH, HEIGHT, 4)).any()
        assert painted[covered(word, WIDTH, HEIGHT, -4)].all()


def test_a_bent_word_is_bent_as_albumentations_bends_it() -> None:
    transform = A.GridDistortion(distort_limit=0.3, p=1)
    seed = int(np.random.default_rng(3).integers(2**31))

    moved = RandomAlbumentations((transform,))(noise_page(), np.random.default_rng(3))

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
def test_usual_options_become_our_letterbox_with_the_same_result(
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
        changed = stage(noise_page(), np.random.default_rng(0))
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

    moved = RandomAlbumentations((forgetful,))(noise_page(), np.random.default_rng(0))

    np.testing.assert_allclose(
        moved.polygons.vertices, np.column_stack([WIDTH - 1 - QUAD[:, 0], QUAD[:, 1]]), atol=1e-3
    )


def test_a_transform_that_loses_all_points_is_named() -> None:
    forgetful = Forgetful(p=1)
    forgetful.first = 12

    with pytest.raises(ConfigError, match=r"Forgetful.* loses the points of the page"):
        RandomAlbumentations((forgetful,))(noise_page(), np.random.default_rng(0))
