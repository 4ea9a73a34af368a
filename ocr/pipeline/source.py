"""source: a folder of images and its annotation become samples of encoded bytes and polygons."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol

from ocr.errors import AnnotationError, ConfigError, DataError, GlyphFeedError, ImageError
from ocr.formats import Annotations, read_annotations
from ocr.formats.lines import list_faults
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.formats.validate import to_polygons
from ocr.geometry.polygons import Polygons
from ocr.pipeline.fingerprint import digest
from ocr.pipeline.sample import Sample
from ocr.pipeline.signature import Signature, file_signature

log = logging.getLogger(__name__)
ON_BAD_SAMPLE = ("raise", "skip")
NO_POLYGONS = Polygons.pack([])


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known about a page before its file is read."""

    filename: str
    polygons: Polygons
    claimed_size: tuple[int, int] | None = None


class Source(Protocol):
    """Where pages come from: a folder, tar shards."""

    @property
    def location(self) -> str:
        """The folder or shards, as messages name them."""

    @property
    def names(self) -> Sequence[str]:
        """File names of all pages."""

    @property
    def annotated(self) -> bool:
        """Whether there is an annotation."""

    @property
    def is_ready(self) -> bool:
        """Whether pages are stored as the fixed stages left them, instead of as image files."""

    @property
    def skipped(self) -> dict[str, str]:
        """File name of each page that was left out when the source was opened, and why."""

    def __len__(self) -> int: ...

    def number(self, index: int) -> int:
        """The number of a page among all pages of the dataset, of which these may be a part; it seeds randomness."""

    def entry(self, index: int) -> Sample:
        """What is known about a page without reading its image."""

    def read(self, index: int) -> Sample:
        """One page as it is stored."""

    def signature(self, index: int) -> Signature | None:
        """Changes if the image changes, and is known without reading it; None if the image is gone."""

    def annotation_digest(self, index: int) -> bytes:
        """Digest of everything that the annotation says about a page."""

    def look(self) -> Sequence[int]:
        """An epoch starts: follow edits of all but the images; returns the pages that may have other words now."""


@dataclass(slots=True, eq=False)
class FolderSource:
    """The pages of one split, in the order of the annotation, or sorted by name if there is none."""

    folder: Path
    entries: tuple[Entry, ...]
    annotated: bool
    skipped: dict[str, str]
    """File name of each page that was left out when the annotation was read, and why."""
    reopen: Callable[[], FolderSource | None] | None = None
    """Opens the folder again if the annotation was changed since it was opened."""

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
        return [entry.filename for entry in self.entries]

    def number(self, index: int) -> int:
        """The index itself: all pages are here."""
        return index

    def read(self, index: int) -> Sample:
        """One page as it is on disk."""
        page = self.entry(index)
        try:
            with open(page.path, "rb") as stream:
                return replace(page, encoded=stream.read())
        except OSError as error:
            raise ImageError(
                f"{page.path}: cannot be opened ({error.strerror}). Restore it, or set on_bad_sample=skip"
            ) from error

    def entry(self, index: int) -> Sample:
        """What is known about a page without reading its file."""
        entry = self.entries[index]
        return Sample(
            index=index,
            filename=entry.filename,
            path=os.path.join(self.folder, entry.filename),
            polygons=entry.polygons,
            annotated=self.annotated,
            claimed_size=entry.claimed_size,
        )

    def signature(self, index: int) -> Signature | None:
        """Signature of a page's file; None if it is gone."""
        return file_signature(os.path.join(self.folder, self.entries[index].filename))

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
        new, names = {entry.filename: entry for entry in found.entries}, self.names
        before = [self.annotation_digest(index) for index in range(len(self))]
        self.entries = tuple(new.get(entry.filename, entry) for entry in self.entries)
        self.reopen = found.reopen
        changed = [index for index, digest in enumerate(before) if self.annotation_digest(index) != digest]
        only_one = len(new.keys() - set(names)), len(set(names) - new.keys())
        log.warning("%s: the annotation was changed, and is read again: %d pages differ", self.folder, len(changed))
        if any(only_one):
            log.warning(
                "%s: %d pages were added and %d removed, which counts from the next run on", self.folder, *only_one
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
) -> FolderSource:
    """Check a split before the first image is read: folder, annotation, every word, every file name."""
    if on_bad_sample not in ON_BAD_SAMPLE:
        raise ConfigError(f"on_bad_sample={on_bad_sample!r} is not one of {', '.join(ON_BAD_SAMPLE)}")
    if image_path is None:
        raise ConfigError("image_path is null. Give the folder of the split's images, or leave the split out")
    folder = Path(image_path)
    extensions = _extensions(image_extensions)
    present = _list_images(folder, extensions)
    if annotation_path is None:
        return FolderSource(folder, tuple(Entry(name, NO_POLYGONS) for name in present), False, {})
    before = _annotation_files(annotation_path)
    annotations = read_annotations(annotation_path, annotation_format, folder, annotation_categories)
    if annotations.notes:
        log.warning("%s", list_faults(annotations.notes))
    entries, skipped = _check_pages(annotations, folder, set(present), extensions, on_bad_sample)
    if not entries:
        reason = f" ({next(iter(skipped.values()))})" if skipped else ""
        raise AnnotationError(f"{annotations.path} names no usable image of {folder}{reason}. Run: ocr doctor")
    again = partial(
        open_folder,
        image_path,
        annotation_path,
        annotation_format=annotation_format,
        annotation_categories=annotation_categories,
        image_extensions=extensions,
        on_bad_sample=on_bad_sample,
    )
    return FolderSource(
        folder, tuple(entries), True, skipped, partial(_reopen_if_changed, annotation_path, before, again)
    )


def _annotation_files(path: str | os.PathLike[str]) -> dict[str, Signature | None]:
    """The signatures of an annotation file, or of all files in a folder of them."""
    files = [entry.path for entry in os.scandir(path)] if os.path.isdir(path) else [os.fspath(path)]
    return {file: file_signature(file) for file in files}


def _reopen_if_changed(
    path: str | os.PathLike[str], before: dict[str, Signature | None], again: Callable[[], FolderSource]
) -> FolderSource | None:
    return None if _annotation_files(path) == before else again()


def _check_pages(
    annotations: Annotations, folder: Path, present: set[str], extensions: tuple[str, ...], on_bad_sample: str
) -> tuple[list[Entry], dict[str, str]]:
    """The pages that can be used, and why others cannot; with "raise", one error lists all of those."""
    entries: list[Entry] = []
    skipped: dict[str, str] = {}
    errors: list[DataError] = []
    for name, page in annotations.pages.items():
        if not name.lower().endswith(extensions):
            skipped[name] = f"its extension is not one of image_extensions={', '.join(extensions)}"
            continue
        try:
            filename = _find_file(folder, name, present, annotations.path)
            entries.append(Entry(filename, to_polygons(page, f"{annotations.path}: {name}"), page.size))
        except DataError as error:
            errors.append(error)
            skipped[name] = str(error)
    if errors and on_bad_sample == "raise":
        raise type(errors[0])(list_faults([str(error) for error in errors]))
    return entries, skipped


def _extensions(image_extensions: Iterable[str] | None) -> tuple[str, ...]:
    if image_extensions is None:
        return IMAGE_EXTENSIONS
    is_list = isinstance(image_extensions, Iterable) and not isinstance(image_extensions, str)
    if not is_list or not all(isinstance(extension, str) for extension in image_extensions):
        raise ConfigError(f"image_extensions={image_extensions!r} must be a list, such as ['.jpg', '.png']")
    return tuple("." + extension.lower().lstrip(".") for extension in image_extensions)


def _list_images(folder: Path, extensions: tuple[str, ...]) -> Sequence[str]:
    if not folder.is_dir():
        raise ConfigError(
            f"image_path={folder} is not a folder. A dataset is DIR/images/<split>/ and DIR/jsons/<split>.json; "
            "point dataset_base_path at DIR, or make one: ocr synth DIR"
        )
    names = sorted(
        os.path.relpath(os.path.join(parent, name), folder).replace(os.sep, "/")
        for parent, _, names in os.walk(folder, followlinks=True)
        for name in names
        # ._a.jpg is what macOS leaves beside a.jpg on foreign disks.
        if name.lower().endswith(extensions) and not name.startswith(".")
    )
    if not names:
        raise ConfigError(f"image_path={folder} holds no image ({', '.join(extensions)}). Fill it: ocr synth DIR")
    return names


def _find_file(folder: Path, name: str, present: set[str], annotation: str) -> str:
    """The annotation's name for an image as a path relative to the folder, with forward slashes."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise AnnotationError(f"{annotation}: {name!r} points outside {folder}. Name images relative to image_path")
    if str(parts) not in present:
        raise ImageError(
            f"{folder / name} is in {annotation} but not on disk. Restore it, run `ocr doctor` for the whole list, "
            "or set on_bad_sample=skip"
        )
    return str(parts)
