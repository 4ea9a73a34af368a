"""DBTransforms: a list of transforms, GlyphFeed's or Albumentations', with one cut in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from omegaconf import OmegaConf

from ocr.datasets.albumentations import CONDITIONAL, TO_FLOAT, is_exactly, is_kind_of, translate
from ocr.errors import ConfigError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.batch import image_tensor
from ocr.pipeline.device import Normalize
from ocr.pipeline.pixels import RandomPixels
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage, RandomStage, Stage, moves_polygons, split_at_cut
from ocr.pipeline.suffix import merge_geometry

if TYPE_CHECKING:
    from ocr.datasets.conditional_normalize import ConditionalNormalize as ConditionalNormalize

NORMALIZE_WHERE = ("host", "device")


class DBTransforms:
    """What happens to a decoded page, in order.

    `transforms` can mix stages of `ocr.pipeline` with Albumentations transforms, except those that need masks or
    metadata. Everything before the first random one is fixed and can be cached. A `Normalize` at the end runs in one
    pass with the conversion to a tensor (`normalize="host"`), or on the model's device, so that images stay uint8
    until then (`normalize="device"`).
    """

    def __init__(self, transforms: Sequence[Any], keypoint_params: Any = None, normalize: str = "host") -> None:
        if normalize not in NORMALIZE_WHERE:
            raise ConfigError(
                f"normalize={normalize!r} must be one of {', '.join(NORMALIZE_WHERE)}",
                setting="normalize",
                value=normalize,
            )
        _refuse_other_points(keypoint_params)
        if not _is_list(transforms):
            raise ConfigError(
                f"transforms={transforms!r} is not a list. Pass a list of transforms, empty for none: []",
                setting="transforms",
                value=transforms,
            )
        steps, self.normalization = _take_normalization(_flatten(transforms))
        self.normalize = normalize
        self.stages: tuple[Stage, ...] = merge_geometry(_as_stages(steps))
        self.fixed, self.random = split_at_cut(self.stages)

    @property
    def host_normalization(self) -> Normalize | None:
        """How an item's image is normalised; None if it stays uint8."""
        return self.normalization if self.normalize == "host" else None

    @property
    def needed_side(self) -> int | None:
        """The longest side that a page must be decoded to; None if the first stage needs all pixels."""
        first = self.stages[0] if self.stages else None
        return first.size if isinstance(first, Letterbox) else None

    @property
    def moves_geometry(self) -> bool:
        """Whether polygons of the same page differ between epochs."""
        return moves_polygons(self.stages)

    def __call__(
        self,
        image: NDArray[np.uint8],
        polygons: Sequence[ArrayLike] | None = None,
        rng: np.random.Generator | None = None,
    ) -> dict[str, Any]:
        """Transform one decoded page: `image` (3, H, W) tensor, `polygons` list of (1, n, 2), `inverse_matrix`."""
        height, width = image.shape[:2]
        packed = Polygons.pack([] if polygons is None else polygons)
        page = Sample(0, "", "", packed, image=image, shape=(width, height), raw_size=(width, height))
        rng = rng if rng is not None else np.random.default_rng()
        for stage in self.stages:
            page = stage.run(page, rng)
        page = page.unpacked()
        return {
            "image": image_tensor(page.image, self.host_normalization),
            "polygons": [polygon[None] for polygon in page.polygons],
            "inverse_matrix": page.inverse_matrix,
        }

    def __repr__(self) -> str:
        steps = [*map(repr, self.fixed), "|", *map(repr, self.random)]
        return " -> ".join([*steps, repr(self.normalization)] if self.normalization else steps)


def as_transforms(value: Any) -> DBTransforms:
    """`DBTransforms` unchanged; a list or an Albumentations `Compose` as `DBTransforms`."""
    if isinstance(value, DBTransforms):
        return value
    if not _is_list(value):
        raise ConfigError(
            f"transform={value!r} is neither DBTransforms, an Albumentations Compose nor a list of transforms. "
            "Pass DBTransforms([]) for none",
            setting="transform",
            value=value,
        )
    return DBTransforms(value)


def _is_list(value: Any) -> bool:
    """Whether it contains transforms: any kind of list, or a `Compose` or `OneOf` of Albumentations."""
    return isinstance(getattr(value, "transforms", value), Sequence) and not isinstance(value, str | bytes)


def _refuse_other_points(keypoint_params: Any) -> None:
    if keypoint_params is None:
        return
    by_name = keypoint_params.get if isinstance(keypoint_params, Mapping) else partial(getattr, keypoint_params)
    if by_name("format", None) != "xy":
        raise ConfigError(
            f"keypoint_params={keypoint_params!r} must have the format 'xy'",
            setting="keypoint_params",
            value=keypoint_params,
        )


def _flatten(transforms: Any) -> list[Any]:
    """Replace an Albumentations `Compose` by its members, all of which run anyway."""
    if OmegaConf.is_config(transforms):
        # Hydra passes a list of dataclasses, such as GlyphFeed's stages, as a config of their fields.
        transforms = OmegaConf.to_object(transforms)
    if isinstance(transforms, Sequence) and not isinstance(transforms, str):
        return [step for member in transforms for step in _flatten(member)]
    if is_exactly(transforms, "Compose") and transforms.p == 1:
        return _flatten(transforms.transforms)
    return [transforms]


def _take_normalization(steps: list[Any]) -> tuple[list[Any], Normalize | None]:
    """Split off a plain normalisation, and the conversion to a tensor, at the end of the list."""
    while steps and is_exactly(steps[-1], "ToTensorV2"):
        steps = steps[:-1]
    if not steps:
        return [], None
    _refuse_pixels_after_normalization(steps)
    *before, last = steps
    # After one of these the page is float already, and GlyphFeed's normalisation would leave it unchanged.
    made_float = next((step for step in before if is_kind_of(step, *TO_FLOAT)), None)
    plain = next((step for step in steps if isinstance(step, Normalize)), None)
    if plain and (made_float or plain is not last):
        raise ConfigError(
            f"transforms: {plain!r} must be the last transform, and the only one that makes floats. Move it to the end",
            setting="transforms",
            value=plain,
        )
    if plain:
        return before, plain
    if made_float is None and _is_plain_normalization(last):
        return before, Normalize(_three(last.mean), _three(last.std), last.max_pixel_value)
    return steps, None


def _refuse_pixels_after_normalization(steps: list[Any]) -> None:
    """Colours of a normalised page have no black and no white that a stage could keep to."""
    is_normalized = False
    for step in steps:
        if is_normalized and isinstance(step, RandomPixels):
            raise ConfigError(
                f"transforms: {step!r} comes after the normalisation, but changes colours from 0 to 1. Move it "
                "before the normalisation",
                setting="transforms",
                value=step,
            )
        is_normalized |= is_kind_of(step, "Normalize", CONDITIONAL)


def _is_plain_normalization(step: Any) -> bool:
    is_known = is_exactly(step, "Normalize", CONDITIONAL)
    return bool(is_known and step.p == 1 and step.normalization == "standard")


def _three(value: Any) -> tuple[float, float, float]:
    values = np.atleast_1d(np.asarray(value, dtype=np.float64)).tolist()
    return tuple(values * 3 if len(values) == 1 else values)


def _as_stages(steps: list[Any]) -> list[Stage]:
    if all(isinstance(step, FixedStage | RandomStage) for step in steps):
        return list(steps)
    return translate(steps)


def __getattr__(name: str) -> Any:
    # Albumentations is imported when this class is first used.
    if name == "ConditionalNormalize":
        return import_module("ocr.datasets.conditional_normalize").ConditionalNormalize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
