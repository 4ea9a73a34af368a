"""dense: a page in a third of the bytes of its JPEG file, without loss, and read as fast as it is copied.

The border is left out, the rest is stored as differences to the row above, compressed with LZ4; a gray page has one
plane instead of three. benchmarks/tables/grid.py compares other ways.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError, DataError
from ocr.geometry.kernels.dense import content_window, from_differences, normalized_from_differences, to_differences
from ocr.pipeline.sample import Array, LazyImage

if TYPE_CHECKING:  # Ray workers do without torch.
    from ocr.pipeline.device import Normalize

_HEADER = struct.Struct("<IIIIIIB3B")
_MAX_EXPANSION = 255
_scratch = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class DensePage(LazyImage):
    """A page of bytes in dense form; it is unpacked where it is needed."""

    data: NDArray[np.uint8]
    """The header, then one LZ4 block."""

    @classmethod
    def pack(cls, image_hwc: NDArray[np.uint8]) -> DensePage:
        """The dense form of a page."""
        import cramjam

        if image_hwc.dtype != np.uint8:
            raise ConfigError(
                f"a page of {image_hwc.dtype} cannot be kept: pages are bytes in caches and ready shards. Set "
                "makes_floats in the stage that made them, or data.cache=off",
                setting="data.cache",
                value=str(image_hwc.dtype),
            )
        image_hwc = np.ascontiguousarray(image_hwc)
        border, (top, left, bottom, right) = _border_and_window(image_hwc)
        differences = _planes(3, bottom - top, right - left)
        planes = 1 if to_differences(image_hwc, top, left, differences) else 3
        block = cramjam.lz4.compress_block(differences[:planes].reshape(-1).data)
        header = _HEADER.pack(*image_hwc.shape[:2], top, left, bottom - top, right - left, planes, *border.tolist())
        return cls(np.frombuffer(header + bytes(block), dtype=np.uint8))

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the page."""
        if len(self.data) < _HEADER.size:
            raise _damaged(f"it has {len(self.data)} bytes", self.data)
        height, width = _HEADER.unpack_from(self.data.data)[:2]
        return width, height

    def check(self) -> None:
        """Raise DataError if the page cannot be unpacked; takes no more memory than what is compressed."""
        width, height = self.size
        self._differences((height, width))

    def write(self, out: Array, normalize: Normalize | None = None) -> None:
        """Unpack into (H, W, 3) bytes, or with `normalize` into (3, H, W) floats; nothing is allocated or copied."""
        differences, top, left, border = self._differences(out.shape[:2] if normalize is None else out.shape[1:])
        if normalize is None:
            from_differences(differences, top, left, border, out)
        else:
            normalized_from_differences(differences, top, left, border, *normalize.offset_and_factor, out)

    def _differences(self, page_hw: tuple[int, ...]) -> tuple[NDArray[np.uint8], int, int, NDArray[np.uint8]]:
        import cramjam

        try:
            height, width, top, left, rows, columns, planes, *border = _HEADER.unpack_from(self.data.data)
            if planes not in (1, 3) or top + rows > height or left + columns > width:
                raise ValueError("its header is wrong")
            # Before memory is allocated for them: a byte of LZ4 makes at most 255.
            if planes * rows * columns > _MAX_EXPANSION * len(self.data):
                raise ValueError("its header declares more pixels than its bytes can hold")
            if (height, width) != page_hw:
                raise ValueError(f"{width}x{height} instead of {page_hw[1]}x{page_hw[0]} pixels")
            differences = _planes(planes, rows, columns)
            found = cramjam.lz4.decompress_block_into(self.data[_HEADER.size :].data, differences.reshape(-1).data)
            if found != differences.size:
                raise ValueError(f"{found} bytes of {differences.size}")
        except (struct.error, ValueError, cramjam.DecompressionError) as error:
            raise _damaged(str(error), self.data) from error
        return differences, top, left, np.array(border, dtype=np.uint8)


def _damaged(reason: str, data: NDArray[np.uint8]) -> DataError:
    """The error for a dense page of these bytes; whoever stored it knows where they are."""
    return DataError(f"a dense page is damaged: {reason}. Rebuild the cache or the shard", value=len(data))


def codec_version() -> str:
    """The library that compresses, and its version."""
    return f"cramjam {version('cramjam')}"


def _border_and_window(image_hwc: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], tuple[int, int, int, int]]:
    """The colour of the border and what it surrounds: a page in one corner has it at the opposite one."""
    if not image_hwc.size:
        return np.zeros(3, dtype=np.uint8), (0, 0, 0, 0)
    corners = image_hwc[0, 0].copy(), image_hwc[-1, -1].copy()
    windows = [
        (border, content_window(image_hwc, border)) for border in corners[: 1 + (corners[0] != corners[1]).any()]
    ]
    return min(windows, key=lambda found: (found[1][2] - found[1][0]) * (found[1][3] - found[1][1]))


def _planes(planes: int, rows: int, columns: int) -> NDArray[np.uint8]:
    """Memory of this thread for the differences of one page."""
    size = planes * rows * columns
    memory = getattr(_scratch, "memory", None)
    if memory is None or len(memory) < size:
        memory = _scratch.memory = np.empty(size, dtype=np.uint8)
    return memory[:size].reshape(planes, rows, columns)
