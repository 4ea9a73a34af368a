"""Configurations that change what is read or cached: each as a dataset that can be tried on a few pages, or on all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig

from ocr.advisor.catalogue import BASELINE, CATALOGUE, Configuration
from ocr.advisor.measure.pages import open_uncached
from ocr.advisor.measure.stage_demands import cached_kinds
from ocr.datasets.build import build_dataset
from ocr.datasets.page_dataset import PageDataset
from ocr.datasets.shard_dataset import ShardDataset
from ocr.pipeline.cut import Cut
from ocr.pipeline.source import FolderSource
from ocr.shards.index import DENSE, RAW, end_tar, write_member
from ocr.shards.open import open_shards
from ocr.shards.ready import ready_digest
from ocr.shards.storage import Storage

PAGE_BYTES, MAPS_BYTES = 3, 10
"""Per pixel: the page as uint8; two maps of float32 and two masks."""
STORED_MAPS_BYTES = 7
PIXELS_PER_DENSE_BYTE = 2
"""Receipts of 640x640 take 0.15 to 0.2 MB."""
PRESENT = Configuration("present", "as configured", ())
Compose = Callable[[Sequence[str]], DictConfig]
"""The config with additional overrides."""


class TrialDataset(NamedTuple):
    """A dataset, and the indices that the wanted pages have in it."""

    dataset: PageDataset
    indices: list[int]


@dataclass(frozen=True)
class Candidate:
    """A configuration that can be built, and what it costs."""

    configuration: Configuration
    build: Callable[[Sequence[int], Path], TrialDataset]
    """From indices of the split, and a folder to write to."""
    kept_bytes: int = 0
    """Per page, on disk and, if there is room, in memory."""
    fills_cache: bool = False
    """Whether the first epoch makes what later epochs only read."""
    skips: frozenset[str] = frozenset()
    """Kinds of stages that reading what is kept replaces."""
    command: str = ""
    """What must be run first."""

    @property
    def name(self) -> str:
        return self.configuration.name

    @property
    def read_stage(self) -> str:
        """The name of the stage that reads what is kept."""
        return "cache" if self.fills_cache else f"reading {self.name}"


class Candidates:
    """All candidates for one split of a config."""

    def __init__(self, compose: Compose, split: str) -> None:
        self._compose, self._split = compose, split
        self.config = compose(())
        self.uncached = open_uncached(compose(("data.cache=off",)), split)
        transform = self.uncached.transform
        pixels = (transform.needed_side or 640) ** 2
        self._page_bytes, self._maps_bytes, self._stored_maps_bytes = (
            pixels * per_pixel for per_pixel in (PAGE_BYTES, MAPS_BYTES, STORED_MAPS_BYTES)
        )
        self._dense_bytes = pixels // PIXELS_PER_DENSE_BYTE
        self._maps_are_fixed = not transform.moves_geometry

    def present(self) -> Candidate:
        """The config as it is, but with its cache in another folder."""
        return self._configured(PRESENT)

    def others(self) -> list[Candidate]:
        """Everything in the catalogue that the config does not do yet."""
        cache = self.config.data.cache or "off"
        applies = {
            BASELINE: cache != "off",
            "prefix cache": cache not in ("prefix", "auto"),
            "auto cache": self._maps_are_fixed and cache not in ("batch", "auto"),
            "scaled decode": self.config.decode.scaled != "auto",
            "uint8 to the device": self.config.transforms.normalize != "device",
        }
        found = [self._configured(CATALOGUE[name]) for name, wanted in applies.items() if wanted]
        source = self.uncached.source
        if isinstance(source, FolderSource):
            found += [self._stored_maps(source)] * self._maps_are_fixed
            found += [self._shards(RAW), self._shards(DENSE)]
        return found

    def _configured(self, configuration: Configuration) -> Candidate:
        overrides = configuration.overrides_for(self._split)

        def build(indices: Sequence[int], folder: Path) -> TrialDataset:
            own = tempfile.mkdtemp(dir=folder)
            config = self._compose((*overrides, f"cache.folder={own}", "cache.max_bytes=1TB"))
            return TrialDataset(build_dataset(config, self._split), list(indices))

        cache = next((text.partition("=")[2] for text in overrides if text.startswith("data.cache=")), None)
        cache = cache or self.config.data.cache or "off"
        has_page = cache != "off"
        has_maps = cache == "batch" or (cache == "auto" and self._maps_are_fixed)
        kept = self._page_bytes * has_page + self._maps_bytes * has_maps
        return Candidate(configuration, build, kept, has_page, cached_kinds(Cut(has_page, has_maps)))

    def _stored_maps(self, source: FolderSource) -> Candidate:
        def build(indices: Sequence[int], folder: Path) -> TrialDataset:
            from ocr.tools.preprocess import PageMaps

            maps, uncached = Path(tempfile.mkdtemp(dir=folder)), self.uncached
            write = PageMaps(uncached.fixed_part, uncached.targets, maps, compress=False, on_bad_sample="raise")
            for index in indices:
                write(source.select([index]))
            dataset = PageDataset(
                source, uncached.transform, targets=uncached.targets, maps_folder=maps, seed=uncached.seed
            )
            return TrialDataset(dataset, list(indices))

        command = f"python -m ocr.tools.preprocess_job dataset_base_path={self.config.dataset_base_path}"
        skips = frozenset({"targets"})
        return Candidate(CATALOGUE["stored maps"], build, self._stored_maps_bytes, skips=skips, command=command)

    def _shards(self, kind: str) -> Candidate:
        def build(indices: Sequence[int], folder: Path) -> TrialDataset:
            own, uncached = Path(tempfile.mkdtemp(dir=folder)), self.uncached
            write_tar(uncached, indices, kind, own / "val-000000.tar")
            source = open_shards([str(own / "val-000000.tar")], Storage(own))
            if is_ready:  # As the index of `ocr convert` says; a tar alone does not.
                stages = ready_digest(source.index.kind, uncached.fixed_part, uncached.targets)
                source.index = replace(source.index, stages=stages)
            dataset = ShardDataset(
                source,
                uncached.transform,
                targets=uncached.targets,
                seed=uncached.seed,
                image_loading_config=dict(self.config.decode),
            )
            return TrialDataset(dataset, list(range(len(indices))))

        is_ready = kind != RAW
        command = f"ocr convert {self.config.dataset_base_path} SHARDS{' --ready' * is_ready}"
        kept = self._dense_bytes * is_ready
        skips = cached_kinds(Cut(page=True, dense=True)) if is_ready else frozenset({"source"})
        return Candidate(
            CATALOGUE["ready shards" if is_ready else "raw shards"], build, kept, skips=skips, command=command
        )


def write_tar(dataset: PageDataset, indices: Sequence[int], kind: str, path: Path) -> None:
    """A shard of these pages, as `ocr convert` writes it."""
    from ocr.tools.convert.members import Recipe, put_together, take_apart

    recipe = Recipe(kind, fixed_part=dataset.fixed_part, targets=dataset.targets)
    with path.open("wb") as stream:
        for number, index in enumerate(indices):
            for extension, data in put_together(recipe, [take_apart(recipe, dataset.source.read(index))]).items():
                write_member(stream, f"{number:08d}.{extension}", data)
        end_tar(stream)
