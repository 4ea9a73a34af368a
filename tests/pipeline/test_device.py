"""Normalisation: the same numbers as Albumentations', on the host and on the device."""

import albumentations as A  # noqa: N812
import numpy as np
import pytest
import torch
from rejection import rejects

from ocr.errors import ConfigError
from ocr.pipeline.device import Normalize

OTHER = Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3), max_pixel_value=200.0)


def noise(height: int = 37, width: int = 53) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("normalize", [Normalize(), OTHER], ids=["imagenet", "other"])
def test_a_page_on_the_host_equals_albumentations_bit_for_bit(normalize: Normalize) -> None:
    image = noise(256, 256)
    image.reshape(-1, 3)[:256] = np.arange(256)[:, None]
    expected = A.Normalize(normalize.mean, normalize.std, normalize.max_pixel_value)(image=image)["image"]

    assert np.array_equal(normalize.on_host(image), expected.transpose(2, 0, 1))


@pytest.mark.parametrize("normalize", [Normalize(), OTHER], ids=["imagenet", "other"])
def test_a_batch_on_the_device_equals_the_pages_on_the_host(normalize: Normalize) -> None:
    image = noise()
    batch = torch.from_numpy(np.stack([image, 255 - image])).permute(0, 3, 1, 2)

    arrived = normalize.on_device(batch, "cpu")

    assert arrived.dtype == torch.float32
    for page, expected in zip(arrived, (image, 255 - image), strict=True):
        np.testing.assert_allclose(page.numpy(), normalize.on_host(expected), atol=1e-6)


@pytest.mark.parametrize("normalize", [Normalize(), OTHER], ids=["imagenet", "other"])
def test_the_steps_on_a_gpu_give_the_numbers_of_the_host(normalize: Normalize) -> None:
    image = noise()
    batch = torch.from_numpy(image[None]).permute(0, 3, 1, 2)

    assert np.array_equal(normalize._by_channel(batch)[0].numpy(), normalize.on_host(image))
    assert batch.dtype == torch.uint8


def test_a_float_batch_passes_as_it_is() -> None:
    batch = torch.rand(2, 3, 4, 5)

    assert Normalize().on_device(batch) is batch


def test_a_mirrored_view_of_a_page_is_normalised_like_its_copy() -> None:
    image = noise()

    assert np.array_equal(Normalize().on_host(image[:, ::-1]), Normalize().on_host(image[:, ::-1].copy()))


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("mean", (0.5, 0.5)),
        ("mean", "abc"),
        ("mean", None),
        ("mean", (0.5, "x", 0.5)),
        ("std", (0.2, 0.2, 0.2, 0.2)),
        ("std", (0.2, 0.0, 0.2)),
        ("std", (0.2, float("nan"), 0.2)),
        ("std", np.float64(0.2)),
        ("max_pixel_value", "x"),
        ("max_pixel_value", 0.0),
    ],
)
def test_a_normalisation_that_cannot_work_is_refused(setting: str, value: object) -> None:
    with rejects(ConfigError, setting=f"Normalize.{setting}", value=value):
        Normalize(**{setting: value})  # type: ignore[arg-type]


def test_lists_from_a_config_are_as_good_as_tuples() -> None:
    listed = Normalize(mean=[0.5, 0.4, 0.3], std=[0.2, 0.25, 0.3], max_pixel_value=200.0)  # type: ignore[arg-type]

    arrays = Normalize(np.array(OTHER.mean), np.array(OTHER.std), np.int64(200))  # type: ignore[arg-type]

    assert listed == arrays == OTHER
    assert hash(listed) == hash(OTHER)
