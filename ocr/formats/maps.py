"""Stored maps: `<images>_maps/<stem>.npz`, each with the fingerprint of what it was drawn from."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ocr.atomic import replacing
from ocr.errors import MapError
from ocr.formats.npy_header import read_npy_header

Dtypes = Mapping[str, type[np.generic]]
"""The maps of a file, and how each is stored."""
# Of a map whose page is unknown: 8192 x 8192.
MAX_PIXELS = 1 << 26
MAX_FINGERPRINT_BYTES = 1024
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NOT_A_ZIP = (zipfile.BadZipFile, zlib.error, struct.error)


def maps_folder(image_path: str | os.PathLike[str]) -> Path:
    """The folder with the maps of a folder of images.

    >>> maps_folder("data/images/val").as_posix()
    'data/images/val_maps'
    """
    folder = Path(image_path)
    return folder.with_name(f"{folder.name}_maps")


def map_file(folder: Path, image_name: str) -> Path:
    """The file of one image's maps."""
    return folder / Path(image_name).with_suffix(".npz")


def write_maps(path: Path, maps: Mapping[str, NDArray[np.generic]], fingerprint: str, compress: bool = False) -> None:
    """Write (H, W) maps as (1, H, W), and (U, H, W) maps of several units as they are, atomically.

    A page of 640x640 takes 2.9 MB and is read in 1.4 ms; compressed, 27 kB and 4.2 ms. Drawing it takes 0.4 ms.
    """
    arrays = {name: array.reshape(-1, *array.shape[-2:]) for name, array in maps.items()}
    save = np.savez_compressed if compress else np.savez
    with replacing(path) as stream:
        save(stream, fingerprint=np.array(fingerprint), **arrays)  # type: ignore[arg-type]


def read_fingerprint(file: Path | IO[bytes]) -> str:
    """Fingerprint of what the maps of a file were drawn from. Raises MapError if it is not a map file."""
    with _opened(file) as archive:
        return _read_fingerprint(archive)


def read_maps(
    file: Path | IO[bytes],
    dtypes: Dtypes,
    expected: str | None = None,
    size: tuple[int, int] | None = None,
    units: int = 1,
) -> tuple[str, dict[str, NDArray[np.generic]] | None]:
    """The fingerprint and the (H, W) maps, or None if the fingerprint is not `expected`: they stay packed.

    `size` is the (width, height) that the maps must have; maps of several units are (U, H, W).
    """
    with _opened(file) as archive:
        fingerprint = _read_fingerprint(archive)
        if expected not in (None, fingerprint):
            return fingerprint, None
        found = {name: _read_array(archive, name, dtype, size, units) for name, dtype in dtypes.items()}
        return fingerprint, found if units > 1 else {name: array[0] for name, array in found.items()}


@contextmanager
def _opened(file: Path | IO[bytes]) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            if any(member.compress_type not in _COMPRESSIONS for member in archive.infolist()):
                raise ValueError("a compression that map files do not use")
            yield archive
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, *_NOT_A_ZIP) as error:
        raise MapError(
            f"{file}: not a map file of this version ({error}). Rewrite it: python scripts/preprocess_maps.py",
            value=str(error),
            path=file if isinstance(file, Path) else None,
        ) from error


def _read_fingerprint(archive: zipfile.ZipFile) -> str:
    with archive.open("fingerprint.npy") as stream:
        shape, dtype = read_npy_header(stream)
        if shape != () or dtype.kind != "U" or dtype.itemsize > MAX_FINGERPRINT_BYTES:
            raise ValueError(f"fingerprint of {dtype} {shape}")
        return str(_read_data(stream, shape, dtype))


def _read_array(
    archive: zipfile.ZipFile, name: str, expected: type[np.generic], size: tuple[int, int] | None, units: int
) -> NDArray[np.generic]:
    """One (U, H, W) map. What its header declares is checked before anything is unpacked or allocated for it."""
    with archive.open(f"{name}.npy") as stream:
        shape, dtype = read_npy_header(stream)
        if size is None:
            fits = len(shape) == 3 and shape[0] == units and 0 < shape[1] * shape[2] <= MAX_PIXELS
        else:
            fits = shape == (units, size[1], size[0])
        if dtype != expected or not fits:
            raise ValueError(f"{name} of {dtype} {shape}")
        return _read_data(stream, shape, dtype)


def _read_data(stream: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[np.generic]:
    """As many bytes as the header declares. Reading on to the end compares the checksum."""
    array: NDArray[np.generic] = np.empty(shape, dtype)
    data = stream.read(array.nbytes)
    if len(data) != array.nbytes or stream.read(1):
        raise ValueError("more or fewer bytes than its header declares")
    array.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return array
