"""Albumentations transforms as stages: letterboxing becomes GlyphFeed's own stage, the others run as they are.

Nothing here imports Albumentations before a list of transforms has one of its own.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, ClassVar

import cv2
import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.geometry.polygons import move_points
from ocr.optional import require
from ocr.pipeline.prefix import POSITIONS, Letterbox
from ocr.pipeline.sample import PageView, Sample
from ocr.pipeline.stage import FixedStage, RandomStage, Stage
from ocr.pipeline.timing import timed

PURPOSE = "A transform of another library in the list"
CONDITIONAL = "ConditionalNormalize"
_HOMES = {CONDITIONAL: "ocr.datasets.conditional_normalize"}
# With p = 1 and single values for their ranges these draw nothing at random.
_FIXED = frozenset(
    {"CenterCrop", "Crop", "Equalize", "HorizontalFlip", "InvertImg", "LongestMaxSize", "NoOp", "Normalize"}
    | {"Pad", "PadIfNeeded", "Resize", "SmallestMaxSize", "ToFloat", "ToGray", "ToRGB", "Transpose"}
    | {"VerticalFlip"}
)
TO_FLOAT = ("Normalize", "ToFloat")
# These need the boxes of words, but do not list them in `targets_as_params`.
_AROUND_BOXES = ("BBoxSafeRandomCrop", "RandomSizedBBoxSafeCrop", "AtLeastOneBBoxRandomCrop")
# These need what a page does not have, and do not list it either.
_NEEDS = {
    "ConstrainedCoarseDropout": "mask or labelled bboxes",
    "CropNonEmptyMaskIfExists": "mask",
    "Transform3D": "volume",
}
_PROVIDED = {"image", "bboxes", "keypoints"}
_INTERPOLATIONS = {cv2.INTER_LINEAR: "linear", cv2.INTER_CUBIC: "cubic", cv2.INTER_AREA: "area"}
# The matrix is fitted to where these points go; more than the four needed show whether there is a matrix at all.
_GRID = np.stack(np.meshgrid([0.1, 0.5, 0.9], [0.1, 0.5, 0.9]), axis=-1).reshape(-1, 2)


def translate(steps: list[Any]) -> list[Stage]:
    """Stages for a list that holds Albumentations transforms; letterboxing becomes GlyphFeed's own."""
    albumentations = require("albumentations", PURPOSE)
    stages: list[Any] = []
    for step in steps:
        if not isinstance(step, FixedStage | RandomStage | albumentations.BasicTransform | albumentations.BaseCompose):
            raise ConfigError(
                f"transforms: {step!r} is neither a stage of ocr.pipeline nor an Albumentations transform. Remove it",
                setting="transforms",
                value=step,
            )
        box = _as_letterbox(stages[-1], step) if stages else None
        stages[-1:] = [box] if box else [*stages[-1:], step]
    translated: list[Stage] = []
    for kind, run in groupby(stages, key=_kind):
        members = tuple(run)
        if kind == "stage":
            translated.extend(members)
        else:
            translated.append(RandomAlbumentations(members) if kind == "random" else FixedAlbumentations(members))
    return translated


def _kind(step: Any) -> str:
    if isinstance(step, FixedStage | RandomStage):
        return "stage"
    if not is_fixed(step):
        return "random"
    # In a stage of their own: what is before them is cached.
    return "floats" if is_kind_of(step, *TO_FLOAT) else "bytes"


def is_fixed(step: Any) -> bool:
    """Whether an Albumentations transform gives the same result every time."""
    # A subclass, or a namesake, can do anything.
    if not is_exactly(step, *_FIXED, CONDITIONAL) or step.p != 1:
        return False
    if isinstance(getattr(step, "max_size", None), Sequence):
        return False
    return "random" not in (getattr(step, "position", None), getattr(step, "pad_position", None))


def _as_letterbox(resize: Any, pad: Any) -> Letterbox | None:
    """`LongestMaxSize(n)` followed by `PadIfNeeded(n, n)` as a letterbox; None if either has an unusual setting."""
    if not is_exactly(resize, "LongestMaxSize") or not is_exactly(pad, "PadIfNeeded"):
        return None
    size, fill = resize.max_size, np.unique(pad.fill)
    interpolation = _INTERPOLATIONS.get(cv2.INTER_AREA if resize.area_for_downscale else resize.interpolation)
    usual = (
        is_fixed(resize)
        and is_fixed(pad)
        and isinstance(size, int)
        and (pad.min_height, pad.min_width) == (size, size)
        and pad.border_mode == cv2.BORDER_CONSTANT
        and str(pad.position) in POSITIONS
        and len(fill) == 1
        and 0 <= fill[0] <= 255
        and float(fill[0]).is_integer()
        and interpolation is not None
        # Albumentations also enlarges with INTER_AREA, Letterbox with linear interpolation.
        and (interpolation != "area" or (resize.area_for_downscale and resize.interpolation == cv2.INTER_LINEAR))
    )
    return Letterbox(size, str(pad.position), int(fill[0]), interpolation or "linear") if usual else None


class _Composed:
    """A run of Albumentations transforms, one copy per thread because they keep state between calls."""

    def __init__(self, transforms: tuple[Any, ...]) -> None:
        image_only = require("albumentations", PURPOSE).ImageOnlyTransform
        for member in _members(transforms):
            _refuse_unprovided(member)
        self.transforms = transforms
        self.around_boxes = any(is_kind_of(member, *_AROUND_BOXES) for member in _members(transforms))
        self.moves_geometry = not all(isinstance(member, image_only) for member in _members(transforms))
        self._local = threading.local()

    def __repr__(self) -> str:
        return " -> ".join(repr(transform).replace("\n", " ") for transform in self.transforms)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _local=threading.local())

    def _transform(self, sample: Sample, seed: int) -> Sample:
        if not self.moves_geometry:
            return replace(sample, image=self._compose(seed)(image=sample.image)["image"])
        vertices = sample.polygons.vertices
        points = np.concatenate([vertices, _GRID * (sample.width, sample.height)], dtype=np.float32)
        boxes = {"bboxes": _boxes(sample)} if self.around_boxes else {}
        image, numbers, moved = _move(self._compose(seed), sample.image, points, **boxes)
        if len(np.unique(numbers)) < len(numbers):
            # A reflecting border repeats every point, in no reliable order; a plain border moves them the same way.
            _, numbers, moved = _move(self._compose(seed, plain_border=True), sample.image, points, **boxes)
        probes = numbers >= len(vertices)
        if probes.sum() < 4:
            raise ConfigError(
                f"transforms: {self!r} loses the points of the page, so polygons cannot follow it. Remove it",
                setting="transforms",
                value=self.transforms,
            )
        matrix = _fit(points[numbers[probes]].astype(np.float64), moved[probes].astype(np.float64))
        # A transform that bends lines can lose vertices: the matrix places these.
        followed = move_points(vertices, matrix)
        followed[numbers[~probes]] = moved[~probes]
        polygons = replace(sample.polygons, vertices=followed)
        polygons = polygons.select(polygons.on_page(image.shape[1], image.shape[0]))
        return replace(sample, polygons=polygons).placed(image, matrix)

    def _compose(self, seed: int, plain_border: bool = False) -> Any:
        name = "plain" if plain_border else "given"
        if not hasattr(self._local, name):
            albumentations = require("albumentations", PURPOSE)
            copies = copy.deepcopy(list(self.transforms))
            for member in _members(copies):
                member.apply_with_params = _timed(member)
                if plain_border and hasattr(member, "border_mode"):
                    member.border_mode = cv2.BORDER_CONSTANT
            points = albumentations.KeypointParams(format="xy", remove_invisible=False)
            boxes = albumentations.BboxParams(format="pascal_voc", clip=True) if self.around_boxes else None
            composed = albumentations.Compose(
                copies, bbox_params=boxes, keypoint_params=points if self.moves_geometry else None
            )
            setattr(self._local, name, composed)
        compose = getattr(self._local, name)
        compose.set_random_seed(seed)
        return compose


class FixedAlbumentations(_Composed, FixedStage):
    """Transforms that draw nothing at random."""

    def __init__(self, transforms: tuple[Any, ...]) -> None:
        super().__init__(transforms)
        self.makes_floats = any(is_kind_of(one, *TO_FLOAT) for one in transforms)

    def fingerprint_parts(self) -> list[Any]:
        """Classes and parameters. The rest of their state are random generators, which fixed ones never use."""
        # Albumentations lists parameters in no reliable order.
        return [(type(one), sorted(one.get_transform_init_args().items())) for one in self.transforms]

    def __call__(self, sample: Sample) -> Sample:
        return self._transform(sample, 0)


class RandomAlbumentations(_Composed, RandomStage):
    """Any other transforms, seeded from the sample's generator."""

    follows_matrix: ClassVar[bool] = False
    """Some bend lines, and then the matrix is only near."""

    def draw(self, rng: np.random.Generator, page: PageView) -> int:
        """The seed of Albumentations' own generators."""
        return int(rng.integers(2**31))

    def apply(self, sample: Sample, parameters: int) -> Sample:
        return self._transform(sample, parameters)


def _timed(member: Any) -> Callable[..., Any]:
    """What a transform does to its inputs, as a stage of its own for `ocr.pipeline.timing`."""
    apply, name = member.apply_with_params, type(member).__name__

    def run(*given: Any, **named: Any) -> Any:
        with timed(name):
            return apply(*given, **named)

    return run


def _members(transforms: Sequence[Any]) -> Iterator[Any]:
    """The transforms themselves, taken out of any `OneOf` or `Sequential`."""
    container = require("albumentations", PURPOSE).BaseCompose
    for transform in transforms:
        yield from _members(transform.transforms) if isinstance(transform, container) else [transform]


def _refuse_unprovided(member: Any) -> None:
    needs = sorted(set(member.targets_as_params) - _PROVIDED)
    needs += [what for name, what in _NEEDS.items() if is_kind_of(member, name)]
    if needs:
        raise ConfigError(
            f"transforms: {member!r} needs {', '.join(needs)}, but a page has only its image and polygons. Remove it",
            setting="transforms",
            value=member,
        )


def _boxes(sample: Sample) -> NDArray[np.float32]:
    """(P, 4) pascal_voc boxes of the words on the page that are not ignored."""
    polygons = sample.polygons
    shown = polygons.select(polygons.on_page(sample.width, sample.height) & ~polygons.ignore)
    # Vertices are pixel centres and a box has edges; Albumentations truncates to whole pixels, so add one more.
    room = np.array([-1, -1, 2, 2], dtype=np.float32)
    boxes: NDArray[np.float32] = np.clip(shown.bounds + room, 0, [sample.width, sample.height] * 2)
    return boxes.astype(np.float32)


def _move(
    compose: Any, image: NDArray[Any], points: NDArray[np.float32], **boxes: NDArray[np.float32]
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float32]]:
    """The image, and the points that are left with the numbers they were given."""
    numbered = np.column_stack([points, np.arange(len(points), dtype=np.float32)])
    result = compose(image=image, keypoints=numbered, **boxes)
    moved = np.asarray(result["keypoints"], dtype=np.float32).reshape(-1, 3)
    return result["image"], moved[:, 2].astype(np.int64), moved[:, :2]


def _fit(before: NDArray[np.float64], after: NDArray[np.float64]) -> NDArray[np.float64]:
    """The matrix that moved the probes: affine if one fits, else the nearest homography."""
    design = np.column_stack([before, np.ones(len(before))])
    affine, *_ = np.linalg.lstsq(design, after, rcond=None)
    if np.abs(design @ affine - after).max() < 0.01:
        return np.vstack([affine.T, [0, 0, 1]])
    # Only random transforms bend lines, so the inverse matrix of a validation page is always exact.
    homography: Any = cv2.findHomography(before, after)[0]
    return np.vstack([affine.T, [0, 0, 1]]) if homography is None else np.asarray(homography, dtype=np.float64)


def is_exactly(step: object, *names: str) -> bool:
    """Whether a transform is an instance of one of these classes, and not of a subclass."""
    return any(type(step) is _class(name) for name in names)


def is_kind_of(step: object, *names: str) -> bool:
    """Whether a transform is an instance of one of these classes or of a subclass."""
    return any(isinstance(step, kind) for name in names if (kind := _class(name)) is not None)


def _class(name: str) -> Any:
    """A class of Albumentations, or GlyphFeed's that extends one; None until it is imported, so without instances."""
    return getattr(sys.modules.get(_HOMES.get(name, "albumentations")), name, None)
