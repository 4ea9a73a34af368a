"""A transform is what its class is, not what it is named; its parameters count whole in the fingerprint."""

from typing import Any

import albumentations as A  # noqa: N812
import numpy as np
import pytest

from ocr.datasets import DBTransforms
from ocr.datasets.albumentations_stages import FixedAlbumentations, RandomAlbumentations, is_fixed, translate
from ocr.datasets.conditional_normalize import ConditionalNormalize
from ocr.pipeline.fingerprint import stages_digest

IMAGE = np.full((32, 32, 3), 100, np.uint8)


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
    ids=["a namesake", "a namesake that extends it", "a namesake of ours", "one that extends ours"],
)
def test_a_transform_that_is_named_like_a_fixed_one_is_random(transform: Any) -> None:
    assert not is_fixed(transform)
    (stage,) = translate([transform])
    assert isinstance(stage, RandomAlbumentations)


def test_ours_is_still_known() -> None:
    assert is_fixed(ConditionalNormalize())
    assert is_fixed(A.Equalize(p=1))


def test_a_letterbox_is_made_of_the_transforms_themselves_only() -> None:
    resize = namesake("LongestMaxSize", A.LongestMaxSize)(32)
    stages = translate([resize, A.PadIfNeeded(32, 32)])
    assert [type(stage) for stage in stages] == [RandomAlbumentations, FixedAlbumentations]


@pytest.mark.parametrize("name", ["Normalize", "ConditionalNormalize", "ToTensorV2"])
def test_what_is_only_named_like_a_normalisation_or_conversion_runs_as_it_is(name: str) -> None:
    transforms = DBTransforms([namesake(name)(p=1)])
    assert transforms.normalization is None
    assert len(transforms.random) == 1
    item = transforms(IMAGE, rng=np.random.default_rng(0))
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
    DBTransforms([*fixed])(IMAGE)
    assert stages_digest(fixed) == before
