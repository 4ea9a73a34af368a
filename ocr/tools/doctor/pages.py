"""The files of a dataset: its splits, and images that are missing, left over or there twice."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import overload

import numpy as np

from ocr.errors import ConfigError, DataError, near_names
from ocr.formats import Annotations
from ocr.pipeline.image_listing import walk_with_links
from ocr.tools.doctor.findings import Finding, Split
from ocr.tools.doctor.images import ImageFacts, same_bytes


def find_splits(data: Path, wanted: Sequence[str] | None = None) -> list[tuple[str, Path, Path]]:
    """(name, image folder, annotation file) of each split: what is below `images`, and what only `jsons` names."""
    images, jsons = data / "images", data / "jsons"
    if not images.is_dir():
        raise DataError(
            f"{images}: no such folder. A dataset has images/<split>/ and jsons/<split>.json. Put its pages there, and "
            "convert its annotations to jsons/<split>.json",
            path=images,
        )
    folders = {entry.name for entry in images.iterdir() if entry.is_dir() and not entry.name.endswith("_maps")}
    folders = {name for name in folders if not name.startswith(".")}
    named = {file.stem for file in jsons.glob("*.json")} if jsons.is_dir() else set()
    known = sorted(folders | named)
    if not known:
        raise DataError(f"{images}: no splits. Put the pages into {images / 'train'} and {images / 'val'}", path=images)
    for name in wanted or ():
        if name not in known:
            raise ConfigError(
                f"{data}: split {name!r} does not exist. {near_names(name, known)}",
                setting="--split",
                value=name,
                path=data,
            )
    return [(name, images / name, jsons / f"{name}.json") for name in (wanted or known)]


def files_below(folder: Path) -> Iterator[str]:
    """Relative names of all files, hidden ones left out, links followed as a dataset does."""
    for parent, folders, files in walk_with_links(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        base = Path(parent).relative_to(folder)
        yield from ((base / file).as_posix() for file in files if not file.startswith("."))


def image_findings(split: str, images: Iterable[tuple[str, ImageFacts]]) -> list[Finding]:
    """What was wrong with the files themselves."""
    return [Finding(split, file, facts.problem, facts.detail) for file, facts in images if facts.problem]


def missing_images(split: str, annotations: Annotations, files: Sequence[str]) -> list[Finding]:
    """Pages without an image; a name that nearly fits is the usual cause."""
    held = set(files)
    missing = [page for page in annotations.pages if page not in held]
    alike = {_plain(file): file for file in files} if missing else {}
    findings = []
    for page in missing:
        near = alike.get(_plain(page))
        hint = f"; {near} exists: the names differ in case, accents or extension" if near else ""
        detail = f"named in {annotations.path}, and not in the image folder{hint}"
        findings.append(Finding(split, page, "missing-image", detail))
    return findings


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", PurePosixPath(name).stem).casefold()


def unreferenced_files(
    split: str, annotations: Annotations, files: Iterable[str], images: Mapping[str, ImageFacts], folder: Path
) -> list[Finding]:
    """Files without a page: a good image can be lost work, anything else only takes room."""
    findings = []
    # Labels can be next to the images.
    labels = {os.path.realpath(label) for label in annotations.files}
    for file in files:
        if file in annotations.pages or os.path.realpath(folder / file) in labels:
            continue
        facts = images.get(file)
        if facts and facts.readable:
            detail = f"{facts.size_in('upright')[0]} x {facts.size_in('upright')[1]} pixels, not in {annotations.path}"
            findings.append(Finding(split, file, "unreferenced-image", detail))
        else:
            detail = f"{facts.problem}: {facts.detail}" if facts else "not an image by its name"
            findings.append(Finding(split, file, "unreferenced-file", detail))
    return findings


def find_duplicates(splits: Sequence[Split]) -> list[Finding]:
    """Images with the same bytes: annotated twice they weigh double, in two splits they leak.

    A leak is a finding about the page of the training split: what a score is measured on should stay.
    """
    readable = _Readable(splits)
    findings = []
    for group in same_bytes(readable):
        (first_split, first), *others = sorted(
            (readable.owner(number) for number in group),
            key=lambda owner: (not _is_annotated(*owner), is_training(owner[0].name)),
        )
        for split, name in others:
            kind = "duplicate-image" if split is first_split else "leaked-image"
            if _is_annotated(first_split, first) and not _is_annotated(split, name):
                kind = "unreferenced-copy"
            elif not _is_annotated(split, name):
                kind = "duplicate-image"
            findings.append(Finding(split.name, name, kind, f"the same bytes as {first_split.name}/{first}"))
    return findings


def is_training(split: str) -> bool:
    """Whether a split is for training, by its name."""
    return split.lower().startswith("train")


class _Readable(Sequence[ImageFacts]):
    """The readable images of all splits, of which only places are kept."""

    def __init__(self, splits: Sequence[Split]) -> None:
        self._splits = splits
        places = (
            (number, position)
            for number, split in enumerate(splits)
            for position, (_, facts) in enumerate(split.images.items())
            if facts.readable
        )
        self._places = np.fromiter(places, np.dtype((np.int64, 2)))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, number: int) -> ImageFacts: ...

    @overload
    def __getitem__(self, number: slice) -> list[ImageFacts]: ...

    def __getitem__(self, number: int | slice) -> ImageFacts | list[ImageFacts]:
        if isinstance(number, slice):
            return [self[each] for each in range(len(self))[number]]
        split, position = self._place(number)
        return split.images.item_at(position)[1]

    def owner(self, number: int) -> tuple[Split, str]:
        """The split and the name of an image."""
        split, position = self._place(number)
        return split, split.images.item_at(position)[0]

    def _place(self, number: int) -> tuple[Split, int]:
        split, position = self._places[number].tolist()
        return self._splits[split], position


def _is_annotated(split: Split, name: str) -> bool:
    return split.annotations is not None and name in split.annotations.pages
