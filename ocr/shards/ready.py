"""Ready samples: pages as the fixed stages made them, dense, or with their maps, alone or as whole batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import AnnotationError, DataError
from ocr.pipeline import metadata
from ocr.pipeline.dense import DensePage
from ocr.pipeline.fingerprint import stages_digest
from ocr.pipeline.metadata import MAP_DTYPES
from ocr.pipeline.page import FixedPart
from ocr.pipeline.record import array_fields, arrays_digest, is_interleaved
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets
from ocr.shards.index import DENSE
from ocr.shards.members import Members

MAX_REMEMBERED = 4096
"""Samples whose JSON a process remembers, about 10 kB each: parsing it takes as long as copying the arrays."""


def ready_stages(kind: str, fixed_part: FixedPart, targets: Targets) -> tuple[object, ...]:
    """The stages that made ready samples; maps of dense ones are drawn when they are read."""
    return fixed_part.parts if kind == DENSE else (*fixed_part.parts, targets)


def ready_digest(kind: str, fixed_part: FixedPart, targets: Targets) -> str:
    """What the index says about the stages: readers compare it with their own before they use ready samples."""
    form = (DensePage,) if kind == DENSE else ()
    return stages_digest((*ready_stages(kind, fixed_part, targets), *form))


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
        fields = array_fields(arrays)
        return replace(sample, **fields, map_source="stored" if fields["maps"] else "")

    def view(self, indices: Sequence[int]) -> tuple[dict[str, NDArray[Any]], list[Sample]] | None:
        """Consecutive samples of one batch as one array per column, nothing copied."""
        samples = [replace(self._without_arrays(index), map_source="stored") for index in indices]
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
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            where = self._members.where(index, "json")
            problem = f"{where}: not the JSON of a ready sample ({error!r}). Convert again"
            raise AnnotationError(problem, path=self._members.path(index)) from error
        if document.get("fields", "") not in ("", metadata.fields_digest(fields)):
            problem = f"{self._members.where(index, 'json')}: not the JSON that was stored. Convert again"
            raise DataError(problem, value="json", path=self._members.path(index))
        self._digests[index] = document.get("arrays", "")
        return replace(self._members.named(index, document), **fields)

    def _prove(self, index: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Raise if the arrays are not those that were stored."""
        if self._proven[index]:
            return
        where, path = self._members.where(index, "image.npy", "images.npy"), self._members.path(index)
        digest = self._digests.pop(index, "")
        if digest not in ("", arrays_digest(arrays)):
            self._remembered.pop(index, None)
            raise DataError(f"{where}: not the arrays that were stored. Fetch or convert it again", path=path)
        if arrays["image"].ndim == 1:
            _check_dense(arrays["image"], where, path, is_proven=bool(digest))
        elif not _form_a_sample(arrays):
            forms = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
            problem = f"{where}: not a page with maps of its size ({forms}). Convert again"
            raise DataError(problem, value=forms, path=path)
        self._proven[index] = True


def _check_dense(image: NDArray[Any], where: str, path: str, is_proven: bool) -> None:
    """Raise unless it is a dense page; one without a digest is unpacked, or else reading would not name its shard."""
    try:
        page = DensePage(image)
        if image.dtype != np.uint8 or 0 in page.size:
            raise DataError(f"not a page ({image.dtype} {image.shape}). Convert again")
        if not is_proven:
            page.check()
    except DataError as error:
        raise DataError(f"{where}: {error}", value=error.value, path=path) from error


def _form_a_sample(arrays: dict[str, NDArray[Any]]) -> bool:
    """Whether it is a page of three channels, bytes or floats, with four maps of its size; kernels rely on that."""
    image = arrays["image"]
    if image.ndim != 3 or image.dtype not in (np.uint8, np.float32):
        return False
    channels, size = (image.shape[2], image.shape[:2]) if is_interleaved(image) else (image.shape[0], image.shape[1:])
    maps_fit = all(arrays[name].dtype == dtype and arrays[name].shape == size for name, dtype in MAP_DTYPES.items())
    return channels == 3 and image.size > 0 and maps_fit
