"""OCRDataset: an annotated folder of pages as a map-style dataset of training samples."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ocr.cache.store import cache_root
from ocr.checks import check_integer
from ocr.datasets.page_dataset import PageDataset
from ocr.datasets.transforms import DBTransforms, as_transforms
from ocr.errors import ConfigError
from ocr.formats.maps import maps_folder
from ocr.pipeline.joined_source import JoinedSource, join
from ocr.pipeline.source import FolderSource, open_folder
from ocr.pipeline.targets import Targets


class OCRDataset(PageDataset):
    """Pages of a folder with their maps; see `PageDataset` for the settings that all sources share."""

    def __init__(
        self,
        image_path: str | os.PathLike[str],
        annotation_path: str | os.PathLike[str] | None,
        transform: DBTransforms,
        image_extensions: Iterable[str] | None = None,
        preload_maps: bool = False,
        preload_images: bool = False,
        prenormalize_images: bool = False,
        image_loading_config: Mapping[str, Any] | None = None,
        cache_transformed_tensors: bool = False,
        *,
        annotation_format: str = "auto",
        annotation_categories: str | Sequence[str] = "auto",
        on_bad_sample: str = "raise",
        targets: Targets | None = None,
        use_stored_maps: bool = True,
        unlabelled_path: str | os.PathLike[str] | None = None,
        seed: int = 0,
        **cache_settings: Any,
    ) -> None:
        """`unlabelled_path`: a folder of more pages, whose maps are masked, because their text is unknown.

        `cache_settings`: `cache`, `cache_folder`, `cache_max_bytes` and `preload_everything` of `PageDataset`.
        """
        transform = as_transforms(transform)
        check_seed_and_targets(seed, targets)
        index_folder = cache_root(cache_settings.get("cache_folder")) / "pages"
        labelled = open_folder(
            image_path,
            annotation_path,
            annotation_format=annotation_format,
            annotation_categories=annotation_categories,
            image_extensions=image_extensions,
            on_bad_sample=on_bad_sample,
            index_folder=index_folder,
        )
        super().__init__(
            labelled if unlabelled_path is None else _joined(labelled, unlabelled_path, image_extensions, index_folder),
            transform,
            preload_maps=preload_maps,
            preload_images=preload_images,
            prenormalize_images=prenormalize_images,
            image_loading_config=image_loading_config,
            cache_transformed_tensors=cache_transformed_tensors,
            on_bad_sample=on_bad_sample,
            targets=targets,
            maps_folder=maps_folder(labelled.folder) if use_stored_maps else None,
            seed=seed,
            **cache_settings,
        )

    @property
    def folder_source(self) -> FolderSource:
        """The source, for what works on one folder: a ConfigError if there are pages without labels too."""
        source = self.source
        if isinstance(source, FolderSource):
            return source
        assert isinstance(source, JoinedSource)
        raise ConfigError(
            f"unlabelled_path={source.unlabelled.folder}: pages without labels are for training only. Leave "
            "distil.images out here",
            setting="unlabelled_path",
            path=source.unlabelled.folder,
        )


def _joined(
    labelled: FolderSource, path: str | os.PathLike[str], extensions: Iterable[str] | None, index_folder: Path
) -> JoinedSource:
    if not Path(path).is_dir():
        raise ConfigError(
            f"unlabelled_path={path} is not a folder. Set distil.images to a folder of images",
            setting="unlabelled_path",
            path=path,
        )
    return join(labelled, open_folder(path, None, image_extensions=extensions, index_folder=index_folder))


def check_seed_and_targets(seed: object, targets: object) -> None:
    """Raise before anything is read."""
    check_integer("seed", seed)
    if not isinstance(targets, Targets | None):
        raise ConfigError(
            f"targets={targets!r} must be an ocr.pipeline.targets.Targets", setting="targets", value=targets
        )
