"""What the rows of a folder are made of: its images, its annotation, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ocr.errors import AnnotationError, DataError, ImageError
from ocr.formats.annotation import PageStream
from ocr.formats.lines import list_faults
from ocr.formats.read import stream_annotations
from ocr.formats.validate import to_polygons
from ocr.pipeline.image_listing import ImageListing, NameSet
from ocr.pipeline.kept_table import ALL_FILES
from ocr.pipeline.page_rows import Entry, PageRowsWriter
from ocr.pipeline.sample import NO_POLYGONS


@dataclass(frozen=True)
class FolderSplit:
    """A folder of images and its annotation."""

    folder: Path
    annotation: Path | None
    annotation_format: str
    annotation_categories: str | Sequence[str]
    on_bad_sample: str

    @property
    def annotation_state(self) -> str:
        """The path whose state shows whether the annotation was changed: a file, or all files of a folder."""
        assert self.annotation is not None
        return str(self.annotation / ALL_FILES if self.annotation.is_dir() else self.annotation)

    def made_of(self, listing: ImageListing) -> list[str]:
        """The files and folders whose state shows whether the rows are still right."""
        return listing.folders if self.annotation is None else [*listing.folders, self.annotation_state]

    def read(self, listing: ImageListing) -> tuple[PageRowsWriter, dict[str, Any]]:
        """The rows of all pages that can be used, and why others cannot."""
        writer = PageRowsWriter()
        if self.annotation is None:
            for name in sorted(listing):
                writer.append(Entry(name, NO_POLYGONS))
            return writer, {"skipped": {}, "notes": []}
        present = NameSet(listing)
        annotations = stream_annotations(
            self.annotation, self.annotation_format, self.folder, self.annotation_categories
        )
        skipped = self._add_pages(annotations, present, listing.extensions, writer)
        if not len(writer):
            reason = f" ({next(iter(skipped.values()))})" if skipped else ""
            problem = f"{annotations.path} names no usable image of {self.folder}{reason}. Run: glyphfeed doctor"
            raise AnnotationError(problem, value=list(skipped), path=annotations.path)
        return writer, {"skipped": skipped, "notes": list(annotations.notes)}

    def _add_pages(
        self, annotations: PageStream, present: NameSet, extensions: tuple[str, ...], writer: PageRowsWriter
    ) -> dict[str, str]:
        """Add the pages that can be used; returns why others cannot. With "raise", one error lists all of those."""
        skipped: dict[str, str] = {}
        errors: list[DataError] = []
        for name, page in annotations.pages:
            if not name.lower().endswith(extensions):
                skipped[name] = f"its extension is not one of image_extensions={', '.join(extensions)}"
                continue
            try:
                filename = _find_file(self.folder, name, present, annotations.path)
                writer.append(Entry(filename, to_polygons(page, f"{annotations.path}: {name}"), page.size))
            except DataError as error:
                errors.append(error)
                skipped[name] = str(error)
        if errors and self.on_bad_sample == "raise":
            first = errors[0]
            listed = list_faults([str(error) for error in errors])
            raise type(first)(listed, setting=first.setting, value=first.value, path=first.path or annotations.path)
        return skipped


def _find_file(folder: Path, name: str, present: NameSet, annotation: str) -> str:
    """The annotation's name for an image as a path relative to the folder, with forward slashes."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        problem = f"{annotation}: {name!r} points outside {folder}. Name images relative to image_path"
        raise AnnotationError(problem, value=name, path=annotation)
    if str(parts) not in present:
        raise ImageError(
            f"{folder / name} is in {annotation} but not on disk. Restore it, run `glyphfeed doctor` for the list, or "
            "set on_bad_sample=skip",
            path=folder / name,
        )
    return str(parts)
