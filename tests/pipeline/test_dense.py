"""Dense pages: nothing is lost, the border costs nothing, and damage is reported."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rejection import rejects

from ocr.errors import ConfigError, DataError
from ocr.pipeline.dense import DensePage
from ocr.pipeline.device import Normalize

BORDERS = st.sampled_from([(0, 0, 0), (255, 255, 255), (10, 20, 30)])


def _page(rng, height, width, border, gray, noise=255):
    page = np.empty((height, width, 3), dtype=np.uint8)
    page[:] = border
    top, bottom = sorted(rng.integers(0, height + 1, 2))
    left, right = sorted(rng.integers(0, width + 1, 2))
    content = rng.integers(0, noise + 1, (bottom - top, right - left, 3)).astype(np.uint8)
    page[top:bottom, left:right] = content[..., :1] if gray else content
    return page


@given(st.integers(0, 1000), st.integers(1, 70), st.integers(1, 70), BORDERS, st.booleans())
def test_a_page_comes_back_bit_by_bit_as_bytes_and_as_floats(seed, height, width, border, gray):
    page = _page(np.random.default_rng(seed), height, width, border, gray)
    dense = DensePage.pack(page)
    assert dense.size == (width, height)
    assert np.array_equal(dense.pixels(), page)
    normalize = Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    floats = np.full((3, height, width), np.nan, dtype=np.float32)
    dense.write(floats, normalize)
    assert np.array_equal(floats, normalize.on_host(page))


@pytest.mark.parametrize("corner", ["center", "top_left", "bottom_right"])
def test_the_border_takes_no_bytes_wherever_the_page_lies(corner):
    rng = np.random.default_rng(0)
    content = rng.integers(0, 256, (40, 30, 3)).astype(np.uint8)
    page = np.zeros((400, 400, 3), dtype=np.uint8)
    top, left = {"center": (180, 185), "top_left": (0, 0), "bottom_right": (360, 370)}[corner]
    page[top : top + 40, left : left + 30] = content
    assert len(DensePage.pack(page).data) < content.nbytes + 200


def test_a_gray_page_takes_a_third_of_a_coloured_one():
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    gray = np.repeat(noise[..., :1], 3, axis=2)
    assert 2.8 < len(DensePage.pack(noise).data) / len(DensePage.pack(gray).data) < 3.2


def test_a_page_of_any_memory_order_is_packed():
    page = _page(np.random.default_rng(1), 33, 21, (0, 0, 0), gray=False)
    reordered = np.ascontiguousarray(page.transpose(2, 0, 1)).transpose(1, 2, 0)
    assert np.array_equal(DensePage.pack(reordered).data, DensePage.pack(page).data)


def test_the_same_page_has_the_same_bytes():
    page = _page(np.random.default_rng(2), 50, 60, (1, 1, 1), gray=False)
    assert np.array_equal(DensePage.pack(page).data, DensePage.pack(page.copy()).data)


def test_floats_are_rejected_with_the_setting_that_leaves_them_uncached():
    with rejects(ConfigError, setting="data.cache", value="float32"):
        DensePage.pack(np.zeros((4, 4, 3), dtype=np.float32))


def test_a_damaged_page_raises_and_never_writes_beyond_its_target():
    page = _page(np.random.default_rng(3), 60, 60, (0, 0, 0), gray=False)
    data = DensePage.pack(page).data
    damaged = 0
    for position in range(0, len(data), 7):
        broken = data.copy()
        broken[position] ^= 0xFF
        try:
            target = np.empty_like(page)
            DensePage(broken).write(target)
        except DataError:
            damaged += 1
    assert damaged
    for length in (0, 10, 40, len(data) // 2):
        with rejects(DataError, value=length):
            DensePage(data[:length]).write(np.empty_like(page))
        if length < 30:
            with rejects(DataError, value=length):
                DensePage(data[:length]).pixels()


def test_a_page_of_one_colour_within_its_edges_comes_back_too():
    # LZ4 makes 255 bytes of one, and not more: this page is as close to it as can be.
    page = np.zeros((3000, 3000, 3), dtype=np.uint8)
    page[0, 0] = page[-1, -1] = 255
    packed = DensePage.pack(page)
    assert 254 < page[..., 0].size / len(packed.data) < 255  # A gray page is kept as one plane.
    assert np.array_equal(packed.pixels(), page)


def test_the_header_alone_tells_the_size():
    data = DensePage.pack(_page(np.random.default_rng(0), 20, 30, (0, 0, 0), False)).data
    assert DensePage(data[:28]).size == (30, 20)
    with rejects(DataError, value=27):
        _ = DensePage(data[:27]).size


@pytest.mark.parametrize("channel", [0, 1, 2])
def test_a_last_column_that_differs_in_one_colour_alone_is_kept(channel):
    page = np.zeros((9, 12, 3), dtype=np.uint8)
    page[2:6, 3:8] = 200
    page[4, 8, channel] = page[6, 4, channel] = page[1, 4, channel] = page[4, 2, channel] = 1
    assert np.array_equal(DensePage.pack(page).pixels(), page)
