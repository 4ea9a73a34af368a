"""The data of a benchmark: links to the pages, and the maps, shards and caches made from them, in one folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from ocr.advisor.measure.pages import open_uncached, spread
from ocr.datasets.base import OCRDataset
from ocr.datasets.page_dataset import PageDataset
from ocr.errors import ConfigError, DataError
from ocr.formats.annotation import Annotations
from ocr.formats.maps import maps_folder
from ocr.formats.native import write_native
from ocr.formats.read import read_annotations
from ocr.units import format_bytes

BYTES_PER_PIXEL = {"maps": 7, "ready": 3}
"""Of stored maps, and at most of ready pages."""


@dataclass(frozen=True, slots=True)
class BenchData:
    """The paths of one benchmark."""

    root: Path
    location: str
    """Of the pages themselves."""
    images: Path
    annotation: Path | None
    pages: int
    all_pages: int

    def cache(self, name: str) -> Path:
        """The folder of the caches of one configuration."""
        return self.root / "caches" / name.replace(" ", "-")

    def prepared(self, needs: str) -> Path:
        """The folder of what `prepare` makes."""
        return maps_folder(self.images) if needs == "maps" else self.root / needs


def link_pages(config: DictConfig, split: str, count: int, root: Path) -> BenchData:
    """Link to pages from all over a split and write their annotation; every file is read once, so all start warm."""
    node = (config.get("datasets") or {}).get(f"{split}_dataset")
    if node is not None and "image_path" not in node:
        raise ConfigError(
            f"datasets.{split}_dataset is not a folder of pages, from which shards are made: set data=base",
            setting=f"datasets.{split}_dataset",
        )
    dataset = open_uncached(config, split)
    assert isinstance(dataset, OCRDataset)
    source = dataset.folder_source
    names = list(source.names)
    if not names:
        raise DataError(f"{source.location} has no pages to read", path=str(source.location))
    chosen = [names[index] for index in spread(len(names), count or len(names))]
    images = root / "images" / split
    for name in chosen:
        link, target = images / name, (Path(source.folder) / name).resolve()
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        target.read_bytes()
    annotation = _write_annotation(config, split, chosen, root)
    return BenchData(root, str(source.location), images, annotation, len(chosen), len(names))


def _write_annotation(config: DictConfig, split: str, names: list[str], root: Path) -> Path | None:
    node = config.datasets[f"{split}_dataset"]
    if node.annotation_path is None:
        return None
    known = read_annotations(
        node.annotation_path,
        node.get("annotation_format", "auto"),
        node.image_path,
        node.get("annotation_categories", "auto"),
    )
    target = root / "jsons" / f"{split}.json"
    write_native(Annotations(str(target), "native", {name: known.pages[name] for name in names}), target)
    return target


def prepare(needs: str, dataset: PageDataset, split: str, data: BenchData) -> None:
    """Make what a configuration needs, from the dataset that reads the linked folder."""
    assert isinstance(dataset, OCRDataset)
    _refuse_if_full(needs, dataset, data)
    if needs == "maps":
        from ocr.tools.preprocess import preprocess_maps

        if dataset.transform.moves_geometry:
            raise ConfigError("the transforms move polygons, so stored maps are never used", setting="transforms")
        preprocess_maps(dataset, split, show_progress=False)
    elif needs in ("raw", "ready"):
        from ocr.tools.convert.convert import convert_split
        from ocr.tools.convert.plan import make_plan
        from ocr.tools.convert.settings import ConvertSettings

        settings = ConvertSettings(ready=needs == "ready")
        convert_split(make_plan(dataset, split, data.prepared(needs), settings), settings, show_progress=False)
    elif needs == "dali":
        from ocr.optional import require

        require("nvidia.dali", "use_dali=true")
    elif needs == "model":
        if split != "val":
            raise ConfigError("precisions are compared in validation: --split val", setting="--split", value=split)
        import ocr.jobs.train  # noqa: F401  # Takes seconds, which must not count as part of an epoch.


def _refuse_if_full(needs: str, dataset: PageDataset, data: BenchData) -> None:
    side = dataset.transform.needed_side
    if needs not in BYTES_PER_PIXEL or side is None:
        return
    needed, free = data.pages * side**2 * BYTES_PER_PIXEL[needs], shutil.disk_usage(data.root).free
    if needed > free / 2:
        raise DataError(
            f"{format_bytes(needed)} are needed in {data.root.parent}, which has {format_bytes(free)} free. "
            "Take fewer pages (--pages), or another folder (--folder)",
            value=needed,
            path=data.root.parent,
        )


def stored_bytes(*folders: Path) -> int:
    """Bytes on disk of everything in these folders; holes of sparse files do not count."""
    files = [path for folder in folders if folder.is_dir() for path in folder.rglob("*")]
    return sum(path.stat().st_blocks * 512 for path in files if path.is_file())
