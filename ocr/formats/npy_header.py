"""The header of a .npy array of numbers, from a file that can be damaged; nothing in it can be executed."""

from __future__ import annotations

from typing import IO, Any

import numpy as np


def read_npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array whose data follows; ValueError if it is not a plain array of version 1.0."""
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f"an array of version {version}, expected 1.0")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except ValueError:
        raise
    except Exception as error:  # Python parses the header, with errors of its own: tokens, nesting, memory.
        raise ValueError(f"its header is damaged ({type(error).__name__})") from error
    if fortran or dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError(f"dtype {dtype}, shape {shape}")
    return shape, dtype
