"""Which image an annotation refers to: by the stem of its file, or by a path from another machine."""

from __future__ import annotations

import os
import posixpath
from functools import cached_property
from pathlib import Path, PurePosixPath

from PIL import Image

from ocr.errors import AnnotationError, ConfigError

IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".jp2")
_ORIENTATION = 0x0112
LABEL_PREFIXES = ("poly_gt_", "gt_", "res_")


class ImageNames:
    """Finds the images of a folder by the names in an annotation; without a folder, by rule alone."""

    def __init__(self, image_path: Path | None) -> None:
        if image_path is not None and not image_path.is_dir():
            raise AnnotationError(
                f"image_path={image_path} is not a folder. Set it to the folder of the images",
                setting="image_path",
                value=image_path,
                path=image_path,
            )
        self._folder = image_path

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        # Listed on first use: the native JSON has full file names and needs no listing of the folder.
        found: dict[str, list[str]] = {}
        for name in [] if self._folder is None else sorted(os.listdir(self._folder)):
            if is_image(name):
                found.setdefault(PurePosixPath(name).stem, []).append(name)
        return found

    def of_label(self, label: Path) -> str:
        """The image of a per-image file: gt_img_1.txt, img_1.txt and img_1.jpg.txt all refer to img_1.jpg."""
        written = label.stem if is_image(label.stem) else f"{label.stem}.jpg"
        stem = PurePosixPath(written).stem
        bare = next((stem.removeprefix(prefix) for prefix in LABEL_PREFIXES if stem.startswith(prefix)), stem)
        # The test labels of CTW1500 pad the number of the image: 0001001.txt refers to 1001.jpg.
        for candidate in (stem, bare, bare.lstrip("0")):
            found = self._by_stem.get(candidate, [])
            if written in found:
                return written
            if len(found) > 1:
                raise AnnotationError(
                    f"{label} could belong to {' or '.join(found)} in {self._folder}. Rename one of them",
                    value=found,
                    path=label,
                )
            if found:
                return found[0]
        return bare + PurePosixPath(written).suffix

    def of_stem(self, stem: str, where: str, suffix: str = ".jpg") -> str:
        """The image that an annotation names without its extension, which is `suffix` if the folder does not say."""
        found = self._by_stem.get(stem, [])
        if len(found) > 1:
            raise AnnotationError(
                f"{where}: {stem} could belong to {' or '.join(found)} in {self._folder}. Rename one of them",
                value=found,
            )
        return found[0] if found else self.of_path(stem if is_image(stem) else stem + suffix)

    def size_of(self, name: str, where: str) -> tuple[int, int]:
        """Width and height of an upright image, for formats whose coordinates are shares of it."""
        if self._folder is None:
            # Not an error of this file, which would be repeated for every other one.
            raise ConfigError(
                f"{where}: coordinates are relative to the image, whose size is unknown. Set "
                "image_path to the folder of the images",
                setting="image_path",
                path=where,
            )
        file = self._folder / name
        try:
            with Image.open(file) as image:
                turned = image.getexif().get(_ORIENTATION, 1) >= 5
                # Pillow turns TIFF pages upright by itself.
                is_stored = turned and image.format != "TIFF"
                return (image.height, image.width) if is_stored else (image.width, image.height)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise AnnotationError(
                f"{where}: {file} cannot be read, and the coordinates are relative to its size. Set image_path to the "
                "folder of the images, or remove the annotation",
                setting="image_path",
                value=name,
                path=file,
            ) from error

    @property
    def has_folder(self) -> bool:
        """Whether the folder of the images is known."""
        return self._folder is not None

    def images(self) -> list[str]:
        """The images in the folder, in the order of their names."""
        return sorted(name for names in self._by_stem.values() for name in names)

    def exists(self, name: str) -> bool:
        """Whether the image folder is known and has this image."""
        return self._folder is not None and (self._folder / name).is_file()

    def of_path(self, written: str) -> str:
        """The longest end of a written path that exists in the folder, otherwise its last part.

        Without a folder, a relative path is kept, and only one that leads elsewhere (absolute, or out by `..`) is cut
        to its last part: its start is unknown, and pages of different folders can share a name.
        """
        slashed = written.replace("\\", "/")
        parts = [part for part in PurePosixPath(slashed).parts if part not in ("/", "..")]
        if self._folder is not None:
            for start in range(len(parts)):
                if (self._folder / "/".join(parts[start:])).is_file():
                    return "/".join(parts[start:])
        elif parts and _stays_below(slashed):
            return posixpath.normpath(slashed)
        return parts[-1] if parts else written


def _stays_below(path: str) -> bool:
    """Whether a path, of any system, is relative and stays below its start."""
    first = posixpath.normpath(path).split("/")[0]
    return first not in ("", "..") and not first.endswith(":")


def is_image(name: str) -> bool:
    """Whether a file name has the suffix of an image."""
    return name.lower().endswith(IMAGE_EXTENSIONS)
