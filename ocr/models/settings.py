"""DetectorSettings: all that prediction needs besides the weights, as plain JSON that any model file can carry."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Self, TypeVar

from ocr import __version__
from ocr.errors import ConfigError

FORMAT = 1
"""Rises when an older reader would predict something else; keys that it can ignore do not count."""
CHECKPOINT_KEY = "detector"
METADATA_KEY = "glyphfeed"
SQUARE = "square"
PARTS = ("architecture", "letterbox", "normalization", "targets", "boxes")

Part = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the weights come from; None and empty: unknown.

    Nothing here changes a prediction, except that `polygons` of `data` is the default of `Detector`.
    """

    versions: dict[str, str] = field(default_factory=dict)
    data: Part = field(default_factory=dict)
    """Of the training split: `pages`, `fingerprint`, and `polygons`: quad if all labels are quadrilaterals."""
    scores: dict[str, float] = field(default_factory=dict)
    """Of exactly these weights and boxes, on the validation split."""
    steps: int | None = None
    minutes: float | None = None
    seed: int | None = None
    command: str | None = None
    teacher: Part = field(default_factory=dict)
    """Of the detector whose maps were learnt too: `encoder` and `fingerprint`; empty: none."""


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """All that prediction needs besides the weights: each part holds the arguments of one class.

    >>> page = {"size": 960, "shape": "page"}
    >>> settings = DetectorSettings({"encoder": "resnet18"}, letterbox=page, boxes={"thresh": 0.3})
    >>> DetectorSettings.from_json(settings.to_json()) == settings
    True
    >>> settings.page_size, settings.page_shape
    (960, 'page')
    """

    architecture: Part = field(default_factory=dict)
    """Arguments of `TextDetector`."""
    letterbox: Part = field(default_factory=dict)
    """Arguments of `Letterbox`: size, shape, position, fill, interpolation."""
    normalization: Part = field(default_factory=dict)
    """Arguments of `Normalize`: mean, std, max_pixel_value."""
    targets: Part = field(default_factory=dict)
    """Arguments of `Targets`: shrink_ratio and the like."""
    boxes: Part = field(default_factory=dict)
    """Arguments of `BoxesFromMap`."""
    provenance: Provenance = Provenance()

    @property
    def page_size(self) -> int:
        return int(self.letterbox.get("size", 640))

    @property
    def page_shape(self) -> str:
        """square, or page: the page keeps its aspect ratio."""
        return str(self.letterbox.get("shape", SQUARE))

    def build(self, part: str, kind: type[T]) -> T:
        """A dataclass from a part: `build("boxes", BoxesFromMap)`. Arguments that it does not have are ignored."""
        known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
        return kind(**{name: value for name, value in getattr(self, part).items() if name in known})

    def to_dict(self) -> dict[str, Any]:
        """Dicts, lists, strings, numbers and None only."""
        plain: dict[str, Any] = json.loads(json.dumps({"format": FORMAT, **asdict(self)}))
        return plain

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    @property
    def trained_on(self) -> str | None:
        """quad: the labels of the training are quadrilaterals; curved: some have more corners; None: unknown."""
        return self.provenance.data.get("polygons")

    @classmethod
    def from_dict(cls, values: object, source: str = "the file", path: str | os.PathLike[str] | None = None) -> Self:
        """From `to_dict` of this version or a newer one; raises ConfigError if the format is newer."""
        number = values.get("format") if isinstance(values, Mapping) else None
        if not isinstance(number, int):
            raise ConfigError(
                f"{source} has no settings of a detector. Rewrite it with `glyphfeed train` or `glyphfeed export`",
                path=path,
            )
        if number > FORMAT:
            raise ConfigError(
                f"{source} was written by a newer GlyphFeed (format {number}, this version reads {FORMAT}). "
                "Update GlyphFeed: pip install -U glyphfeed",
                setting="format",
                value=number,
                path=path,
            )
        return validated(cls, values, source, path)

    @classmethod
    def from_json(cls, text: str, source: str = "the file", path: str | os.PathLike[str] | None = None) -> Self:
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(
                f"{source} has settings that are not JSON ({error}). Rewrite it with `glyphfeed export`",
                path=path,
            ) from error
        return cls.from_dict(values, source, path)


def validated(kind: type[T], values: object, source: str, path: str | os.PathLike[str] | None) -> T:
    """A dataclass of values that were read back from a file; entries of newer versions are ignored."""
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        setting = str(first["loc"][0]) if first["loc"] else None
        value = values.get(setting) if isinstance(values, Mapping) else values
        raise ConfigError(
            f"{source}: {setting}={value!r:.80}: {first['msg']}. Rewrite it with `glyphfeed export`",
            setting=setting,
            value=value,
            path=path,
        ) from error


def installed_versions() -> dict[str, str]:
    """Of the libraries that the weights and their predictions depend on."""
    versions = {"glyphfeed": __version__}
    for name in ("torch", "timm"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # A build of one's own.
            continue
    return versions
