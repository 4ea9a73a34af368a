"""What each page asks of DALI: its bytes, and as inputs of the operators the parameters that the stages draw."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.dali.plan import COLOURS, Plan
from ocr.pipeline.path import PagePath
from ocr.pipeline.pixels import MIN_SIGMA, ColourJitter, Colours, RandomBlur
from ocr.pipeline.prefix import scaled_sizes
from ocr.pipeline.sample import NO_IMAGE, Sample
from ocr.pipeline.stage import sample_generator
from ocr.pipeline.warp import WarpPass, Window

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
# DALI decodes whole pages, and all pages of a batch at once: 16 pages of this size are 768 MB.
MAX_PIXELS = 16_000_000
DIVISORS = (2, 4, 8)
"""By these GlyphFeed's own decoder reduces a JPEG."""
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

    def __init__(self, path: PagePath, plan: Plan) -> None:
        self.path, self.plan = path, plan
        self.refused: set[int] = set()
        """Indices of the pages that DALI could not decode."""

    def read(self, index: int, epoch: int) -> Request:
        """Read a page of an epoch; one that DALI cannot or should not decode is decoded here, and goes in as pixels."""
        path, box = self.path, self.plan.letterbox
        raw = path.source.read(index)
        page = path.decode.measure(raw)
        why_not = self._why_not(raw, page)
        if why_not is None:
            sample = box(page)
            scaled = tuple(scaled_sizes(np.array([sample.shape]), box.size)[0].tolist())
            side = box.size if path.decode.scaled == "auto" else None
            inputs = _decoding(raw.encoded, sample.raw_size, scaled, sample.orientation, side)
            corner = np.rint(np.linalg.inv(sample.inverse_matrix)[:2, 2])
        else:
            sample = box(path.decode(raw))
            sample = replace(sample, recovered=sample.recovered or why_not)
            inputs, corner = _decoding(_as_ppm(sample.image), sample.size, sample.size), np.zeros(2)
        rng = sample_generator(path.seed, epoch, path.source.number(index))
        return self._draw(sample, rng, inputs, corner)

    def _why_not(self, raw: Sample, page: Sample) -> str | None:
        """Why a page is decoded here, for the ledger; "" if that is no news. None: DALI decodes it."""
        if raw.index in self.refused:
            return "DALI refused it"
        if not raw.encoded.startswith((JPEG, PNG)):
            return "neither JPEG nor PNG"
        if raw.encoded.startswith(PNG) and _is_unlike_in_dali(raw.encoded):
            return ""
        return "" if page.raw_size[0] * page.raw_size[1] > MAX_PIXELS else None

    def _draw(self, sample: Sample, rng: np.random.Generator, inputs: Inputs, corner: NDArray[np.float64]) -> Request:
        """What the stages of the plan do to a page; `corner` is where its pixels begin in the letterbox."""
        width, height = sample.size
        # A pass over pixels that DALI has: geometry joins it, and it is never made here.
        warp: Any = WarpPass(NO_IMAGE, Window(0, 0, width, height), np.eye(3), (width, height))
        sample = replace(sample, image=NO_IMAGE, lazy=warp)
        for stage in self.plan.geometry:
            sample = stage.run(sample, rng)
        warp = sample.lazy
        sample = replace(sample, lazy=None, reduced_from=warp.size)
        window = warp.window
        inputs["start"] = np.array([window.top - corner[1], window.left - corner[0]], dtype=np.int32)
        inputs["shape"] = np.array([window.height, window.width], dtype=np.int32)
        if self.plan.geometry:
            cut = np.array([[1, 0, warp.corner[0]], [0, 1, warp.corner[1]], [0, 0, 1]])
            to_window = _TO_CORNER @ warp.matrix @ cut @ np.linalg.inv(_TO_CORNER)
            inputs["matrix"] = np.linalg.inv(to_window)[:2].astype(np.float32)
            inputs["out"] = np.array(sample.size[::-1], dtype=np.float32)
        for number, colours in enumerate(self.plan.colours):
            drawn = _colour_inputs(colours, colours.draw(rng, sample.view))
            inputs |= {f"{name}_{number}": value for name, value in drawn.items()}
        return Request(sample, rng, inputs)


def _is_unlike_in_dali(png: bytes) -> bool:
    """Whether DALI gives other pixels: it shows clear ones black, and drops bits that 12-bit pages need."""
    bits, has_alpha = png[24], png[25] & 4
    return bits == 16 or bool(has_alpha) or b"tRNS" in png[: png.find(b"IDAT")]


def _decoding(
    encoded: bytes,
    raw_size: tuple[int, int],
    scaled: tuple[int, ...],
    orientation: int = 1,
    side: int | None = None,
) -> Inputs:
    """Decode a file, reduce it to `scaled` upright pixels, and turn it upright.

    With `side`, a JPEG is halved first as often as GlyphFeed's own decoder does for this longest side.
    """
    width, height = scaled
    turned = orientation >= 5
    halves = [[max(1, round(length / divisor)) for length in reversed(raw_size)] for divisor in DIVISORS]
    is_reduced = side is not None and encoded.startswith(JPEG)
    halvings = sum(is_reduced and max(raw_size) >= divisor * (side or 0) for divisor in DIVISORS)
    return {
        "encoded": np.frombuffer(encoded, dtype=np.uint8),
        "halvings": np.array(halvings, dtype=np.int32),
        **{f"half_{number}": np.array(half, dtype=np.float32) for number, half in enumerate(halves)},
        "size": np.array([width, height] if turned else [height, width], dtype=np.float32),
        "turned": np.array(turned, dtype=np.bool_),
        "flip_x": np.array(orientation in (2, 3, 6, 7), dtype=np.int32),
        "flip_y": np.array(orientation in (3, 4, 7, 8), dtype=np.int32),
    }


def _as_ppm(image_hwc: NDArray[np.uint8]) -> bytes:
    """A page without compression, which DALI decodes by copying it."""
    height, width = image_hwc.shape[:2]
    return b"P6 %d %d 255\n" % (width, height) + image_hwc.tobytes()


def _colour_inputs(stage: COLOURS, parameters: Any) -> Inputs:
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
