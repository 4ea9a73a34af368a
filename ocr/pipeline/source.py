"""source: where pages come from. A folder of images and its annotation become samples of bytes and polygons."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from types import MappingProxyType

import numpy as np

from ocr.errors import ConfigError, DataError, GlyphFeedError, ImageError
from ocr.formats.lines import list_faults
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.geometry.polygons import Polygons
from ocr.pipeline.decode import size_in_header
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.image_listing import ImageListing
from ocr.pipeline.page_index import FolderSplit, KeptTable, PageRows, Signature, SourceState, file_signature, state_of
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import Sizes
from ocr.system import usable_cores

log = logging.getLogger(__name__)
ON_BAD_SAMPLE = ("raise", "skip")
AT_ONCE = 4096
MAX_REMEMBERED = 100_000
"""Pages whose path and annotation digest a process remembers: every epoch asks for them, and they take 30 us."""


class Source(ABC):
    """Where pages come from: a folder, tar shards, both. A new one implements `names`, `read` and `state`."""

    location: str = ""
    """The folder or shards, as messages name them."""
    annotated: bool = True
    """Whether there is an annotation."""
    is_ready: bool = False
    """Whether pages are stored as the fixed stages left them, instead of as image files."""
    skipped: Mapping[str, str] = MappingProxyType({})
    """File name of each page that was left out when the source was opened, and why."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """File names of all pages, in the order of their indices."""

    @abstractmethod
    def read(self, index: int) -> Sample:
        """One page as it is stored: its bytes, and its polygons as annotated."""

    @abstractmethod
    def state(self, index: int) -> SourceState:
        """What a page is made of now; reads neither image nor annotation."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def names_digest(self) -> str:
        """Digest of all file names, in their order."""
        return digest(*self.names)

    def number(self, index: int) -> int:
        """The number of a page among all pages of the dataset, of which these may be a part; it seeds randomness."""
        return index

    def size(self, index: int, max_pixels: int) -> tuple[int, int]:
        """(width, height) of the upright page, known without decoding it; ImageError if it is not an image."""
        page = self.read(index)
        return size_in_header(BytesIO(page.encoded), page.path, max_pixels)

    def refresh(self) -> Sequence[int]:
        """An epoch starts: follow edits of the annotation; returns the pages that have another one now."""
        return ()


@dataclass(slots=True, eq=False)
class FolderSource(Source):
    """The pages of one split, in the order of the annotation, or sorted by name if there is none."""

    folder: Path
    entries: PageRows
    annotated: bool = field()
    skipped: dict[str, str] = field()
    """File name of each page that was left out when the annotation was read, and why."""
    reopen: Callable[[], FolderSource | None] | None = None
    """Opens the folder again if the annotation was changed since it was opened."""
    _known: dict[int, tuple[str, str, bytes]] = field(default_factory=dict, init=False, repr=False)
    """Name, path and digest of the annotation of pages that were asked for."""

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def location(self) -> str:  # type: ignore[override]
        return str(self.folder.resolve())

    @property
    def names(self) -> Sequence[str]:
        return self.entries.names

    @property
    def names_digest(self) -> str:
        return self.entries.names_digest

    def select(self, indices: Iterable[int]) -> FolderSource:
        """Some of the pages, in memory."""
        return replace(self, entries=PageRows.of(self.entries[index] for index in indices), skipped={}, reopen=None)

    def read(self, index: int) -> Sample:
        entry = self.entries[index]
        path = os.path.join(self.folder, entry.filename)
        try:
            with open(path, "rb") as stream:
                encoded = stream.read()
        except OSError as error:
            raise ImageError(
                f"{path}: cannot be opened ({error.strerror}). Restore it, or set on_bad_sample=skip", path=path
            ) from error
        return Sample(index, entry.filename, path, entry.polygons, self.annotated, entry.claimed_size, encoded=encoded)

    def state(self, index: int) -> SourceState:
        known = self._known.get(index)
        if known is None:
            entry = self.entries[index]
            annotation = annotation_digest(entry.filename, entry.polygons, entry.claimed_size, self.annotated)
            known = entry.filename, os.path.join(self.folder, entry.filename), annotation
            if len(self._known) < MAX_REMEMBERED:
                self._known[index] = known
        filename, path, annotation = known
        return SourceState(filename, path, file_signature(path), annotation)

    def size(self, index: int, max_pixels: int) -> tuple[int, int]:
        path = os.path.join(self.folder, self.entries.names[index])
        try:
            with open(path, "rb") as stream:
                return size_in_header(stream, path, max_pixels)
        except OSError as error:
            raise ImageError(f"{path}: cannot be opened ({error.strerror})", path=path) from error

    def refresh(self) -> Sequence[int]:
        """Read an annotation again that was changed; pages that are not in both versions stay as they are."""
        try:
            found = self.reopen() if self.reopen is not None else None
        except GlyphFeedError as error:
            log.warning("the annotation was changed and cannot be read: its words stay as they were (%s)", error)
            return ()
        if found is None:
            return ()
        new = found.entries
        added = removed = 0
        if new.names_digest != self.names_digest:
            new, added, removed = self.entries.updated(new)
        changed = self.entries.differences(new)
        self.entries, self.reopen, self._known = new, found.reopen, {}
        log.warning("%s: the annotation was changed, and is read again: %d pages differ", self.folder, len(changed))
        if added or removed:
            log.warning(
                "%s: %d pages were added and %d removed, which counts from the next run on",
                self.folder,
                added,
                removed,
            )
        return changed


def annotation_digest(
    filename: str, polygons: Polygons, claimed_size: tuple[int, int] | None, annotated: bool
) -> bytes:
    """Digest of all that a page is made of besides its image: stages see its name, and what the annotation says."""
    arrays = (polygons.vertices, polygons.offsets, polygons.ignore, *([polygons.units] if polygons.units.any() else []))
    words = repr((polygons.texts, claimed_size, annotated))
    return bytes.fromhex(digest(filename, *(array.tobytes() for array in arrays), words))


def page_sizes(source: Source, max_pixels: int) -> Sizes:
    """(N, 2): width and height of every page, upright, from the headers of their files."""

    def size(index: int) -> tuple[int, int]:
        try:
            return source.size(index, max_pixels)
        except DataError:
            return 0, 0  # Whoever decodes the page reports it.

    with ThreadPoolExecutor(usable_cores()) as pool:
        # A pool queues all that it is given at once.
        pieces = (range(len(source))[start : start + AT_ONCE] for start in range(0, len(source), AT_ONCE))
        found = chain.from_iterable(pool.map(size, some) for some in pieces)
        sizes: Sizes = np.fromiter(found, np.dtype((np.int64, 2)), len(source))
    bad = np.flatnonzero(sizes[:, 0] == 0)
    # Unreadable pages are spread over the batches of others: a batch of nothing else would be none.
    sizes[bad] = np.resize(np.delete(sizes, bad, axis=0), (len(bad), 2)) if len(bad) < len(sizes) else 1
    return sizes


def open_folder(
    image_path: str | os.PathLike[str] | None,
    annotation_path: str | os.PathLike[str] | None,
    *,
    annotation_format: str = "auto",
    annotation_categories: str | Sequence[str] = "auto",
    image_extensions: Iterable[str] | None = None,
    on_bad_sample: str = "raise",
    index_folder: Path | None = None,
) -> FolderSource:
    """Check a split before the first image is read: folder, annotation, every word, every file name.

    The result for a large split is kept in `index_folder`, and used again until its annotation changes, or a file is
    added to its folder or removed from it.
    """
    if on_bad_sample not in ON_BAD_SAMPLE:
        problem = f"on_bad_sample={on_bad_sample!r} is not one of {', '.join(ON_BAD_SAMPLE)}"
        raise ConfigError(problem, setting="on_bad_sample", value=on_bad_sample)
    if image_path is None:
        problem = "image_path is null. Set it to the folder of the split's images, or leave the split out"
        raise ConfigError(problem, setting="image_path")
    annotation = None if annotation_path is None else Path(annotation_path)
    split = FolderSplit(Path(image_path), annotation, annotation_format, annotation_categories, on_bad_sample)
    extensions = _extensions(image_extensions)
    kept = KeptTable(index_folder, __name__, Path.cwd(), split, extensions) if index_folder is not None else None
    before = None if annotation is None else state_of(split.annotation_state)
    table = kept.load(state_of) if kept is not None else None
    if table is None:
        listing = ImageListing(split.folder, extensions)
        writer, about = split.read(listing)
        made_of = {path: state_of(path) for path in split.made_of(listing)}
        table = writer.table(about) if kept is None else kept.keep(writer, made_of, about)
    about = table.about
    if about["notes"]:
        log.warning("%s", list_faults(about["notes"]))
    again = partial(
        open_folder,
        image_path,
        annotation_path,
        annotation_format=annotation_format,
        annotation_categories=annotation_categories,
        image_extensions=extensions,
        on_bad_sample=on_bad_sample,
        index_folder=index_folder,
    )
    reopen = None if before is None else partial(_reopen_if_changed, split.annotation_state, before, again)
    return FolderSource(split.folder, PageRows(table), annotation is not None, about["skipped"], reopen)


def _reopen_if_changed(path: str, before: Signature, again: Callable[[], FolderSource]) -> FolderSource | None:
    return None if state_of(path) == before else again()


def _extensions(image_extensions: Iterable[str] | None) -> tuple[str, ...]:
    if image_extensions is None:
        return IMAGE_EXTENSIONS
    is_list = isinstance(image_extensions, Iterable) and not isinstance(image_extensions, str)
    if not is_list or not all(isinstance(extension, str) for extension in image_extensions):
        problem = f"image_extensions={image_extensions!r} must be a list, such as ['.jpg', '.png']"
        raise ConfigError(problem, setting="image_extensions", value=image_extensions)
    return tuple("." + extension.lower().lstrip(".") for extension in image_extensions)
