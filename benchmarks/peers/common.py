"""What every peer does with a decoded page, so that only loading differs: letterbox, random stages, maps, batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from omegaconf import OmegaConf
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset, default_collate

from benchmarks.harness import ROOT, pin_threads
from benchmarks.peers import Course as Course
from ocr.datasets.build import make
from ocr.geometry.kernels.warm_up import warm_up
from ocr.geometry.orientation import upright_size
from ocr.geometry.polygons import Polygons
from ocr.pipeline.prefix import Letterbox, scaled_sizes
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import Stage
from ocr.pipeline.targets import MAPS, Targets

ORIENTATION_TAG = 0x0112
Pixels = NDArray[np.uint8]
Item = dict[str, Any]

# Here, because some loaders start their workers as new processes, which import this file. Kernels are loaded before
# workers are forked, and before any clock but that of the start: otherwise each worker of a peer would load its own.
pin_threads(1)
warm_up(show=False, only_loading=True)


class Page(NamedTuple):
    """One line of the annotation."""

    name: str
    path: str
    polygons: Polygons
    """In pixels of the upright page."""


def annotated_pages(course: Course) -> list[Page]:
    """All pages, in the order of the annotation."""
    images = json.loads(course.annotation.read_text(encoding="utf-8"))["images"]
    pages = []
    for name, noted in images.items():
        words = noted["words"].values()
        polygons = Polygons.pack([word["points"] for word in words], [word["illegibility"] for word in words])
        pages.append(Page(name, str(course.images / name), polygons))
    return pages


def decode_with_pillow(path: Any) -> Pixels:
    """Upright RGB pixels of a path or a stream."""
    with Image.open(path) as opened:
        return np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))


def random_stages(size: int) -> tuple[Stage, ...]:
    """The augmentation of the configs, behind the letterbox."""
    config = OmegaConf.create({"transforms": OmegaConf.load(ROOT / "configs/transforms/base.yaml")})
    config.transforms.size = size
    config.transforms.letterbox.shape = "square"
    stages: tuple[Stage, ...] = make(config.transforms.train_transform, "transforms.train_transform").random
    return stages


class PageWork:
    """From decoded pixels to an item; the random stages only in training."""

    def __init__(self, course: Course, training: bool) -> None:
        self.letterbox, self.targets = Letterbox(course.size), Targets()
        self.stages = random_stages(course.size) if training else ()

    def __call__(self, image: Pixels, page: Page) -> Item:
        return self.finish(self.fixed(image, page))

    def fixed(self, image: Pixels, page: Page) -> Sample:
        """The letterboxed page."""
        height, width = image.shape[:2]
        return self.letterbox(Sample(0, page.name, page.path, page.polygons, image=image, shape=(width, height)))

    def record(self, page: Page) -> dict[str, Any]:
        """The letterboxed page as arrays and a name, as peers that prepare pages store it."""
        sample = self.fixed(decode_with_pillow(page.path), page)
        polygons = sample.polygons
        return {
            "name": sample.filename,
            "image": sample.image,
            "vertices": polygons.vertices,
            "offsets": polygons.offsets,
            "ignore": polygons.ignore.astype(np.uint8),
        }

    def finish_record(self, record: dict[str, Any]) -> Item:
        """What is missing of a page that was stored; tensors are taken too."""
        image, vertices, offsets, ignore = (
            np.asarray(record[key]) for key in ("image", "vertices", "offsets", "ignore")
        )
        polygons = Polygons(vertices.reshape(-1, 2), offsets.reshape(-1), ignore.reshape(-1).astype(np.bool_))
        return self.finish(Sample(0, str(record["name"]), "", polygons, image=image))

    def placed(self, image: Pixels, source_size: tuple[int, int], page: Page) -> Sample:
        """The same, if the pixels were letterboxed by other means; `source_size` is (width, height)."""
        side = self.letterbox.size
        (width, height), scale = scaled_sizes(np.array([source_size]), side)[0], side / max(source_size)
        matrix = np.array([[scale, 0, (side - width) // 2], [0, scale, (side - height) // 2], [0, 0, 1]])
        return Sample(0, page.name, page.path, page.polygons, shape=source_size).moved(image, matrix)

    def finish(self, sample: Sample) -> Item:
        """Augment the page and draw its maps."""
        rng = np.random.default_rng()
        for stage in self.stages:
            sample = stage.run(sample, rng)
        sample = sample.unpacked()
        maps = self.targets.draw(sample.polygons, *sample.size)
        drawn = {spec.batch_name: maps[name][None] for name, spec in MAPS.items()}
        return {"images": sample.image, **drawn, "names": sample.filename}


class DecodedPages(Dataset[Item]):
    """A map-style dataset over image files."""

    def __init__(self, course: Course, training: bool, decode: Callable[[str], Pixels] = decode_with_pillow) -> None:
        self.pages, self.work, self.decode = annotated_pages(course), PageWork(course, training), decode

    def __len__(self) -> int:
        return len(self.pages)

    def __getitem__(self, index: int) -> Item:
        page = self.pages[index]
        return self.work(self.decode(page.path), page)


def torch_loader(dataset: Any, course: Course, loader: Any = DataLoader, **settings: Any) -> Any:
    """Torch's loader, or one of its subclasses, with workers that stay."""
    settings = {"batch_size": course.batch_size, "collate_fn": default_collate} | settings
    return loader(dataset, num_workers=course.workers, persistent_workers=course.workers > 0, **settings)


def stack(items: Sequence[Item]) -> Item:
    """A batch of tensors, for loaders that work in threads."""
    names = [item["names"] for item in items]
    tensors = {key: torch.from_numpy(np.stack([item[key] for item in items])) for key in items[0] if key != "names"}
    return tensors | {"names": names}


class FinishedInThreads:
    """Batches of letterboxed pixels and page numbers, from a loader that draws no maps, with all that is missing."""

    def __init__(self, course: Course, training: bool, batches: Iterable[tuple[Any, Any]]) -> None:
        self.batches, self.work = batches, PageWork(course, training)
        self.pool = ThreadPoolExecutor(course.workers)
        self.pages, self.sizes = annotated_pages(course), list[tuple[int, int]]()
        for page in self.pages:
            with Image.open(page.path) as opened:
                self.sizes.append(upright_size(opened.getexif().get(ORIENTATION_TAG, 1), *opened.size))

    def __iter__(self) -> Iterator[Item]:
        for images, numbers in self.batches:
            yield stack(list(self.pool.map(self._finish, np.asarray(images), np.asarray(numbers).ravel())))

    def _finish(self, image: Pixels, number: int) -> Item:
        return self.work.finish(self.work.placed(image, self.sizes[number], self.pages[number]))
