"""The cut: where the fixed stages end, and how much of what they make is kept."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from ocr.checks import check_choice
from ocr.errors import ConfigError
from ocr.pipeline.stage import FixedStage, RandomStage, Stage

log = logging.getLogger(__name__)
CACHE_SETTINGS = ("auto", "prefix", "batch", "off")


@dataclass(frozen=True, slots=True)
class Cut:
    """What is kept of a sample."""

    page: bool = False
    maps: bool = False
    normalized: bool = False
    """The page is kept as floats, as the batch needs it."""
    dense: bool = False
    """The page is kept compressed, without its border; maps and floats are made on the way to the batch."""

    def __bool__(self) -> bool:
        return self.page or self.maps

    def __str__(self) -> str:
        page = "dense page" if self.dense else "float page" if self.normalized else "page"
        kept = [page] * self.page + ["maps"] * self.maps
        return " + ".join(kept) or "off"


@dataclass(frozen=True, slots=True)
class CutSettings:
    """What a user asks to keep; each setting adds to the others."""

    cache: str = "off"
    preload_maps: bool = False
    preload_images: bool = False
    prenormalize_images: bool = False
    cache_transformed_tensors: bool = False
    preload_everything: bool = False
    """Preload pages, and maps too unless the transforms move polygons."""

    @property
    def preloads(self) -> bool:
        """Whether the cache is filled before the first epoch."""
        return self.preload_maps or self.preload_images or self.prenormalize_images or self.preload_everything


def split_at_cut(stages: Sequence[Stage]) -> tuple[tuple[FixedStage, ...], tuple[Stage, ...]]:
    """Split into the longest fixed prefix and the rest."""
    fixed = tuple(takewhile(lambda stage: isinstance(stage, FixedStage), stages))
    return fixed, tuple(stages[len(fixed) :])  # type: ignore[return-value]


def moves_polygons(stages: Sequence[Stage]) -> bool:
    """Whether polygons of the same page differ between epochs, and so do their maps."""
    return any(isinstance(stage, RandomStage) and stage.moves_geometry for stage in stages)


def refuse_random(stages: Sequence[Stage], setting: str, value: str | bool) -> None:
    """Raise if a setting would freeze the output of a random stage."""
    for stage in stages:
        if isinstance(stage, RandomStage):
            shown = "true" if value is True else value
            raise ConfigError(
                f"{setting}={shown}, but {stage!r} is random: every epoch would repeat the first one. Cache the fixed "
                "prefix instead: data.cache=prefix",
                setting=setting,
                value=value,
            )


def choose_cut(stages: Sequence[Stage], settings: CutSettings, normalizes_on_host: bool) -> Cut:
    """What to keep of a sample; a ConfigError if that would freeze something random."""
    cache = settings.cache or "off"  # YAML reads a bare `off` as false.
    check_choice("data.cache", cache, CACHE_SETTINGS)
    _refuse_impossible(stages, settings, normalizes_on_host)
    maps_are_fixed = not moves_polygons(stages)
    everything_is_fixed = not any(isinstance(stage, RandomStage) for stage in stages)
    if settings.cache_transformed_tensors or cache == "batch" or (cache == "auto" and everything_is_fixed):
        return Cut(page=True, maps=True, normalized=normalizes_on_host)
    if settings.preload_everything and not maps_are_fixed:
        log.warning("preload_everything=true: pages are preloaded, but not maps, because the transforms move polygons")
    return Cut(
        page=cache != "off" or settings.preload_images or settings.prenormalize_images or settings.preload_everything,
        maps=settings.preload_maps or (maps_are_fixed and (cache == "auto" or settings.preload_everything)),
        normalized=settings.prenormalize_images,
    )


def _refuse_impossible(stages: Sequence[Stage], settings: CutSettings, normalizes_on_host: bool) -> None:
    if settings.cache_transformed_tensors:
        refuse_random(stages, "cache_transformed_tensors", True)
    if settings.prenormalize_images:
        refuse_random(stages, "prenormalize_images", True)
    if settings.cache == "batch":
        refuse_random(stages, "data.cache", "batch")
    if settings.preload_maps and moves_polygons(stages):
        raise ConfigError(
            "preload_maps=true, but the transforms move polygons: every epoch has other maps. Set preload_maps=false",
            setting="preload_maps",
            value=True,
        )
    if settings.prenormalize_images and not normalizes_on_host:
        raise ConfigError(
            "prenormalize_images=true, but the transforms do not end with Normalize. Add it, or set "
            "prenormalize_images=false",
            setting="prenormalize_images",
            value=True,
        )
    if settings.prenormalize_images:
        log.warning("prenormalize_images=true keeps pages as floats: 4 x the memory of the same pages as bytes")
