"""The images below a folder: their names, a set of them that stays small, and the folders that were looked at."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import xxhash

from ocr.errors import ConfigError

log = logging.getLogger(__name__)


class ImageListing:
    """Lists the images of a split, links to folders followed."""

    def __init__(self, folder: Path, extensions: tuple[str, ...]) -> None:
        if not folder.is_dir():
            raise ConfigError(
                f"image_path={folder} is not a folder. A dataset is DIR/images/<split>/ and DIR/jsons/<split>.json; "
                "point dataset_base_path at DIR, or make one: glyphfeed synth DIR",
                setting="image_path",
                path=folder,
            )
        self.folder, self.extensions = folder, extensions
        self.folders: list[str] = []
        """The folders that were listed: adding or removing a file changes the time of its folder."""

    def __iter__(self) -> Iterator[str]:
        """Paths relative to the folder, with forward slashes, in the order of the file system."""
        found = False
        for parent, _, names in walk_with_links(self.folder):
            self.folders.append(parent)
            inner = os.path.relpath(parent, self.folder).replace(os.sep, "/")
            prefix = "" if inner == "." else f"{inner}/"
            for name in names:
                # ._a.jpg is what macOS leaves beside a.jpg on foreign disks.
                if name.lower().endswith(self.extensions) and not name.startswith("."):
                    found = True
                    yield prefix + name
        if not found:
            kinds = ", ".join(self.extensions)
            problem = f"image_path={self.folder} holds no image ({kinds}). Fill it: glyphfeed synth DIR"
            raise ConfigError(problem, setting="image_path", value=self.extensions, path=self.folder)


def walk_with_links(top: str | os.PathLike[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """`os.walk` that follows links, except those back to a folder on the way: they have no end."""
    above = {os.fspath(top): frozenset({_identity(top)})}
    for parent, folders, names in os.walk(top, followlinks=True):
        on_the_way = above.pop(parent)
        for path in [os.path.join(parent, name) for name in folders]:
            identity = _identity(path)
            if identity is not None and identity in on_the_way:
                log.warning("skipped %s: it leads back to a folder that contains it", path)
                folders.remove(os.path.basename(path))
            else:
                above[path] = on_the_way | {identity}
        yield parent, folders, names


def _identity(folder: str | os.PathLike[str]) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class NameSet:
    """Which names there are, by 8 bytes each: a set of strings takes 120.

    Two names share their 64 bits once in 10^5 sets of ten million: a missing one is then reported when it is read.

    >>> "a.jpg" in NameSet(["a.jpg"]), "b.jpg" in NameSet(["a.jpg"])
    (True, False)
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._hashes = np.fromiter(map(hash_of, names), dtype=np.uint64)
        self._hashes.sort()

    def __contains__(self, name: str) -> bool:
        wanted = np.uint64(hash_of(name))
        at = int(np.searchsorted(self._hashes, wanted))
        return at < len(self._hashes) and bool(self._hashes[at] == wanted)


def hash_of(name: str) -> int:
    """64 bits that tell names apart."""
    return xxhash.xxh3_64_intdigest(name.encode(errors="surrogatepass"))
