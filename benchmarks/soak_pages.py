"""The pages of a soak: opened with and without the cache, edited, and read or removed by other processes."""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from batch_digests import digest
from PIL import Image, ImageDraw
from sameness import assert_same

from ocr.atomic import replacing
from ocr.datasets import DBTransforms, OCRDataset
from ocr.errors import ConfigError
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomFlip, RandomRotate, TextAwareCrop
from ocr.tools.cache.clear import clear
from ocr.tools.cache.report import print_stats
from ocr.tools.cache.verify import verify
from ocr.tools.synth import synthesize

BATCH_SIZE = 4
BYTES_PER_PIXEL = 3 + 4 + 4 + 1 + 1
"""Of a raw cache: the page, two maps and two masks."""
BUDGET_PAGES = 2.5
"""All caches together may take as much as so many times the pages of both splits."""
OTHER_SIZES = (0.5, 0.625, 0.75, 0.875)
"""Of the pages in further caches, which come and go because they do not all fit into the budget."""


class PagesOfSoak:
    """A copy of the pages, and their originals in memory: each edit starts from those, so that edits do not add up."""

    def __init__(self, folder: Path, cache: Path, size: int, seed: int) -> None:
        self.folder, self.cache, self.size, self.seed = folder, cache, size, seed
        self.files = {split: _images(folder / "images" / split) for split in ("train", "val")}
        self._annotations = {split: self._annotation_file(split).read_bytes() for split in self.files}
        self._images = {path: path.read_bytes() for paths in self.files.values() for path in paths}
        self.budget_bytes = round(BUDGET_PAGES * len(self._images) * size * size * BYTES_PER_PIXEL)

    def to_dict(self) -> dict[str, Any]:
        """For another process."""
        return {"folder": str(self.folder), "cache": str(self.cache), "size": self.size, "seed": self.seed}

    def open(self, split: str, cached: bool, random: bool | None = None, share: float = 1.0) -> OCRDataset:
        """A split with its stages, random ones for training; `share` of the usual size of pages."""
        size = round(self.size * share)
        stages = [Letterbox(size)]
        if split == "train" if random is None else random:
            stages += [TextAwareCrop(), RandomFlip(), RandomRotate(), Letterbox(size), ColourJitter(p=0.8)]
        transform = DBTransforms([*stages, Normalize()], normalize="device")
        return OCRDataset(
            self.folder / "images" / split,
            self._annotation_file(split),
            transform,
            seed=self.seed,
            cache="auto" if cached else "off",
            cache_folder=self.cache if cached else self.cache.with_name("uncached"),
            cache_max_total_bytes=self.budget_bytes,
        )

    def batches(self, split: str, epoch: int = 0, share: float = 1.0) -> list[Any]:
        """An epoch as it should be: made now, of what is on disk."""
        is_training = split == "train" and share == 1
        dataset = self.open(split, cached=False, random=is_training, share=share)
        loader = Loader(dataset, BATCH_SIZE, 0, shuffle=is_training, seed=self.seed)
        loader.set_epoch(epoch)
        return list(loader)

    def edit(self, rng: Random) -> str:
        """Change a page or a label; what is wrong if a dataset that is opened after it gives the same sample."""
        split = rng.choice(sorted(self.files))
        number = rng.randrange(len(self.files[split]))
        path = self.files[split][number]
        before = self._digest(split, number)
        while True:  # The same change may be drawn twice.
            if rng.random() < 0.5:
                data = _painted(self._images[path], rng)
            else:
                path, data = self._annotation_file(split), _moved(self._annotations[split], path.name, rng)
            if data != path.read_bytes():
                break
            path = self.files[split][number]
        with replacing(path) as stream:
            stream.write(data)
        return "" if self._digest(split, number) != before else f"an edit of {path} is not seen"

    def _digest(self, split: str, number: int) -> str:
        return digest([self.open(split, cached=False, random=False).item(number)])

    def _annotation_file(self, split: str) -> Path:
        return self.folder / "jsons" / f"{split}.json"


def make_pages(folder: Path, data: Path | None, train: int, val: int, seed: int) -> None:
    """Synthetic pages, or a copy of the first ones of a dataset."""
    if data is None:
        synthesize(folder, train=train, val=val, seed=seed, megapixels=(0.3, 1.0), workers=1, show_progress=False)
        return
    for split, count in (("train", train), ("val", val)):
        annotation = data / "jsons" / f"{split}.json"
        words = json.loads(annotation.read_bytes()).get("images")
        if not isinstance(words, dict):
            raise ConfigError(f"--data: {annotation} is not in the native format; `ocr convert-annotations` writes it")
        copies = folder / "images" / split
        copies.mkdir(parents=True)
        chosen = [path for path in _images(data / "images" / split) if path.name in words][:count]
        for path in chosen:
            shutil.copyfile(path, copies / path.name)
        kept = {path.name: words[path.name] for path in chosen}
        with replacing(folder / "jsons" / f"{split}.json") as stream:
            stream.write(json.dumps({"images": kept}).encode())


def _images(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_EXTENSIONS)
    if len(found) < 2 * BATCH_SIZE:
        raise ConfigError(f"{folder} has {len(found)} pages; a soak needs {2 * BATCH_SIZE}")
    return found


def _painted(original: bytes, rng: Random) -> bytes:
    """A page with a rectangle on it."""
    image = Image.open(io.BytesIO(original))
    kind, exif, image = image.format, image.getexif(), image.convert("RGB")
    left, top = (rng.randrange(side // 2) for side in image.size)
    box = left, top, left + image.width // 3, top + image.height // 3
    ImageDraw.Draw(image).rectangle(box, fill=tuple(rng.randrange(256) for _ in range(3)))
    stream = io.BytesIO()
    image.save(stream, kind, exif=exif)
    return stream.getvalue()


def _moved(original: bytes, name: str, rng: Random) -> bytes:
    """Labels with the words of one page moved."""
    annotation = json.loads(original)
    right, down = (rng.choice((-1, 1)) * rng.uniform(2, 20) for _ in range(2))
    for word in annotation["images"][name]["words"].values():
        word["points"] = [[x + right, y + down] for x, y in word["points"]]
    return json.dumps(annotation).encode()


@dataclass
class Compared:
    """Batches beside those of an undisturbed run."""

    samples: int = 0
    wrong: int = 0

    def compare(self, what: str, found: list[Any], expected: list[Any]) -> list[str]:
        """Bit for bit; what is wrong."""
        reasons = []
        if len(found) != len(expected):
            reasons.append(f"{what}: {len(found)} batches instead of {len(expected)}")
            self.wrong += abs(len(found) - len(expected)) * BATCH_SIZE
        for number, (one, other) in enumerate(zip(found, expected, strict=False)):
            self.samples += len(other["image_filename"])
            try:
                assert_same(one, other)
            except AssertionError as error:
                self.wrong += len(other["image_filename"])
                reasons.append(f"{what}: batch {number} differs at {error}: {other['image_filename']}")
        return reasons


def read_elsewhere(pages: dict[str, Any], split: str, threads: int, epochs: int) -> None:
    """In another process: epochs with the cache that is shared."""
    loader = Loader(_reopened(pages).open(split, cached=True), BATCH_SIZE, threads, shuffle=split == "train")
    for _ in range(epochs):
        for _ in loader:
            pass


def fill_elsewhere(pages: dict[str, Any], split: str, share: float) -> None:
    """In another process: a further cache."""
    _reopened(pages).open(split, cached=True, random=False, share=share).fill_cache()


def clear_elsewhere(cache: str) -> None:
    """In another process: `ocr cache clear`, also of what is open."""
    clear(Path(cache), (), None, None, dry_run=False, yes=True)


def look_elsewhere(cache: str) -> str:
    """In another process: `ocr cache stats` and `ocr cache verify`; what the latter says of damage."""
    print_stats(Path(cache), (), as_json=True)
    with redirect_stdout(io.StringIO()) as told:
        status = verify(Path(cache), (), repair=False)
    return told.getvalue() if status else ""


def _reopened(pages: dict[str, Any]) -> PagesOfSoak:
    return PagesOfSoak(Path(pages["folder"]), Path(pages["cache"]), pages["size"], pages["seed"])
