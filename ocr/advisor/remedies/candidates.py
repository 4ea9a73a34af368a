"""Remedies that change what is read or kept: each as a dataset that can be tried on a few pages, or on all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from ocr.advisor.measure.stage_demands import spared_kinds
from ocr.datasets.build import build_dataset
from ocr.datasets.page_dataset import PageDataset
from ocr.datasets.shard_dataset import ShardDataset
from ocr.formats.maps import map_file, write_maps
from ocr.pipeline.cut import Cut
from ocr.pipeline.targets import maps_fingerprint
from ocr.shards.find import open_shards
from ocr.shards.index import RAW, READY, end_tar, write_member
from ocr.shards.storage import Storage

PAGE_BYTES, MAPS_BYTES = 3, 10
"""Of a pixel: the page as bytes; two maps of floats, two masks."""


class Tried(NamedTuple):
    """A dataset, and where the wanted pages are in it."""

    dataset: Any
    indices: list[int]


@dataclass(frozen=True)
class Candidate:
    """One way to have the pages."""

    name: str
    overrides: tuple[str, ...]
    why: str
    build: Callable[[Sequence[int], Path], Tried]
    """Of pages of the split, with a folder to write to."""
    kept_bytes: int = 0
    """Of a page, on disk and as long as there is room in memory."""
    keeps: bool = False
    """Whether the first epoch makes what later ones only read."""
    spares: frozenset[str] = frozenset()
    """Parts of the path that `by` stands for, once it is there."""
    by: str = ""
    command: str = ""
    """What has to be run before."""


Compose = Callable[[Sequence[str]], DictConfig]


class Workshop:
    """Makes the candidates of one split of a config."""

    def __init__(self, compose: Compose, split: str) -> None:
        self.compose, self.split = compose, split
        self.config = compose(())
        self.plain = build_dataset(compose(("data.cache=off", *self._nothing_kept())), split)
        transform = self.plain.transform
        side = transform.needed_side or 640
        self._page_bytes = PAGE_BYTES * side * side
        self._maps_bytes = MAPS_BYTES * side * side
        self._fixed_geometry = not transform.moves_geometry
        self._all_fixed = not transform.random

    def present(self) -> Candidate:
        """The config as it is; what it caches is cached elsewhere for the time being."""
        return self._cached("present", (), "as configured")

    def others(self) -> list[Candidate]:
        """Whatever the config does not do yet."""
        config, found = self.config, []
        cache = config.data.cache or "off"
        if cache != "off":
            found.append(self._cached("no cache", ("data.cache=off",), "every page is decoded in every epoch"))
        if cache not in ("prefix", "auto"):
            found.append(
                self._cached("page cache", ("data.cache=prefix",), "nothing is read, decoded or resized again")
            )
        if self._all_fixed and cache not in ("batch", "auto"):
            found.append(self._cached("batch cache", ("data.cache=auto",), "whole batches are handed out as they lie"))
        if config.decode.scaled != "auto":
            found.append(self._cached("scaled decode", ("decode.scaled=auto",), "JPEGs are decoded as small as needed"))
        if config.transforms.normalize != "device":
            words = "a quarter of the bytes to cache, copy and send"
            found.append(self._cached("uint8 to the device", ("transforms.normalize=device",), words))
        if self._fixed_geometry:
            found.append(self._stored_maps())
        if hasattr(self.plain.source, "folder"):
            found += [self._shards(RAW), self._shards(READY)]
        return found

    def _nothing_kept(self) -> list[str]:
        node = (self.config.get("datasets") or {}).get(f"{self.split}_dataset") or {}
        names = ("preload_maps", "preload_images", "prenormalize_images", "cache_transformed_tensors")
        return [f"datasets.{self.split}_dataset.{name}=false" for name in names if name in node]

    def _cached(self, name: str, overrides: tuple[str, ...], why: str) -> Candidate:
        def build(indices: Sequence[int], folder: Path) -> Tried:
            own = tempfile.mkdtemp(dir=folder)
            config = self.compose((*overrides, f"cache.folder={own}", "cache.max_bytes=1TB"))
            return Tried(build_dataset(config, self.split), list(indices))

        cache = next((text.partition("=")[2] for text in overrides if text.startswith("data.cache=")), None)
        cache = cache or self.config.data.cache or "off"
        keeps = cache != "off"
        with_maps = keeps and (cache == "batch" or (cache == "auto" and self._fixed_geometry))
        kept = (self._page_bytes + self._maps_bytes * with_maps) if keeps else 0
        return Candidate(name, overrides, why, build, kept, keeps, spared_kinds(Cut(keeps, with_maps)), "cache")

    def _stored_maps(self) -> Candidate:
        def build(indices: Sequence[int], folder: Path) -> Tried:
            maps = Path(tempfile.mkdtemp(dir=folder))
            plain = self.plain
            for index in indices:
                page = plain.targets(plain.page(index))
                path = map_file(maps, page.filename)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_maps(path, page.maps, maps_fingerprint(page, plain.targets))
            dataset = PageDataset(
                plain.source, plain.transform, targets=plain.targets, maps_folder=maps, seed=plain.seed
            )
            return Tried(dataset, list(indices))

        words = "maps are read, not drawn: drawing takes a third of the time"
        place = f"dataset_base_path={self.config.dataset_base_path}"
        command = f"python scripts/preprocess_maps.py {place}"
        kept, spares = self._maps_bytes * 7 // 10, frozenset({"targets"})
        return Candidate("stored maps", (), words, build, kept, False, spares, "stored maps", command)

    def _shards(self, kind: str) -> Candidate:
        def build(indices: Sequence[int], folder: Path) -> Tried:
            own = Path(tempfile.mkdtemp(dir=folder))
            write_tar(self.plain, indices, kind, own / "val-000000.tar")
            plain = self.plain
            source = open_shards([str(own / "val-000000.tar")], Storage(own))
            settings = {"targets": plain.targets, "seed": plain.seed, "image_loading_config": dict(self.config.decode)}
            return Tried(ShardDataset(source, plain.transform, **settings), list(range(len(indices))))

        ready = kind == READY
        option = " --ready" if ready else ""
        command = f"ocr convert {self.config.dataset_base_path} SHARDS{option}"
        words = "letterboxed pages and maps are read, nothing is decoded" if ready else "the same work from other files"
        kept = self._page_bytes + self._maps_bytes if ready else 0
        spares = spared_kinds(Cut(page=True, maps=self._fixed_geometry)) if ready else frozenset({"source"})
        overrides, name = ("data=webdataset", "shards_base_path=SHARDS"), f"{kind} shards"
        return Candidate(name, overrides, words, build, kept, False, spares, name, command)


def write_tar(dataset: Any, indices: Sequence[int], kind: str, path: Path) -> None:
    """A shard of these pages, as `ocr convert` writes it."""
    from ocr.tools.convert.members import Recipe, put_together, take_apart

    recipe = Recipe(kind, fixed_part=dataset.fixed_part, targets=dataset.targets)
    with path.open("wb") as stream:
        for number, index in enumerate(indices):
            for extension, data in put_together(recipe, [take_apart(recipe, dataset.source.read(index))]).items():
                write_member(stream, f"{number:08d}.{extension}", data)
        end_tar(stream)
