"""Model files: which runtime a file is for, and what its metadata says about the detector in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ocr.errors import ConfigError
from ocr.evaluation.boxes import BoxesFromMap
from ocr.models.settings import METADATA_KEY, DetectorSettings, validated
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox

EXPORT_KEY = f"{METADATA_KEY}.export"
"""Next to the settings in the metadata: format, precision, versions and the check."""
NAMES = {
    "onnx": "model.onnx",
    "openvino": "model.xml",
    "torchscript": "model.torchscript",
    "tensorrt": "model.engine",
}
"""File that each format has in the folder of an export."""
CHECKPOINTS = (".ckpt", ".safetensors")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the metadata of a model file says."""

    settings: DetectorSettings
    format: str = "torch"
    precision: str = "fp32"
    check: dict[str, Any] = field(default_factory=dict)
    """Of the export, as it was printed: speed and boxes compared with the checkpoint."""
    versions: dict[str, str] = field(default_factory=dict)

    def to_metadata(self) -> dict[str, str]:
        """Two strings, for any file that stores pairs of strings."""
        export = {name: getattr(self, name) for name in ("format", "precision", "check", "versions")}
        return {METADATA_KEY: self.settings.to_json(), EXPORT_KEY: json.dumps(export)}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str], source: str) -> ModelInfo:
        """Raises ConfigError if `glyphfeed export` did not write the file, or a newer version did."""
        if METADATA_KEY not in metadata or EXPORT_KEY not in metadata:
            raise ConfigError(
                f"{source} has no metadata of GlyphFeed. Write it with: glyphfeed export MODEL --to FORMAT", path=source
            )
        settings = DetectorSettings.from_json(metadata[METADATA_KEY], source, source)
        try:
            export = {**json.loads(metadata[EXPORT_KEY])}
        except (ValueError, TypeError, RecursionError) as error:
            raise ConfigError(
                f"{source} has damaged metadata ({error!r}). Export it again", setting=EXPORT_KEY, path=source
            ) from error
        info = validated(cls, export | {"settings": settings}, source, source)
        check_settings(settings, source)
        return info


def check_settings(settings: DetectorSettings, source: str) -> None:
    """Raise ConfigError, which names the file, if a part of its settings cannot be used."""
    kinds: dict[str, type] = {"letterbox": Letterbox, "normalization": Normalize, "boxes": BoxesFromMap}
    for part, kind in kinds.items():
        try:
            settings.build(part, kind)
        except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise ConfigError(
                f"{source}: its settings of {part} cannot be used ({error}). Export it again", setting=part, path=source
            ) from error


def find_model(path: str | Path) -> Path:
    """The model file itself: of a folder that `glyphfeed export` wrote, the one in it."""
    path = Path(path)
    if path.is_dir():
        found = [path / name for name in NAMES.values() if (path / name).is_file()]
        if len(found) != 1:
            what = " and ".join(file.name for file in found) or "no model"
            raise ConfigError(
                f"{path} holds {what}. Pass one of {', '.join(NAMES.values())}, or the folder of one export",
                value=[file.name for file in found],
                path=path,
            )
        return found[0]
    if not path.is_file():
        raise ConfigError(
            f"{path} is not a file or folder. Pass a checkpoint, or what `glyphfeed export` wrote", path=path
        )
    return path


def format_of(path: Path) -> str:
    """The format of a model file by its name; "torch" for a checkpoint."""
    if path.suffix in CHECKPOINTS:
        return "torch"
    for name, file in NAMES.items():
        if path.suffix == Path(file).suffix:
            return name
    known = ", ".join([*CHECKPOINTS, *(Path(file).suffix for file in NAMES.values())])
    raise ConfigError(
        f"{path}: {path.suffix or 'no suffix'} is not a known kind of model ({known})",
        value=path.suffix,
        path=path,
    )
