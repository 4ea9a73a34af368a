"""EXIF orientations 1-8: the stored (raw) page, the upright page, and the matrix between them."""

import cv2
import numpy as np
from numpy.typing import NDArray

# (columns of raw axes in upright axes): upright = axes @ raw + offset; 5-8 swap width and height.
_AXES = {
    1: ((1, 0), (0, 1)),
    2: ((-1, 0), (0, 1)),
    3: ((-1, 0), (0, -1)),
    4: ((1, 0), (0, -1)),
    5: ((0, 1), (1, 0)),
    6: ((0, -1), (1, 0)),
    7: ((0, -1), (-1, 0)),
    8: ((0, 1), (-1, 0)),
}


def upright_size(orientation: int, width: int, height: int) -> tuple[int, int]:
    """Width and height of the page once it is turned upright.

    >>> upright_size(6, 400, 300)
    (300, 400)
    """
    return (height, width) if orientation >= 5 else (width, height)


def orientation_matrix(orientation: int, raw_width: int, raw_height: int) -> NDArray[np.float64]:
    """3x3 matrix from raw to upright coordinates of the same pixel."""
    matrix = np.eye(3)
    matrix[:2, :2] = _AXES[orientation]
    width, height = upright_size(orientation, raw_width, raw_height)
    # Pixel centres: column x moves to width - 1 - x, not width - x.
    matrix[0, 2] = width - 1 if matrix[0, :2].sum() < 0 else 0
    matrix[1, 2] = height - 1 if matrix[1, :2].sum() < 0 else 0
    return matrix


def apply_orientation(image_hwc: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn a raw image upright."""
    match orientation:
        case 2:
            turned = cv2.flip(image_hwc, 1)
        case 3:
            turned = cv2.rotate(image_hwc, cv2.ROTATE_180)
        case 4:
            turned = cv2.flip(image_hwc, 0)
        case 5:
            turned = cv2.transpose(image_hwc)
        case 6:
            turned = cv2.rotate(image_hwc, cv2.ROTATE_90_CLOCKWISE)
        case 7:
            turned = cv2.flip(cv2.transpose(image_hwc), -1)
        case 8:
            turned = cv2.rotate(image_hwc, cv2.ROTATE_90_COUNTERCLOCKWISE)
        case _:
            return image_hwc
    return np.asarray(turned, dtype=np.uint8)


def frame_by_geometry(
    vertices: NDArray[np.float32],
    orientation: int,
    raw_size: tuple[int, int],
    claimed_size: tuple[int, int] | None = None,
) -> str | None:
    """Which frame the vertices are in, "raw" or "upright", judged by the sizes; None if they do not decide.

    A claimed size that is only one of the two decides; then the frame that fewer vertices fall out of.
    """
    upright = upright_size(orientation, *raw_size)
    if upright == raw_size:
        return None
    if claimed_size in (upright, raw_size):
        return "upright" if claimed_size == upright else "raw"
    outside_upright, outside_raw = ((vertices > size).any(axis=1).sum() for size in (upright, raw_size))
    if outside_upright == outside_raw:
        return None
    return "upright" if outside_upright < outside_raw else "raw"
