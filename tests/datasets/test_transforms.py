"""DBTransforms: a list of anyone's transforms as one path with one cut."""

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import albumentations as A  # noqa: N812
import cv2
import numpy as np
import pytest
import torch
from albumentations.pytorch import ToTensorV2
from numpy.typing import NDArray
from omegaconf import OmegaConf
from rejection import rejects

from ocr.datasets import DBTransforms
from ocr.datasets.transforms import ConditionalNormalize, as_transforms
from ocr.errors import ConfigError, MissingExtraError
from ocr.pipeline.device import Normalize
from ocr.pipeline.pixels import ColourJitter
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import RandomBlur, RandomFlip, RandomRotate, TextAwareCrop, Warp

IMAGE = np.random.default_rng(0).integers(0, 256, (90, 130, 3), dtype=np.uint8)
WORDS = [
    np.array([[[10, 12], [60, 14], [59, 30], [9, 28]]], np.float32),
    np.array([[70, 50], [90, 45], [110, 50], [110, 64], [90, 60], [70, 64]], np.float32),
]


def classic(flip: float) -> list[Any]:
    return [
        A.LongestMaxSize(max_size=64),
        A.PadIfNeeded(min_height=64, min_width=64, border_mode=cv2.BORDER_CONSTANT),
        A.HorizontalFlip(p=flip),
        A.Normalize(),
        ToTensorV2(),
    ]


def by_albumentations(steps: list[Any]) -> tuple[NDArray[Any], list[NDArray[np.float32]]]:
    """Image (3, H, W) and the words, as Albumentations alone gives them."""
    compose = A.Compose(steps, keypoint_params=A.KeypointParams(format="xy", remove_invisible=False))
    result = compose(image=IMAGE, keypoints=np.concatenate([word.reshape(-1, 2) for word in WORDS]))
    image = result["image"]
    chw = image.numpy() if isinstance(image, torch.Tensor) else image.transpose(2, 0, 1)
    return chw, np.split(np.asarray(result["keypoints"], np.float32), [4])


def assert_same(result: dict[str, Any], steps: list[Any]) -> None:
    image, words = by_albumentations(steps)
    assert np.array_equal(result["image"].numpy(), image)
    assert len(result["polygons"]) == len(words)
    for polygon, word in zip(result["polygons"], words, strict=True):
        assert polygon.shape == (1, len(word), 2)
        np.testing.assert_allclose(polygon[0], word, atol=1e-3)


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_the_classic_list_gives_what_albumentations_gives(flip: float) -> None:
    transforms = DBTransforms(classic(flip))

    assert_same(transforms(IMAGE, WORDS), classic(flip))


def test_the_classic_list_runs_its_letterbox_on_the_fast_path_and_is_cut_at_the_flip() -> None:
    transforms = DBTransforms(classic(0.5))

    assert transforms.fixed == (Letterbox(64),)
    assert len(transforms.random) == 1
    assert transforms.normalization == Normalize()
    assert transforms.needed_side == 64
    assert transforms.moves_geometry
    assert repr(transforms).startswith(
        "Letterbox(size=64, position='center', fill=0, interpolation='linear', shape='square') -> | -> Hor"
    )


def test_a_list_without_chance_is_fixed_to_its_end() -> None:
    transforms = DBTransforms([*classic(1.0)[:3], A.CenterCrop(32, 32), A.Normalize(), ToTensorV2()])

    assert len(transforms.fixed) == 2
    assert transforms.random == ()
    assert not transforms.moves_geometry


def test_bundled_stages_and_albumentations_mix_in_their_order() -> None:
    transforms = DBTransforms(
        [Letterbox(64), A.CLAHE(p=1), RandomFlip(p=1), RandomRotate(p=0), A.ToGray(p=1), Normalize()]
    )

    names = [type(stage).__name__ for stage in transforms.stages]
    assert names == ["Letterbox", "RandomAlbumentations", "Warp", "FixedAlbumentations"]
    assert transforms(IMAGE, WORDS)["image"].shape == (3, 64, 64)


def test_bundled_geometry_is_merged_into_one_warp() -> None:
    flip, turn, crop = RandomFlip(), RandomRotate(), TextAwareCrop()

    assert DBTransforms([Letterbox(64), crop, flip, turn, Normalize()]).stages == (
        Letterbox(64),
        Warp((flip, turn), crop),
    )


def test_the_inverse_matrix_leads_back_to_the_page() -> None:
    result = DBTransforms(classic(1.0))(IMAGE, WORDS)

    for polygon, word in zip(result["polygons"], WORDS, strict=True):
        back = np.column_stack([polygon[0], np.ones(len(polygon[0]))]) @ result["inverse_matrix"].T
        np.testing.assert_allclose(back[:, :2], word.reshape(-1, 2), atol=0.01)


def test_a_nested_compose_is_opened_and_one_of_is_random() -> None:
    inner = A.Compose(classic(0.5)[:2])
    transforms = DBTransforms(
        A.Compose([inner, A.OneOf([A.Blur(p=1), A.MedianBlur(p=1)]), A.Normalize(), ToTensorV2()])
    )

    assert transforms.fixed == (Letterbox(64),)
    assert len(transforms.random) == 1
    assert not transforms.moves_geometry
    assert transforms.normalization == Normalize()


@pytest.mark.parametrize(
    "one", [A.OneOf([A.HorizontalFlip(p=1), A.VerticalFlip(p=1)], p=1), A.Compose([A.VerticalFlip(p=1)], p=0.5)]
)
def test_a_choice_given_instead_of_a_list_stays_a_choice(one: Any) -> None:
    transforms = DBTransforms(one)
    results = [transforms(IMAGE, rng=np.random.default_rng(seed))["image"].numpy() for seed in range(12)]

    assert transforms.fixed == ()
    assert len({result.tobytes() for result in results}) == 2


def test_the_same_generator_gives_the_same_result_and_another_another() -> None:
    transforms = DBTransforms([*classic(0.5)[:3], A.Rotate(p=1), A.GaussNoise(p=1), A.Normalize()])
    results = [transforms(IMAGE, WORDS, np.random.default_rng(seed)) for seed in (1, 1, 2)]

    assert torch.equal(results[0]["image"], results[1]["image"])
    assert np.array_equal(results[0]["inverse_matrix"], results[1]["inverse_matrix"])
    assert not torch.equal(results[0]["image"], results[2]["image"])


def test_transforms_travel_to_a_worker_and_give_the_same_there() -> None:
    transforms = DBTransforms([*classic(0.5)[:3], A.Rotate(p=1), RandomBlur(p=1), A.Normalize()])
    before = transforms(IMAGE, WORDS, np.random.default_rng(3))

    again = pickle.loads(pickle.dumps(transforms))

    after = again(IMAGE, WORDS, np.random.default_rng(3))
    assert repr(again) == repr(transforms)
    assert torch.equal(before["image"], after["image"])
    assert np.array_equal(before["polygons"][0], after["polygons"][0])


def test_several_threads_get_what_one_gets() -> None:
    transforms = DBTransforms([*classic(0.5)[:3], A.Affine(rotate=(-20, 20), p=1), A.GaussNoise(p=1), A.Normalize()])

    def transform(seed: int) -> dict[str, Any]:
        return transforms(IMAGE, WORDS, np.random.default_rng(seed))

    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(transform, range(24)))
    for seed, result in enumerate(together):
        alone = transform(seed)
        assert torch.equal(alone["image"], result["image"])
        assert np.array_equal(alone["inverse_matrix"], result["inverse_matrix"])


@pytest.mark.filterwarnings("ignore:Got processor for keypoints")
@pytest.mark.parametrize(
    "steps",
    [
        [A.Normalize(normalization="image")],
        [A.Normalize(), A.HorizontalFlip(p=1)],
        [A.ToFloat(255.0), A.Normalize(max_pixel_value=1.0)],
        [A.Normalize(), A.LongestMaxSize(64), A.PadIfNeeded(64, 64)],
        [A.Normalize(mean=0.5, std=0.25)],
        [A.ToGray(p=1)],
    ],
    ids=["per image", "in the middle", "of floats", "before the letterbox", "one value", "none"],
)
def test_any_normalisation_gives_what_albumentations_gives(steps: list[Any]) -> None:
    assert_same(DBTransforms(steps)(IMAGE, WORDS), steps)


def test_an_array_of_words_and_no_words_at_all_are_fine() -> None:
    transforms = DBTransforms([Letterbox(64)])

    assert len(transforms(IMAGE, np.stack([WORDS[0], WORDS[0]]))["polygons"]) == 2  # type: ignore[arg-type]
    assert transforms(IMAGE)["polygons"] == []
    assert DBTransforms([]).needed_side is None
    assert np.array_equal(DBTransforms([])(IMAGE)["image"].permute(1, 2, 0).numpy(), IMAGE)


@pytest.mark.parametrize("wrong", [42, "HorizontalFlip", lambda image: image, Normalize])
def test_a_stranger_in_the_list_is_refused(wrong: Any) -> None:
    with rejects(ConfigError, setting="transforms", value=wrong):
        DBTransforms([Letterbox(64), wrong, RandomFlip()])


def test_settings_that_cannot_work_are_named() -> None:
    with rejects(ConfigError, setting="normalize", value="gpu"):
        DBTransforms([], normalize="gpu")
    with rejects(ConfigError, setting="Normalize.mean", value=(0.5,) * 4):
        DBTransforms([A.Normalize(mean=(0.5,) * 4, std=(0.5,) * 4)])


@pytest.mark.parametrize(
    "wrong", [A.KeypointParams(format="yx"), {"format": "yx"}, OmegaConf.create({"format": "yx"}), 5]
)
def test_points_that_are_not_x_and_y_are_refused(wrong: Any) -> None:
    with rejects(ConfigError, setting="keypoint_params", value=wrong):
        DBTransforms([], keypoint_params=wrong)

    for fine in (None, A.KeypointParams(format="xy"), {"format": "xy"}, OmegaConf.create({"format": "xy"})):
        DBTransforms([], keypoint_params=fine)


@pytest.mark.parametrize(
    "steps",
    [
        [Letterbox(64), Normalize(), RandomFlip()],
        [Letterbox(64), Normalize(), A.Blur()],
        [Letterbox(64), Normalize(), Normalize()],
        [Letterbox(64), A.Normalize(), Normalize()],
        [Letterbox(64), Normalize(), A.Normalize(), ToTensorV2()],
    ],
)
def test_the_bundled_normalisation_stands_at_the_end_and_once(steps: list[Any]) -> None:
    with rejects(ConfigError, setting="transforms", value=Normalize()):
        DBTransforms(steps)


class ForeignCompose:
    """A container of another library, which has no probability."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms


ForeignCompose.__name__ = "Compose"


@pytest.mark.parametrize("wrong", [None, {}, {"a": 1}, 42, "Letterbox", Letterbox(64), OmegaConf.create({"a": 1})])
def test_what_is_not_a_list_is_named(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is no reason to ask for another library.
    monkeypatch.setitem(sys.modules, "albumentations", None)
    with rejects(ConfigError, setting="transforms", value=wrong):
        DBTransforms(wrong)
    with rejects(ConfigError, setting="transform", value=wrong):
        as_transforms(wrong)


def test_a_container_of_another_library_is_a_stranger() -> None:
    stranger = ForeignCompose([Letterbox(64)])
    with rejects(ConfigError, setting="transforms", value=stranger):
        as_transforms(stranger)


def test_a_list_or_a_compose_becomes_transforms_and_transforms_stay() -> None:
    transforms = DBTransforms([Letterbox(64)])

    assert as_transforms(transforms) is transforms
    assert as_transforms([Letterbox(64)]).stages == transforms.stages
    assert as_transforms((Letterbox(64), Normalize())).normalization == Normalize()
    assert as_transforms(A.Compose(classic(0.5)[:2])).stages == transforms.stages
    assert as_transforms(OmegaConf.create([])).stages == ()


def test_without_albumentations_bundled_stages_work_and_others_name_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = classic(0.5)
    monkeypatch.setitem(sys.modules, "albumentations", None)
    monkeypatch.delitem(sys.modules, "ocr.datasets.conditional_normalize", raising=False)
    monkeypatch.delitem(sys.modules, "ocr.datasets.albumentations_stages", raising=False)

    assert DBTransforms([Letterbox(64), RandomFlip(), Normalize()])(IMAGE, WORDS)["image"].shape == (3, 64, 64)
    with rejects(MissingExtraError, setting="albumentations", value="albumentations"):
        DBTransforms(steps)
    from ocr.datasets import transforms

    with rejects(MissingExtraError, setting="albumentations", value="albumentations"):
        transforms.ConditionalNormalize()
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = transforms.Nonsense


NORMALIZED = A.Normalize()(image=IMAGE)["image"]


def test_conditional_normalize_treats_a_uint8_page_as_albumentations_does() -> None:
    for parameters in ({}, {"mean": (0.5, 0.4, 0.3), "std": (0.1, 0.2, 0.3), "max_pixel_value": 128.0}):
        expected = A.Normalize(**parameters)(image=IMAGE)["image"]
        normalize = ConditionalNormalize(**parameters)
        assert np.array_equal(normalize(image=IMAGE)["image"], expected)
        assert np.array_equal(pickle.loads(pickle.dumps(normalize))(image=IMAGE)["image"], expected)


def test_conditional_normalize_leaves_a_float_page_alone_even_in_a_compose() -> None:
    compose = A.Compose([A.HorizontalFlip(p=1), ConditionalNormalize()])

    once = compose(image=IMAGE)["image"]

    assert np.array_equal(ConditionalNormalize()(image=NORMALIZED)["image"], NORMALIZED)
    assert np.array_equal(once, A.Normalize()(image=IMAGE[:, ::-1])["image"])
    assert np.array_equal(compose(image=once)["image"], once[:, ::-1])


@pytest.mark.parametrize("kind", [A.Normalize, ConditionalNormalize])
def test_a_normalisation_at_the_end_of_a_list_joins_the_conversion_to_a_tensor(kind: Any) -> None:
    for given in (((0.5, 0.4, 0.3), (0.1, 0.2, 0.3)), ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2), 128.0)):
        transforms = DBTransforms([kind(*given)])
        on_device = DBTransforms([kind(*given)], normalize="device")
        expected = A.Normalize(*given)(image=IMAGE)["image"]

        assert transforms.stages == ()
        assert transforms.normalization == on_device.normalization == Normalize(*given)
        assert np.array_equal(transforms(IMAGE)["image"].numpy(), expected.transpose(2, 0, 1))
        assert np.array_equal(transforms(expected)["image"].numpy(), expected.transpose(2, 0, 1))
        assert on_device.host_normalization is None
        image = on_device(IMAGE)["image"]
        assert image.dtype == torch.uint8
        found = transforms.normalization.on_device(image[None]).numpy()[0]
        assert np.array_equal(found, expected.transpose(2, 0, 1))


def test_colours_of_a_normalised_page_are_not_changed() -> None:
    jitter = ColourJitter(p=1)
    with rejects(ConfigError, setting="transforms", value=jitter):
        DBTransforms([Letterbox(64), A.Normalize(), jitter])
    DBTransforms([Letterbox(64), A.ToFloat(255.0), jitter])
