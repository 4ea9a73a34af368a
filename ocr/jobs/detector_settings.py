"""The settings of a config that prediction needs, for the checkpoint to carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from omegaconf import DictConfig

from ocr.datasets.build import make
from ocr.datasets.transforms import DBTransforms
from ocr.evaluation.boxes import BoxesFromMap
from ocr.models.settings import DetectorSettings, Provenance, installed_versions
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.targets import Targets


def settings_of(config: DictConfig, architecture: Mapping[str, Any]) -> DetectorSettings | None:
    """All that prediction needs besides the weights.

    None if pages of validation have other stages than a letterbox and a normalisation, which no file can carry.
    """
    page = page_stages(config)
    if page is None:
        return None
    letterbox, normalization = page
    return DetectorSettings(
        architecture=dict(architecture),
        letterbox=asdict(letterbox),
        normalization=asdict(normalization),
        # The units are those of the architecture.
        targets={name: value for name, value in _targets(config).items() if name != "units"},
        boxes=_arguments(make(config.boxes, "boxes"), BoxesFromMap),
        provenance=Provenance(installed_versions(), seed=config.seed),
    )


def page_stages(config: DictConfig) -> tuple[Letterbox, Normalize] | None:
    """How a page of validation is made, if it is with these two only."""
    transform: DBTransforms = make(config.transforms.val_transform, "transforms.val_transform")
    stages, normalization = transform.stages, transform.normalization
    if len(stages) != 1 or not isinstance(stages[0], Letterbox) or normalization is None:
        return None
    return stages[0], normalization


def _targets(config: DictConfig) -> dict[str, Any]:
    return _arguments(make(config.targets, "targets"), Targets)


def _arguments(made: Any, kind: type[Any]) -> dict[str, Any]:
    """Nothing of a class of the user's own, which another installation may not have."""
    return asdict(made) if isinstance(made, kind) else {}
