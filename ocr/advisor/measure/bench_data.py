"""The folder of a benchmark: links to the pages, and maps, shards and caches that are removed with it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig

from ocr.advisor.catalogue import NOTHING_KEPT
from ocr.datasets.build import build_dataset
from ocr.errors import ConfigError, DataError
from ocr.formats.annotation import Annotations
from ocr.formats.maps import maps_folder
from ocr.formats.native import write_native
from ocr.formats.read import read_annotations

BYTES_A_PIXEL = {"maps": 7, "ready": 13}
"""Of stored maps, and of ready pages with their maps."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where everything of one benchmark lies."""

    root: Path
    place: str
    """Of the pages themselves."""
    images: Path
    annotation: Path | None
    pages: int
    all_pages: int

    def cache(self, name: str) -> Path:
        """The folder of caches of one configuration."""
        return self.root / "caches" / name.replace(" ", "-")

    def made(self, needs: str) -> Path:
        """What a configuration needs and the benchmark makes."""
        return maps_folder(self.images) if needs == "maps" else self.root / needs


def link_pages(config: DictConfig, split: str, count: int, root: Path) -> Places:
    """Links to pages from all over a split, and their annotation; each file is read once, so that all start alike."""
    node = (config.get("datasets") or {}).get(f"{split}_dataset")
    if node is not None and "image_path" not in node:
        raise ConfigError(f"datasets.{split}_dataset is no folder of pages: set data=base, for shards are made of it")
    if node is not None:
        node.update({name: value for name, value in NOTHING_KEPT.items() if name in node})
    source = build_dataset(config, split).source
    names = list(source.names)
    if not names:
        raise DataError(f"{source.location} has no pages to read")
    chosen = np.unique(np.linspace(0, len(names) - 1, min(count or len(names), len(names))).astype(int)).tolist()
    images = root / "images" / split
    for name in (names[number] for number in chosen):
        link, target = images / name, (source.folder / name).resolve()
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        target.read_bytes()
    annotation = _write_annotation(config, split, [names[number] for number in chosen], root)
    return Places(root, source.location, images, annotation, len(chosen), len(names))


def _write_annotation(config: DictConfig, split: str, names: list[str], root: Path) -> Path | None:
    node: Any = config.datasets[f"{split}_dataset"]
    if node.annotation_path is None:
        return None
    known = read_annotations(node.annotation_path, node.get("annotation_format", "auto"), node.image_path)
    target = root / "jsons" / f"{split}.json"
    write_native(Annotations(str(target), "native", {name: known.pages[name] for name in names}), target)
    return target


def prepare(needs: str, dataset: Any, split: str, places: Places) -> None:
    """Make what a configuration needs, from the dataset that reads the linked folder."""
    _refuse_if_full(needs, dataset, places)
    if needs == "maps":
        from ocr.tools.preprocess import preprocess_maps

        if dataset.transform.moves_geometry:
            raise ConfigError("the transforms move polygons, so stored maps are never used: as disk")
        preprocess_maps(dataset, split, show_progress=False)
    elif needs in ("raw", "ready"):
        from ocr.tools.convert.convert import convert_split
        from ocr.tools.convert.plan import make_plan
        from ocr.tools.convert.settings import ConvertSettings

        settings = ConvertSettings(ready=needs == "ready")
        convert_split(make_plan(dataset, split, places.made(needs), settings), settings, show_progress=False)
    elif needs == "dali":
        from ocr.optional import require

        require("nvidia.dali", "use_dali=true")
    elif needs == "model":
        if split != "val":
            raise ConfigError("precisions are compared in validation: --split val")
        import ocr.jobs.train  # noqa: F401  # Takes seconds, which belong to no epoch.


def _refuse_if_full(needs: str, dataset: Any, places: Places) -> None:
    side = dataset.transform.needed_side
    if needs not in BYTES_A_PIXEL or side is None:
        return
    needed, free = places.pages * side**2 * BYTES_A_PIXEL[needs], shutil.disk_usage(places.root).free
    if needed > free / 2:
        raise DataError(
            f"{needed / 1e9:.1f} GB are needed in {places.root.parent}, which has {free / 1e9:.1f} GB free. "
            "Take fewer pages (--pages), or another folder (--folder)"
        )


def stored_bytes(*folders: Path) -> int:
    """What is in folders, without its holes."""
    files = [path for folder in folders if folder.is_dir() for path in folder.rglob("*")]
    return sum(path.stat().st_blocks * 512 for path in files if path.is_file())
