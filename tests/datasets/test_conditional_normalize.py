"""ConditionalNormalize: uint8 is normalised, float was already."""

import pickle
from typing import Any

import albumentations as A  # noqa: N812
import numpy as np
import pytest

from ocr.datasets.transforms import ConditionalNormalize, DBTransforms
from ocr.pipeline.device import Normalize

IMAGE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def test_a_uint8_page_is_normalised_like_albumentations_does() -> None:
    for parameters in ({}, {"mean": (0.5, 0.4, 0.3), "std": (0.1, 0.2, 0.3), "max_pixel_value": 128.0}):
        expected = A.Normalize(**parameters)(image=IMAGE)["image"]
        assert np.array_equal(ConditionalNormalize(**parameters)(image=IMAGE)["image"], expected)


def test_a_float_page_is_left_alone() -> None:
    normalised = A.Normalize()(image=IMAGE)["image"]

    assert np.array_equal(ConditionalNormalize()(image=normalised)["image"], normalised)


def test_it_works_in_a_compose_like_any_transform() -> None:
    compose = A.Compose([A.HorizontalFlip(p=1), ConditionalNormalize()])

    once = compose(image=IMAGE)["image"]

    assert np.array_equal(once, A.Normalize()(image=IMAGE[:, ::-1])["image"])
    assert np.array_equal(compose(image=once)["image"], once[:, ::-1])


def test_at_the_end_of_a_list_it_joins_the_conversion_to_a_tensor() -> None:
    transforms = DBTransforms([ConditionalNormalize(mean=(0.5, 0.4, 0.3), std=(0.1, 0.2, 0.3))])

    assert transforms.stages == ()
    assert transforms.normalization == Normalize((0.5, 0.4, 0.3), (0.1, 0.2, 0.3))
    expected = A.Normalize((0.5, 0.4, 0.3), (0.1, 0.2, 0.3))(image=IMAGE)["image"]
    assert np.array_equal(transforms(IMAGE)["image"].numpy(), expected.transpose(2, 0, 1))
    assert np.array_equal(transforms(expected)["image"].numpy(), expected.transpose(2, 0, 1))


def test_it_travels_to_a_worker() -> None:
    again = pickle.loads(pickle.dumps(ConditionalNormalize(max_pixel_value=128.0)))

    assert np.array_equal(again(image=IMAGE)["image"], A.Normalize(max_pixel_value=128.0)(image=IMAGE)["image"])


@pytest.mark.parametrize("kind", [A.Normalize, ConditionalNormalize])
@pytest.mark.parametrize("normalize", ["host", "device"])
def test_its_largest_pixel_counts_where_it_joins_the_conversion_to_a_tensor(kind: Any, normalize: str) -> None:
    transforms = DBTransforms([kind(max_pixel_value=128.0)], normalize=normalize)

    assert transforms.normalization == Normalize(max_pixel_value=128.0)
    image = transforms(IMAGE)["image"]
    expected = A.Normalize(max_pixel_value=128.0)(image=IMAGE)["image"].transpose(2, 0, 1)
    found = image.numpy() if normalize == "host" else transforms.normalization.on_device(image[None]).numpy()[0]
    assert np.array_equal(found, expected)
