"""What each page asks of DALI: its bytes, and as inputs of the operators the parameters that the stages draw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.dali.plan import COLOURS, Plan
from ocr.dali.protocol import DecodablePages
from ocr.pipeline.pixels import MIN_SIGMA, ColourJitter, Colours, RandomBlur
from ocr.pipeline.placement import Window
from ocr.pipeline.rng import sample_generator
from ocr.pipeline.sample import NO_IMAGE, Sample
from ocr.pipeline.sampling import without_pixels
from ocr.pipeline.suffix import Warp

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
# DALI decodes whole pages, and all pages of a batch at once: 16 pages of this size are 768 MB.
MAX_PIXELS = 16_000_000
HALVINGS = 3
"""By 2, 4 or 8, as our own decoder reduces a JPEG."""
Inputs = dict[str, NDArray[Any]]

# DALI counts from the corner of the first pixel, we from its centre.
_TO_CORNER = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One page on its way through DALI."""

    sample: Sample
    """The page after the stages that DALI runs, without its pixels."""
    rng: np.random.Generator
    """For the stages after DALI."""
    inputs: Inputs


class PageReader:
    """Reads pages and draws what the random stages of the plan do to each."""

    def __init__(self, dataset: DecodablePages, plan: Plan) -> None:
        self.dataset, self.plan = dataset, plan
        self.refused: set[int] = set()
        """Indices of the pages that DALI could not decode."""

    def read(self, index: int, epoch: int | None = None) -> Request:
        """Read a page; one that DALI cannot or should not decode is decoded here and goes in as plain pixels."""
        dataset, box = self.dataset, self.plan.letterbox
        raw = dataset.source.read(index)
        why_not = self._why_not(raw)
        page = dataset.decode.measure(raw) if why_not is None else dataset.decode(raw)
        if why_not is None and page.raw_size[0] * page.raw_size[1] > MAX_PIXELS:
            page, why_not = dataset.decode(raw), ""
        sample = box(page)
        if why_not is None:
            inputs = _as_encoded(raw.encoded, sample, box.size, dataset.decode.scaled == "auto")
        else:
            inputs = _as_pixels(sample.image)
            sample = replace(sample, recovered=sample.recovered or why_not)
        rng = sample_generator(dataset.seed, dataset.epoch if epoch is None else epoch, dataset.source.number(index))
        return self._draw(without_pixels(sample, sample.size), rng, inputs)

    def _why_not(self, raw: Sample) -> str | None:
        if raw.index in self.refused:
            return "DALI refused it"
        return None if raw.encoded.startswith((JPEG, PNG)) else "neither JPEG nor PNG"

    def _draw(self, sample: Sample, rng: np.random.Generator, inputs: Inputs) -> Request:
        window, matrix = Window(0, 0, *sample.size), np.eye(3)
        for stage in self.plan.geometry:
            placement = stage.draw(rng, sample.view)
            if placement is None:
                continue
            if isinstance(stage, Warp):
                window = placement.window
            matrix = placement.matrix @ matrix
            sample = without_pixels(placement.follow(sample, NO_IMAGE), placement.page[1:])
        inputs["start"] = np.array([window.top, window.left], dtype=np.int32) - inputs.pop("corner")
        inputs["shape"] = np.array([window.bottom - window.top, window.right - window.left], dtype=np.int32)
        if self.plan.geometry and self.plan.sizes_vary:
            inputs["out"] = np.array(sample.size[::-1], dtype=np.float32)
        if self.plan.geometry:
            inputs["matrix"] = (_TO_CORNER @ matrix @ window.to_page @ np.linalg.inv(_TO_CORNER))[:2].astype(np.float32)
        for number, colours in enumerate(self.plan.colours):
            drawn = _pixel_inputs(colours, colours.draw(rng, sample.view))
            inputs |= {f"{name}_{number}": value for name, value in drawn.items()}
        return Request(sample, rng, inputs)


def _pixel_inputs(stage: COLOURS, parameters: Any) -> Inputs:
    """Inputs of the operator of a stage; if it leaves the page alone, any valid values, because DALI needs some."""
    on = np.array(parameters is not None, dtype=np.bool_)
    if isinstance(stage, ColourJitter):
        matrix, shift = parameters or Colours(np.eye(3), 0.0)
        return {"on": on, "matrix": matrix.astype(np.float32), "shift": np.full(3, shift, dtype=np.float32)}
    if isinstance(stage, RandomBlur):
        sigma = parameters or MIN_SIGMA
        # The kernel size that OpenCV derives from sigma for 8-bit pixels.
        window = np.array([round(sigma * 6 + 1) | 1], dtype=np.int32)
        return {"on": on, "sigma": np.array([sigma], dtype=np.float32), "window": window}
    return {"on": on, "quality": np.array(parameters or stage.best, dtype=np.int32)}


def _as_encoded(encoded: bytes, sample: Sample, side: int, reduced: bool) -> Inputs:
    """A page that DALI decodes and reduces as stored in its file, and then turns upright."""
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
    """A letterboxed page as an uncompressed PPM, which DALI decodes by copying it."""
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
