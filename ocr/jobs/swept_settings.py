"""What a sweep found best becomes part of the detector file, which then predicts with it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from omegaconf import DictConfig

from ocr.datasets.build import make
from ocr.errors import ConfigError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.jobs.detector_settings import settings_of
from ocr.jobs.stored_settings import chosen_file, read_chosen
from ocr.models.load import read_detector, write_settings
from ocr.models.packaged import PACKAGED
from ocr.models.settings import PARTS, DetectorSettings

FLAG = "--keep-original"


def original_of(path: Path) -> Path:
    """Where the file from before the sweep is kept: best.original.ckpt."""
    return path.with_name(f"{path.stem}.original{path.suffix}")


def refuse_to_replace(config: DictConfig) -> None:
    """Before the sweep: an original that is kept already must not be lost."""
    chosen = chosen_file(config)
    if chosen is None or not config.keep_original:
        return
    if (original := original_of(chosen[0])).exists():
        raise ConfigError(
            f"{FLAG}: {original} exists, and would be replaced. Move it, or sweep without {FLAG}",
            setting=FLAG,
            path=original,
        )


def boxes_of_file(config: DictConfig) -> BoxesFromMap | None:
    """The boxes that the detector file has, whatever the command line says; None if it is older than its settings."""
    stored = read_chosen(config)
    return None if stored is None or stored.settings is None else stored.settings.build("boxes", BoxesFromMap)


def write_boxes(
    config: DictConfig, boxes: BoxesFromMap, scores: dict[str, float], own: dict[str, float] | None
) -> str | None:
    """Write what was scored into the detector file; returns one line about it, or None if the file cannot carry it.

    `own` are the scores of the boxes that the file has: if they are as good, nothing is written. Everything else in
    the file stays as it is. Settings of the command line that changed the maps are written too: the boxes are the best
    for them.
    """
    chosen = chosen_file(config)
    if chosen is None or chosen[0] == PACKAGED:
        return None
    path, setting = chosen
    if own is not None and sum(scores.values()) <= sum(own.values()):
        return f"{path} stays as it is: its own boxes have H-means of {own['hmean']:.4f} and {own['hmean_70']:.4f}"
    stored = read_detector(path, setting)
    architecture = stored.architecture or make(config.model, "model").architecture
    found = settings_of(config, architecture)
    if found is None:
        return None
    before = stored.settings or found
    provenance = replace(before.provenance, scores=scores)
    after = replace(found, boxes=asdict(boxes), provenance=provenance)
    write_settings(path, after, original_of(path) if config.keep_original else None)
    kept = f"; as it was: {original_of(path)}" if config.keep_original else ""
    return f"written into {path}: {_differences(before, after)}{kept}"


def _differences(before: DetectorSettings, after: DetectorSettings) -> str:
    old, new = before.to_dict(), after.to_dict()
    changed = [
        f"{part}.{name}={value} (was {old[part].get(name)})"
        for part in PARTS
        for name, value in new[part].items()
        if old[part].get(name) != value
    ]
    return ", ".join(changed) or "the same settings"
