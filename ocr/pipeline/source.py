"""source: a folder of images and its annotation become samples of encoded bytes and polygons."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from ocr.errors import ConfigError, GlyphFeedError, ImageError
from ocr.formats.lines import list_faults
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.geometry.polygons import Polygons
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.folder_split import FolderSplit
from ocr.pipeline.image_header import size_in_header
from ocr.pipeline.image_listing import ImageListing
from ocr.pipeline.kept_table import KeptTable, state_of
from ocr.pipeline.page_rows import NO_POLYGONS, PageRows
from ocr.pipeline.sample import Sample
from ocr.pipeline.signature import Signature, file_signature

log = logging.getLogger(__name__)
ON_BAD_SAMPLE = ("raise", "skip")
MAX_REMEMBERED = 4096
"""Paths that a process remembers: every epoch asks for the signature of every page, and a cached page takes 40 us."""


class Origin(Protocol):
    """What samples are made of: all that a cache asks for."""

    @property
    def location(self) -> str:
        """The folder or shards, as messages name them."""

    @property
    def names(self) -> Sequence[str]:
        """File names of all pages."""

    @property
    def names_digest(self) -> str:
        """Digest of all file names, known without reading them."""

    def __len__(self) -> int: ...

    def entry(self, index: int) -> Sample:
        """Name and path of a page; what its annotation says is read with its image."""

    def read(self, index: int) -> Sample:
        """One page as it is stored."""

    def signature(self, index: int) -> Signature | None:
        """Changes if the image changes, and is known without reading it; None if the image is gone."""

    def annotation_digest(self, index: int) -> bytes:
        """Digest of everything that the annotation says about a page."""


class Source(Origin, Protocol):
    """Where pages come from: a folder, tar shards."""

    @property
    def annotated(self) -> bool:
        """Whether there is an annotation."""

    @property
    def is_ready(self) -> bool:
        """Whether pages are stored as the fixed stages left them, instead of as image files."""

    @property
    def skipped(self) -> dict[str, str]:
        """File name of each page that was left out when the source was opened, and why."""

    def number(self, index: int) -> int:
        """The number of a page among all pages of the dataset, of which these may be a part; it seeds randomness."""

    def size(self, index: int, max_pixels: int) -> tuple[int, int]:
        """(width, height) of the upright page, known without decoding it; ImageError if it is not an image."""

    def look(self) -> Sequence[int]:
        """An epoch starts: follow edits of all but the images; returns the pages that may have other words now."""


@dataclass(slots=True, eq=False)
class FolderSource:
    """The pages of one split, in the order of the annotation, or sorted by name if there is none."""

    folder: Path
    entries: PageRows
    annotated: bool
    skipped: dict[str, str]
    """File name of each page that was left out when the annotation was read, and why."""
    reopen: Callable[[], FolderSource | None] | None = None
    """Opens the folder again if the annotation was changed since it was opened."""
    _paths: dict[int, str] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def location(self) -> str:
        return str(self.folder.resolve())

    @property
    def is_ready(self) -> bool:
        return False

    @property
    def names(self) -> Sequence[str]:
        return self.entries.names

    @property
    def names_digest(self) -> str:
        return self.entries.names_digest

    def select(self, indices: Iterable[int]) -> FolderSource:
        """Some of the pages, in memory."""
        return replace(self, entries=PageRows.of(self.entries[index] for index in indices), skipped={}, reopen=None)

    def number(self, index: int) -> int:
        """The index itself: all pages are here."""
        return index

    def read(self, index: int) -> Sample:
        """One page as it is on disk."""
        entry = self.entries[index]
        page = replace(self.entry(index), polygons=entry.polygons, claimed_size=entry.claimed_size)
        try:
            with open(page.path, "rb") as stream:
                return replace(page, encoded=stream.read())
        except OSError as error:
            raise ImageError(
                f"{page.path}: cannot be opened ({error.strerror}). Restore it, or set on_bad_sample=skip",
                path=page.path,
            ) from error

    def size(self, index: int, max_pixels: int) -> tuple[int, int]:
        """(width, height) of the upright page, in the header of its file."""
        path = self.entry(index).path
        try:
            with open(path, "rb") as stream:
                return size_in_header(stream, path, max_pixels)
        except OSError as error:
            raise ImageError(f"{path}: cannot be opened ({error.strerror})", path=path) from error

    def entry(self, index: int) -> Sample:
        """Name and path of a page."""
        name = self.entries.names[index]
        return Sample(index, name, os.path.join(self.folder, name), NO_POLYGONS, self.annotated)

    def signature(self, index: int) -> Signature | None:
        """Signature of a page's file; None if it is gone."""
        path = self._paths.get(index)
        if path is None:
            path = os.path.join(self.folder, self.entries.names[index])
            if len(self._paths) < MAX_REMEMBERED:
                self._paths[index] = path
        return file_signature(path)

    def annotation_digest(self, index: int) -> bytes:
        entry = self.entries[index]
        return annotation_digest(entry.polygons, entry.claimed_size, self.annotated)

    def look(self) -> Sequence[int]:
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
        self.entries, self.reopen = new, found.reopen
        log.warning("%s: the annotation was changed, and is read again: %d pages differ", self.folder, len(changed))
        if added or removed:
            log.warning(
                "%s: %d pages were added and %d removed, which counts from the next run on",
                self.folder,
                added,
                removed,
            )
        return changed


def annotation_digest(polygons: Polygons, claimed_size: tuple[int, int] | None, annotated: bool) -> bytes:
    """Digest of everything that an annotation says about a page; the same for folders and shards."""
    arrays = (polygons.vertices, polygons.offsets, polygons.ignore)
    words = repr((polygons.texts, claimed_size, annotated))
    return bytes.fromhex(digest(*(array.tobytes() for array in arrays), words))


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
