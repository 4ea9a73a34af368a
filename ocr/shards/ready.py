"""Ready samples: page and maps as the fixed stages made them, alone or as whole batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import AnnotationError, DataError
from ocr.pipeline import metadata
from ocr.pipeline.metadata import MAP_DTYPES
from ocr.pipeline.record import array_fields, arrays_digest, is_interleaved
from ocr.pipeline.sample import Sample
from ocr.shards.members import Members

MAX_REMEMBERED = 4096
"""Samples whose JSON a process remembers, about 10 kB each: parsing it takes as long as copying the arrays."""


class ReadySamples:
    """Reads ready samples; the arrays of each are proven once per process."""

    def __init__(self, members: Members, count: int) -> None:
        self._members = members
        self._proven = np.zeros(count, dtype=bool)
        self._digests: dict[int, str] = {}
        self._remembered: dict[int, Sample] = {}

    def read(self, index: int) -> Sample:
        """One sample, its arrays views of the shard."""
        sample, arrays = self._without_arrays(index), self._members.arrays(index)
        self._prove(index, arrays)
        return replace(sample, **array_fields(arrays))

    def view(self, indices: Sequence[int]) -> tuple[dict[str, NDArray[Any]], list[Sample]] | None:
        """Consecutive samples of one batch as one array per column, nothing copied."""
        samples = [self._without_arrays(index) for index in indices]
        for index in indices:
            if not self._proven[index]:
                self._prove(index, self._members.arrays(index))
        arrays = self._members.windows(indices[0], indices[-1])
        return None if arrays is None else (arrays, samples)

    def _without_arrays(self, index: int) -> Sample:
        sample = self._remembered.get(index)
        if sample is None:
            sample = self._read_json(index)
            if len(self._remembered) < MAX_REMEMBERED:
                self._remembered[index] = sample
        return sample

    def _read_json(self, index: int) -> Sample:
        document = self._members.json(index)
        try:
            fields = metadata.from_json(document)
        except (KeyError, TypeError, ValueError) as error:
            where = self._members.where(index, "json")
            raise AnnotationError(f"{where}: not the JSON of a ready sample ({error!r}). Convert again") from error
        self._digests[index] = document.get("arrays", "")
        return replace(self._members.entry(index), **fields, map_source="stored")

    def _prove(self, index: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Raise if the arrays are not those that were stored."""
        if self._proven[index]:
            return
        where = self._members.where(index, "images.npy" if self._members.are_batches else "image.npy")
        if not _form_a_sample(arrays):
            forms = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
            raise DataError(f"{where}: not a page with maps of its size ({forms}). Convert again")
        if self._digests.pop(index, "") not in ("", arrays_digest(arrays)):
            self._remembered.pop(index, None)
            raise DataError(f"{where}: not the arrays that were stored. Fetch or convert it again")
        self._proven[index] = True


def _form_a_sample(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether it is a page of three channels, bytes or floats, with four maps of its size; kernels rely on that."""
    image = arrays["image"]
    if image.ndim != 3 or image.dtype not in (np.uint8, np.float32):
        return False
    channels, size = (image.shape[2], image.shape[:2]) if is_interleaved(image) else (image.shape[0], image.shape[1:])
    maps_fit = all(arrays[name].dtype == dtype and arrays[name].shape == size for name, dtype in MAP_DTYPES.items())
    return channels == 3 and image.size > 0 and maps_fit
