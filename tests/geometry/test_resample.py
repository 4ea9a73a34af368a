"""One pass over the pixels: the same bytes as its steps written down in NumPy, one gray level from OpenCV."""

import subprocess
import sys

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ocr.geometry.kernels.maps import normalize_to_chw
from ocr.geometry.kernels.resample import sample_normalized_page, sample_page

SAME_COLOURS = np.empty((0, 4), np.float32)
Window = tuple[int, int, int, int]


def noise(height: int, width: int, margin: int = 0, fill: int = 0) -> NDArray[np.uint8]:
    """A page of noise, with a margin of `fill` around it."""
    page = np.random.default_rng(5).integers(0, 256, (height, width, 3), dtype=np.uint8)
    inside = np.zeros((height, width), np.bool_)
    inside[margin : height - margin, margin : width - margin] = True
    page[~inside] = fill
    page.flags.writeable = False
    return page


def turned(
    degrees: float, scale: float, mirrored: bool, shift: tuple[float, float], around: float
) -> NDArray[np.float64]:
    """The matrix of a rotation and scaling around a point of the diagonal, then a shift."""
    cos, sin = scale * np.cos(np.deg2rad(degrees)), scale * np.sin(np.deg2rad(degrees))
    matrix = np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1.0]]) @ np.diag([-1 if mirrored else 1, 1, 1])
    matrix[:2, 2] = np.array(shift) + around - matrix[:2, :2] @ [around, around]
    return matrix


matrices = st.builds(
    turned,
    st.one_of(st.sampled_from([0.0, 90.0, 180.0, -90.0, 1e-5]), st.floats(-180, 180)),
    st.one_of(st.sampled_from([1.0, 0.5, 2.0]), st.floats(0.2, 4)),
    st.booleans(),
    st.tuples(st.one_of(st.integers(-30, 30).map(float), st.floats(-30, 30)), st.floats(-30, 30)),
    st.floats(0, 40),
)
sizes = st.tuples(st.integers(1, 40), st.integers(1, 40))


def stepwise(
    page: NDArray[np.uint8], window: Window, matrix: NDArray[np.float64], fill: int, height: int, width: int
) -> NDArray[np.uint8]:
    """The same float32 steps for every pixel, without any of the kernel's shortcuts."""
    left, top, right, bottom = window
    around = np.pad(page[top:bottom, left:right], ((1, 1), (1, 1), (0, 0)), constant_values=fill).astype(np.float32)
    rows, columns = np.arange(height, dtype=np.float64), np.arange(width, dtype=np.float32)
    coordinates = []
    for axis in range(2):
        starts = (matrix[axis, 1] * rows + matrix[axis, 2]).astype(np.float32)
        coordinates.append(columns[None] * np.float32(matrix[axis, 0]) + starts[:, None])
    x, y = coordinates
    whole_x, whole_y = np.floor(x), np.floor(y)
    to_right, down = (x - whole_x)[..., None], (y - whole_y)[..., None]

    def level(right: int, below: int) -> NDArray[np.float32]:
        at_x = np.clip(whole_x + 1 + right, 0, around.shape[1] - 1).astype(int)
        at_y = np.clip(whole_y + 1 + below, 0, around.shape[0] - 1).astype(int)
        return around[at_y, at_x]

    above = level(0, 0) + to_right * (level(1, 0) - level(0, 0))
    below = level(0, 1) + to_right * (level(1, 1) - level(0, 1))
    return np.rint(above + down * (below - above)).astype(np.uint8)


@settings(max_examples=4 * settings().max_examples)
@given(sizes, sizes, matrices, st.integers(0, 255), st.integers(0, 12), st.data())
def test_every_pixel_is_sampled_by_the_same_steps_inside_on_the_edge_and_around(
    size: tuple[int, int],
    out_size: tuple[int, int],
    forward: NDArray[np.float64],
    fill: int,
    margin: int,
    data: st.DataObject,
) -> None:
    height, width = size
    page = noise(height, width, margin, fill)
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    window = (left, top, data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height)))
    matrix = np.linalg.inv(forward)[:2]
    out = np.full((*out_size, 3), 77, np.uint8)

    sample_page(page, window, matrix, (0, 0), fill, SAME_COLOURS, out)

    assert np.array_equal(out, stepwise(page, window, matrix, fill, *out_size))


@pytest.mark.parametrize("degrees", [0.0, 7.5])
@pytest.mark.parametrize("scale", [0.6, 1.0, 1.7])
def test_rows_longer_than_a_run_are_sampled_like_short_ones(degrees: float, scale: float) -> None:
    page = noise(300, 700, 20)
    matrix = np.linalg.inv(turned(degrees, scale, True, (640.5, 3), 100))[:2]
    out = np.empty((80, 700, 3), np.uint8)

    sample_page(page, (0, 0, 700, 300), matrix, (0, 0), 0, SAME_COLOURS, out)

    assert np.array_equal(out, stepwise(page, (0, 0, 700, 300), matrix, 0, 80, 700))
    assert out.any()


@given(matrices, st.integers(0, 255))
def test_a_page_is_one_gray_level_from_opencv(forward: NDArray[np.float64], fill: int) -> None:
    page, out = noise(60, 70, 6, fill), np.empty((64, 64, 3), np.uint8)

    sample_page(page, (0, 0, 70, 60), np.linalg.inv(forward)[:2], (0, 0), fill, SAME_COLOURS, out)

    expected = cv2.warpAffine(page, forward[:2], (64, 64), borderValue=(fill,) * 3)
    difference = np.abs(np.int16(out) - np.int16(expected))
    assert difference.max() <= 1
    assert difference.mean() < 0.05


def test_a_part_of_what_comes_out_is_cut_from_the_whole() -> None:
    page = noise(60, 70, 6)
    matrix = np.linalg.inv(turned(9, 1.3, False, (4, 2), 30))[:2]
    whole, part = np.empty((64, 64, 3), np.uint8), np.empty((20, 30, 3), np.uint8)

    sample_page(page, (0, 0, 70, 60), matrix, (0, 0), 0, SAME_COLOURS, whole)
    sample_page(page, (0, 0, 70, 60), matrix, (17, 23), 0, SAME_COLOURS, part)

    assert np.array_equal(part, whole[23:43, 17:47])


def test_colours_are_changed_everywhere_also_around_the_page() -> None:
    page, fill = noise(40, 40, 3, 60), 60
    matrix = np.linalg.inv(turned(20, 0.7, False, (3, 3), 20))[:2]
    colours = np.array([[1.2, 0.1, -0.3, 9.5], [0, 0.5, 0.1, -20], [0.4, 0.2, 1.4, 3]], np.float32)
    plain, coloured = np.empty((48, 48, 3), np.uint8), np.empty((48, 48, 3), np.uint8)

    sample_page(page, (0, 0, 40, 40), matrix, (0, 0), fill, SAME_COLOURS, plain)
    sample_page(page, (0, 0, 40, 40), matrix, (0, 0), fill, colours, coloured)

    red, green, blue = np.moveaxis(plain.astype(np.float32), 2, 0)
    levels = [row[0] * red + row[1] * green + row[2] * blue + row[3] for row in colours]
    assert np.array_equal(coloured, np.rint(np.clip(np.stack(levels, 2), 0, 255)).astype(np.uint8))
    by_opencv = cv2.transform(plain, colours)
    assert np.abs(np.int16(coloured) - np.int16(by_opencv)).max() <= 1


def test_floats_are_what_normalising_the_bytes_gives() -> None:
    page = noise(40, 40, 3)
    colours = np.hstack([np.eye(3) * 1.3, np.full((3, 1), -7)]).astype(np.float32)
    matrix = np.linalg.inv(turned(20, 1.1, True, (3, 3), 20))[:2]
    mean, factor = np.array([120.5, 110, 100], np.float32), np.array([0.01, 0.02, 0.03], np.float32)
    pixels, floats, expected = (
        np.empty((30, 50, 3), np.uint8),
        np.empty((3, 30, 50), np.float32),
        np.empty((3, 30, 50), np.float32),
    )

    sample_page(page, (2, 3, 39, 40), matrix, (1, 2), 0, colours, pixels)
    sample_normalized_page(page, (2, 3, 39, 40), matrix, (1, 2), 0, colours, mean, factor, floats)

    normalize_to_chw(pixels, mean, factor, expected)
    assert np.array_equal(floats, expected)


AT_THE_END_OF_MEMORY = """
import ctypes, mmap
import numpy as np
from ocr.geometry.kernels.resample import sample_page

side, guard = 16, mmap.PAGESIZE
memory = mmap.mmap(-1, 3 * guard)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
for last in (0, 2):
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + last * guard), guard, 0) == 0
for start in (guard, 2 * guard - 3 * side * side):
    page = np.frombuffer(memory, np.uint8, 3 * side * side, start).reshape(side, side, 3)
    page[:] = 9
    page.flags.writeable = False
    for degrees in range(0, 360, 5):
        cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
        matrix = np.array([[cos, -sin, 7.5 * (1 - cos + sin)], [sin, cos, 7.5 * (1 - sin - cos)]])
        out = np.empty((side, side, 3), np.uint8)
        sample_page(page, (0, 0, side, side), matrix, (0, 0), 0, np.empty((0, 4), np.float32), out)
print("nothing was read beyond the page")
"""


def test_no_byte_in_front_of_a_page_or_behind_it_is_read() -> None:
    run = subprocess.run([sys.executable, "-c", AT_THE_END_OF_MEMORY], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "nothing was read beyond the page\n"
