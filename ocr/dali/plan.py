"""What DALI does of a dataset's path, and what each page asks of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError
from ocr.pipeline.pixels import LEAST_SIGMA, ColourJitter, JpegNoise, RandomBlur
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import Stage
from ocr.pipeline.suffix import RandomWindow, Warp, Window

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
# DALI decodes pages whole and all of a batch at once: 16 pages of this size are 768 MB.
LARGEST_PIXELS = 16_000_000
HALVINGS = 3
"""By 2, 4 or 8, as our own decoder reduces a JPEG."""
Inputs = dict[str, NDArray[Any]]

# What a stage that changes colours alone does to these tells its matrix.
_PROBE = np.vstack([np.zeros(3), 255 * np.eye(3)])[None].astype(np.float32)
# DALI counts from the corner of the first pixel, we from its centre.
_TO_CORNER = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])


@dataclass(frozen=True)
class Plan:
    """The stages of a path: those that DALI runs, and the rest, which the host runs behind it."""

    letterbox: Letterbox
    geometry: tuple[Stage, ...]
    colours: tuple[Stage, ...]
    rest: tuple[Stage, ...]

    @property
    def side(self) -> int:
        """Side of the square that DALI gives."""
        side = self.letterbox.size
        for stage in self.geometry:
            if isinstance(stage, Warp):
                side = stage.size or side
            elif isinstance(stage, RandomWindow):
                side = min(side, stage.size)
        return side


def divide(stages: tuple[Stage, ...], random_too: bool) -> Plan:
    """Give DALI the letterbox, and of the random stages as many as it has operators for, where it is to run them."""
    first = stages[0] if stages else None
    if not isinstance(first, Letterbox):
        raise ConfigError(
            f"use_dali=true, but the transforms begin with {first!r}: DALI makes batches of one size, so a Letterbox "
            "must come first. Put one there, or set use_dali=false"
        )
    if first.interpolation != "linear":
        raise ConfigError(
            f"use_dali=true, but {first!r} is not linear, and DALI's {first.interpolation} gives other pixels. "
            "Set transforms.letterbox.interpolation=linear, or use_dali=false"
        )
    behind = stages[1:] if random_too else ()
    # One warp, for the window of a second one would be cut from its pixels, not from the page's.
    geometry = behind[: int(isinstance(behind[0], Warp))] if behind else ()
    geometry += tuple(takewhile(lambda stage: isinstance(stage, RandomWindow), behind[len(geometry) :][:1]))
    colours = tuple(takewhile(lambda stage: type(stage) in DRAWN, behind[len(geometry) :]))
    return Plan(first, geometry, colours, stages[1 + len(geometry) + len(colours) :])


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One page on its way through DALI."""

    sample: Sample
    """Everything but the pixels, as after the stages that DALI runs."""
    rng: np.random.Generator
    """Where the stages behind DALI go on."""
    inputs: Inputs


class Clerk:
    """Reads pages and writes down what each asks of DALI."""

    def __init__(self, dataset: Any, plan: Plan) -> None:
        self.dataset, self.plan = dataset, plan
        self.refused: set[int] = set()
        """Pages that DALI could not decode."""

    def request(self, index: int) -> Request:
        """Read a page; one that DALI cannot decode, or should not, is decoded here and goes in as plain pixels."""
        dataset, box = self.dataset, self.plan.letterbox
        raw: Sample = dataset.source.read(index)
        why_not = self._why_not(raw)
        page: Sample = dataset.decode.measure(raw) if why_not is None else dataset.decode(raw)
        if why_not is None and page.raw_size[0] * page.raw_size[1] > LARGEST_PIXELS:
            page, why_not = dataset.decode(raw), ""
        sample = box(page)
        if why_not is None:
            inputs = _as_encoded(raw.encoded, sample, box.size, dataset.decode.scaled == "auto")
        else:
            inputs = _as_pixels(sample.image)
            sample = replace(sample, recovered=sample.recovered or why_not)
        rng = sample_generator(dataset.seed, dataset.epoch, dataset.source.number(index))
        sample = replace(sample, image=_ghost(box.size))
        return self._draw(sample, rng, inputs)

    def _why_not(self, raw: Sample) -> str | None:
        if raw.index in self.refused:
            return "DALI refused it"
        return None if raw.encoded.startswith((JPEG, PNG)) else "neither JPEG nor PNG"

    def _draw(self, sample: Sample, rng: np.random.Generator, inputs: Inputs) -> Request:
        """Draw what the random stages of DALI do to a page."""
        side = self.plan.letterbox.size
        corner = inputs.pop("corner")
        window, moved = Window(0, 0, side, side), sample
        for stage in self.plan.geometry:
            if isinstance(stage, Warp) and stage.crop is not None:
                # The draw that the warp itself is about to make.
                window = stage.crop.choose(sample.polygons, side, side, copy.deepcopy(rng)) or window
            moved = stage(moved, rng)  # type: ignore[call-arg]
        inputs["start"] = np.array([window.top, window.left], dtype=np.int32) - corner
        inputs["shape"] = np.array([window.bottom - window.top, window.right - window.left], dtype=np.int32)
        if self.plan.geometry:
            total = np.linalg.inv(moved.inverse_matrix) @ sample.inverse_matrix
            from_window = total @ np.array([[1.0, 0, window.left], [0, 1, window.top], [0, 0, 1]])
            inputs["matrix"] = (_TO_CORNER @ from_window @ np.linalg.inv(_TO_CORNER))[:2].astype(np.float32)
        for number, stage in enumerate(self.plan.colours):
            drawn = DRAWN[type(stage)](stage, rng)
            inputs |= {f"{name}_{number}": value for name, value in drawn.items()}
        return Request(replace(moved, image=_ghost(self.plan.side)), rng, inputs)


def _as_encoded(encoded: bytes, sample: Sample, side: int, reduced: bool) -> Inputs:
    """A page that DALI decodes, in the frame of its file, and turns upright when it is small."""
    scale = side / max(sample.shape)
    width, height = (max(1, round(length * scale)) for length in sample.shape)
    turned = sample.orientation >= 5
    raw_width, raw_height = sample.raw_size
    divisors = [2**level for level in range(1, HALVINGS + 1)]
    jpeg = reduced and encoded.startswith(JPEG)
    halves = {
        f"half_{number}": np.array(
            [max(1, round(raw_height / divisor)), max(1, round(raw_width / divisor))], dtype=np.float32
        )
        for number, divisor in enumerate(divisors)
    }
    return {
        "encoded": np.frombuffer(encoded, dtype=np.uint8),
        "halvings": np.array(
            sum(jpeg and max(sample.raw_size) >= divisor * side for divisor in divisors), dtype=np.int32
        ),
        **halves,
        "size": np.array([width, height] if turned else [height, width], dtype=np.float32),
        "turned": np.array(turned, dtype=np.bool_),
        "flip_x": np.array(sample.orientation in (2, 3, 6, 7), dtype=np.int32),
        "flip_y": np.array(sample.orientation in (3, 4, 7, 8), dtype=np.int32),
        "corner": np.rint(np.linalg.inv(sample.inverse_matrix)[1::-1, 2]).astype(np.int32),
    }


def _as_pixels(image: NDArray[np.uint8]) -> Inputs:
    """A letterboxed page as a plain PPM, whose decoding is a copy."""
    height, width = image.shape[:2]
    size = np.array([height, width], dtype=np.float32)
    encoded = b"P6 %d %d 255\n" % (width, height) + image.tobytes()
    return {
        "encoded": np.frombuffer(encoded, dtype=np.uint8),
        "halvings": np.array(0, dtype=np.int32),
        **{f"half_{number}": size for number in range(HALVINGS)},
        "size": size,
        "turned": np.array(False, dtype=np.bool_),
        "flip_x": np.array(0, dtype=np.int32),
        "flip_y": np.array(0, dtype=np.int32),
        "corner": np.zeros(2, dtype=np.int32),
    }


def _ghost(side: int) -> NDArray[np.uint8]:
    """A page of this size in a single byte: stages that only move polygons need no more."""
    return np.broadcast_to(np.zeros((), dtype=np.uint8), (side, side))


def _draw_colours(stage: ColourJitter, rng: np.random.Generator) -> Inputs:
    nothing = Sample(0, "", "", None, image=_PROBE)  # type: ignore[arg-type]
    shown = stage(nothing, rng)
    shift, *columns = shown.image[0]
    matrix = np.ascontiguousarray((np.array(columns) - shift).T / 255, dtype=np.float32)
    return {"on": np.array(shown is not nothing, dtype=np.bool_), "matrix": matrix, "shift": shift}


def _draw_blur(stage: RandomBlur, rng: np.random.Generator) -> Inputs:
    on = rng.random() < stage.p
    sigma = rng.uniform(LEAST_SIGMA, stage.sigma) if on else LEAST_SIGMA
    # As far as OpenCV looks for 8-bit pixels.
    window = round(sigma * 6 + 1) | 1
    return {
        "on": np.array(on, dtype=np.bool_),
        "sigma": np.array([sigma], dtype=np.float32),
        "window": np.array([window], dtype=np.int32),
    }


def _draw_quality(stage: JpegNoise, rng: np.random.Generator) -> Inputs:
    on = rng.random() < stage.p
    quality = rng.integers(stage.worst, stage.best + 1) if on else stage.best
    return {"on": np.array(on, dtype=np.bool_), "quality": np.array(quality, dtype=np.int32)}


DRAWN: dict[type, Callable[[Any, np.random.Generator], Inputs]] = {
    ColourJitter: _draw_colours,
    RandomBlur: _draw_blur,
    JpegNoise: _draw_quality,
}
"""The stages of colours that DALI has an operator for, each with its draw."""
