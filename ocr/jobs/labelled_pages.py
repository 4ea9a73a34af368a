"""Which pages have labels already: those of datasets and annotations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocr.deploy.inputs import PAGE_MARK, PageSource, numbered
from ocr.errors import ConfigError
from ocr.formats.read import stream_annotations
from ocr.jobs.page_files import PageFiles, as_paths


@dataclass(frozen=True, slots=True)
class LabelledPages:
    """The labelled pages whose files are there."""

    keys: frozenset[str]
    """Real path, with the number of a page in its PDF."""
    files: tuple[str, ...]
    lost: tuple[str, ...] = ()
    """Names in annotations that are no files."""

    @classmethod
    def of_setting(cls, labelled: Any, images: PageFiles) -> LabelledPages:
        """Raises ConfigError if an annotation is of other pages altogether."""
        keys: set[str] = set()
        files: dict[str, None] = {}
        lost = []
        for path in [] if labelled is None else as_paths("labelled", labelled):
            found = False
            for file, number in _pages_in(Path(path), images):
                if os.path.isfile(file):
                    found = True
                    files[file] = None
                    keys.add(_key(file, number))
                else:
                    lost.append(file)
            if not found:
                raise ConfigError(
                    f"labelled={path}: none of its pages is a file in {images.folder or 'the folder of images'}. Give "
                    "the dataset instead (labelled=DIR with images/<split>/ and jsons/<split>.json), or the annotation "
                    "of pages in images=FOLDER",
                    setting="labelled",
                    path=path,
                )
        return cls(frozenset(keys), tuple(files), tuple(lost))

    def has(self, page: PageSource) -> bool:
        """Whether a page is labelled, under whatever path it was given."""
        return _key(page.name, page.number) in self.keys


def _key(file: str, number: int | None) -> str:
    return numbered(os.path.realpath(file), number)


def _pages_in(path: Path, images: PageFiles) -> Iterator[tuple[str, int | None]]:
    """File and number in a PDF of every page that a dataset or an annotation names."""
    if (path / "jsons").is_dir():
        for annotation in sorted((path / "jsons").iterdir()):
            folder = path / "images" / annotation.stem
            if folder.is_dir():
                yield from _names_in(annotation, folder)
    else:
        yield from _names_in(path, Path(images.folder or "."))


def _names_in(annotation: Path, folder: Path) -> Iterator[tuple[str, int | None]]:
    for name, _ in stream_annotations(annotation, image_path=folder).pages:
        file, mark, number = name.rpartition(PAGE_MARK)
        if mark and number.isdigit():
            yield str(folder / file), int(number)
        else:
            yield str(folder / name), None
