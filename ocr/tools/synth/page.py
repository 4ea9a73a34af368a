"""One page from its seed: written, typeset, painted, laid on a desk, photographed, and turned into a JPEG."""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from ocr.formats.annotation import Page, Word
from ocr.geometry.orientation import apply_orientation
from ocr.tools.synth.background import make_desk, make_paper
from ocr.tools.synth.capture_effects import degrade
from ocr.tools.synth.capture_style import Look, Scene, SceneKind, choose_look
from ocr.tools.synth.handwriting import write_by_hand
from ocr.tools.synth.ink_effects import paint, press
from ocr.tools.synth.kinds import KINDS, UnitsOfPages, choose_kind, set_page, units_of
from ocr.tools.synth.layout import Layout, Run
from ocr.tools.synth.receipt import language_of
from ocr.tools.synth.text_path import Points, trace

MEGAPIXELS = (0.5, 12.0)
EXIF_SHARE = 0.25
SPLITS = ("train", "val")
# Levels: print that differs less from its paper cannot be told from the grain.
_MIN_CONTRAST = 25
_ORIENTATION_TAG = 0x0112


@dataclass(frozen=True, slots=True, eq=False)
class SynthPage:
    """A finished page, upright, and how its file is to be written."""

    image_hwc: NDArray[np.uint8]
    words: tuple[Word, ...]
    orientation: int
    jpeg_quality: int
    taken: SceneKind
    kind: str

    @property
    def annotation(self) -> Page:
        """What the annotation file says about the page."""
        height, width = self.image_hwc.shape[:2]
        return Page(self.words, (width, height))


def render_page(
    seed: int,
    index: int,
    *,
    split: str = "train",
    megapixels: tuple[float, float] = MEGAPIXELS,
    exif_share: float = EXIF_SHARE,
    units: UnitsOfPages = "lines",
    kind: str = "receipt",
) -> SynthPage:
    """The page of this number: the same for the same seed, in any process."""
    rng = np.random.default_rng(np.random.SeedSequence((seed, SPLITS.index(split), index)))
    page_kind = choose_kind(rng, kind)
    scene, layout = set_page(rng, megapixels, units_of(page_kind, units), page_kind)
    look = choose_look(rng, scene.kind, KINDS[page_kind].shares)
    paper = print_sheet(rng, scene, layout, look)
    page = paper if scene.page_map.is_identity else scene.page_map.warp(paper, make_desk(rng, scene))
    page = degrade(rng, page, scene, look)
    polygons = [page_polygon(run, scene) for run in layout.runs]
    gray = np.asarray(cv2.cvtColor(page, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    words = tuple(
        _word(number, *labelled, gray)
        for number, labelled in enumerate(zip(layout.runs, polygons, strict=True), start=1)
    )
    return SynthPage(
        page,
        words,
        choose_orientation(seed, split, index, exif_share),
        int(rng.integers(40, 96)),
        scene.kind,
        page_kind,
    )


def print_sheet(rng: np.random.Generator, scene: Scene, layout: Layout, look: Look) -> NDArray[np.uint8]:
    """The sheet with its print, and in some cases handwriting over it, (H, W, 3)."""
    blank = make_paper(rng, scene)
    printed = blank.copy()
    paint(rng, printed, layout)
    printed = press(rng, blank, printed, look, scene.em)
    if look.handwritten:
        write_by_hand(rng, printed, scene.em)
    return printed


def page_polygon(run: Run, scene: Scene) -> Points:
    """The outline of a line on the page, kept on it."""
    polygon = trace(run.strip, scene.page_map)
    return np.clip(polygon, 0.0, (scene.width - 1.0, scene.height - 1.0))


def _word(number: int, run: Run, polygon: Points, gray: NDArray[np.uint8]) -> Word:
    # Fading, light and a threshold can take a line away: invisible text is not text to learn.
    illegible = run.illegible or not is_visible(gray, polygon)
    across, down = polygon[len(polygon) // 2 - 1] - polygon[0]
    orientation = "Curved" if len(polygon) > 4 else "Vertical" if abs(down) > abs(across) else "Horizontal"
    return Word(
        key=f"{number:04d}",
        points=polygon.round(2).tolist(),
        text="" if illegible else run.text,
        ignore=illegible,
        language=language_of(run.text),
        orientation=orientation,
        unit=run.unit,
    )


def is_visible(gray: NDArray[np.uint8], polygon: Points) -> bool:
    """Whether the region of a labelled line holds ink that stands out, at the page's own resolution."""
    left, top = np.floor(polygon.min(axis=0)).astype(int)
    right, bottom = np.ceil(polygon.max(axis=0)).astype(int)
    # Two thousand pixels give the levels of a line as well as all of a large one do.
    step = max(1, int(((right - left) * (bottom - top) / 2000) ** 0.5))
    crop = gray[top : bottom + 1 : step, left : right + 1 : step]
    if not crop.size:
        return False
    # Dashes and dots fill a hundredth of their box.
    ink, paper = np.percentile(crop, (1, 85))
    return bool(paper - ink >= _MIN_CONTRAST)


def choose_orientation(seed: int, split: str, index: int, share: float) -> int:
    """The EXIF orientation: exactly `share` of the pages are not upright, and these go through 2 to 8 in turn.

    >>> [choose_orientation(0, "train", index, 0.5) for index in range(8)]
    [1, 2, 1, 3, 1, 4, 1, 5]
    """
    turned = math.floor((index + 1) * share + 1e-9)
    if turned == math.floor(index * share + 1e-9):
        return 1
    return 2 + (turned - 1 + seed + 3 * SPLITS.index(split)) % 7


def encode_page(page: SynthPage) -> bytes:
    """JPEG bytes: the pixels stored turned, so that applying the EXIF orientation gives the upright page."""
    # 6 and 8 are each other's inverse; all others undo themselves.
    raw = apply_orientation(page.image_hwc, {6: 8, 8: 6}.get(page.orientation, page.orientation))
    jpeg: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(raw), quality=page.jpeg_quality, colorspace="RGB", colorsubsampling="420"
    )
    if page.orientation == 1 and page.taken != "photo":
        # Cameras write the tag always, scanners never.
        return jpeg
    exif = Image.Exif()
    exif[_ORIENTATION_TAG] = page.orientation
    payload = exif.tobytes()
    return jpeg[:2] + b"\xff\xe1" + (len(payload) + 2).to_bytes(2, "big") + payload + jpeg[2:]
