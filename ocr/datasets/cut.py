"""How much of a dataset's samples is kept, from its settings and from where randomness begins."""

from __future__ import annotations

import logging

from ocr.datasets.transforms import DBTransforms
from ocr.errors import ConfigError, near_names
from ocr.pipeline.record import Cut
from ocr.pipeline.stage import refuse_random

log = logging.getLogger(__name__)
WAYS = ("auto", "prefix", "batch", "off")
CACHE_THE_PREFIX = "Cache the fixed prefix instead: data.cache=prefix"


def choose_cut(
    transform: DBTransforms,
    cache: str,
    preload_maps: bool,
    preload_images: bool,
    prenormalize_images: bool,
    cache_transformed_tensors: bool,
) -> Cut:
    """What to keep; a ConfigError where that would freeze something random."""
    cache = cache or "off"  # YAML reads a bare `off` as false.
    if cache not in WAYS:
        raise ConfigError(f"data.cache={cache!r}: {near_names(str(cache), list(WAYS))}")
    for setting, wanted in (
        ("cache_transformed_tensors=true", cache_transformed_tensors),
        ("prenormalize_images=true", prenormalize_images),
        ("data.cache=batch", cache == "batch"),
    ):
        if wanted:
            refuse_random(transform.stages, setting, CACHE_THE_PREFIX)
    if preload_maps and transform.moves_geometry:
        raise ConfigError(
            "preload_maps=true, but the transforms move polygons: every epoch has other maps. Set preload_maps=false"
        )
    if prenormalize_images and transform.host_normalization is None:
        raise ConfigError(
            "prenormalize_images=true, but normalize=device leaves images uint8 until the device. Drop one, or set "
            "transforms.normalize=host"
        )
    if prenormalize_images:
        log.warning("prenormalize_images=true keeps pages as floats: 4 x the memory of the same pages as bytes")
    on_host = transform.host_normalization is not None
    if cache_transformed_tensors or cache == "batch" or (cache == "auto" and not transform.random):
        return Cut(page=True, maps=True, normalized=on_host)
    return Cut(
        page=cache != "off" or preload_images or prenormalize_images,
        # Where no random stage moves polygons, maps are as fixed as the page.
        maps=preload_maps or (cache == "auto" and not transform.moves_geometry),
        normalized=prenormalize_images,
    )
