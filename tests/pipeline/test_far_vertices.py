"""Vertices that no integer can hold: the maps stay within their arrays, and the process stays alive."""

import multiprocessing
from itertools import product

import numpy as np
import pytest
import torch

from ocr.dali.maps import raise_band
from ocr.geometry.polygons import Polygons
from ocr.pipeline.targets import Targets

OUTLINES = (
    lambda far: [[0, 0], [far, 0], [0, far]],
    lambda far: [[0, 0], [far, 0], [far, far], [0, far]],
    lambda far: [[-far, -far], [far, -far], [far, far], [-far, far]],
    lambda far: [[10, 10], [far, 12], [50, 30], [10, 30]],
    lambda far: [[10, 10], [-far, 12], [50, 30], [10, 30]],
    lambda far: [[10, -far], [50, -far], [51, far], [11, far]],
)


def draw_far_vertices() -> None:
    for far in (1e7, 1e10, 1e15, 1e19, 1e30, float("inf"), float("nan")):
        for outline, ignore in product(OUTLINES, (False, True)):
            maps = Targets().draw(Polygons.pack([outline(far)], [ignore]), 96, 64)
            assert np.isfinite(maps.thresh_map).all()
            assert maps.thresh_map.min() >= np.float32(0.3)
            assert maps.thresh_map.max() <= np.float32(0.7)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_maps_of_vertices_beyond_every_integer_are_drawn_without_leaving_their_arrays():
    # In a process of its own: what is wrong here is not an exception but a segmentation fault.
    child = multiprocessing.get_context("fork").Process(target=draw_far_vertices)
    child.start()
    child.join()
    assert child.exitcode == 0


# NumPy warns of a float that no integer can hold.
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("far", [1e7, 1e19, 1e30])
def test_the_band_on_the_device_is_cut_to_the_page_first(far):
    band = torch.full((64, 96), 0.3)
    outline = [[10, 10], [far, 10], [far, 30], [10, 30]]
    raise_band(Polygons.pack([outline]), np.array([8.0]), 0.3, 0.7, band)
    assert band[20, 10] == pytest.approx(0.7)
    assert band.max() <= 0.7
    assert band[40:].max() == pytest.approx(0.3)
