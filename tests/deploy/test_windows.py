"""windows: parts of an image become one map, whatever their borders cut."""

from itertools import pairwise

import numpy as np
import pytest

from ocr.deploy.windows import map_in_windows, window_shares, window_starts


@pytest.mark.parametrize(("length", "window"), [(64, 64), (96, 64), (128, 96), (320, 96), (4000, 960), (2016, 992)])
def test_windows_cover_a_side_overlap_and_count_as_one(length, window):
    length = -(-length // 32) * 32
    starts = window_starts(length, window)
    assert starts[0] == 0
    assert starts[-1] == length - min(length, window)
    assert all(start % 32 == 0 for start in starts)
    assert all(0 < after - before <= window - window // 4 + 32 for before, after in pairwise(starts))
    total = np.zeros(length)
    for start, share in zip(starts, window_shares(starts, window, length), strict=True):
        total[start : start + window] += share
        assert (share > 0).all()
    assert np.allclose(total, 1, atol=1e-6)


def test_a_map_in_windows_is_that_of_the_whole_image_if_the_model_looks_at_single_pixels():
    image = np.random.default_rng(0).integers(0, 256, (224, 416, 3), dtype=np.uint8)
    seen = []

    def find_maps(part: np.ndarray) -> np.ndarray:
        seen.append(part.shape)
        return part[..., 0].astype(np.float32) / 255

    merged = map_in_windows(image, 96, find_maps)
    assert merged.dtype == np.float32
    assert np.allclose(merged, image[..., 0] / 255, atol=1e-6)
    assert set(seen) == {(1, 96, 96, 3)}
    assert map_in_windows(image, 224, find_maps).shape == (224, 416)
    assert seen[-1] == (1, 224, 224, 3)


def test_the_border_of_a_window_hardly_counts():
    image = np.zeros((64, 160, 3), dtype=np.uint8)

    def find_maps(part: np.ndarray) -> np.ndarray:
        maps = np.ones(part.shape[:3], dtype=np.float32)
        maps[:, :, -1] = 0  # What padding does to the last column of a window.
        return maps

    merged = map_in_windows(image, 96, find_maps)
    assert merged[:, 95].min() > 0.95
    assert merged[:, 159].max() == 0
