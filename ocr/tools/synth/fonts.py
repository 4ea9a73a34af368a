"""The typefaces that come with the installed packages, and a line of text drawn in one of them."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from ocr.errors import StageError

PILLOW_FACE = "pillow"

# (regular, bold) of each family. Symbol faces and those whose ASCII is not ASCII (cmr10: `<` is not `<`) stay out.
FAMILIES: dict[str, tuple[tuple[str, str], ...]] = {
    "mono": (
        ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf"),
        ("DejaVuSansMono-Bold.ttf", "DejaVuSansMono-Bold.ttf"),
        ("DejaVuSansMono-Oblique.ttf", "DejaVuSansMono-BoldOblique.ttf"),
        ("cmtt10.ttf", "DejaVuSansMono-Bold.ttf"),
    ),
    "sans": (
        ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf"),
        (PILLOW_FACE, "DejaVuSans-Bold.ttf"),
        ("cmss10.ttf", PILLOW_FACE),
    ),
    "serif": (
        ("STIXGeneral.ttf", "STIXGeneralBol.ttf"),
        ("DejaVuSerif.ttf", "DejaVuSerif-Bold.ttf"),
    ),
    "headline": (
        ("DejaVuSans-BoldOblique.ttf", "DejaVuSans-BoldOblique.ttf"),
        ("STIXGeneralBolIta.ttf", "STIXGeneralBolIta.ttf"),
        ("DejaVuSerif-BoldItalic.ttf", "DejaVuSerif-BoldItalic.ttf"),
        ("STIXGeneralItalic.ttf", "STIXGeneralBolIta.ttf"),
        ("DejaVuSans-Bold.ttf", "DejaVuSans-Bold.ttf"),
    ),
}

# A receipt printer has 203 dots per inch, about 24 per line: a larger line shows its dots instead of more detail.
THERMAL_SIZE = 24


@dataclass(frozen=True, slots=True, eq=False)
class Glyphs:
    """A drawn line: its coverage (0 bare paper, 255 full ink) and its top left pixel from the baseline."""

    coverage: NDArray[np.uint8]
    left: int
    top: int


@lru_cache(maxsize=512)
def load_font(face: str, size: int) -> ImageFont.FreeTypeFont:
    """A face at a size in pixels, opened once per process."""
    if face == PILLOW_FACE:
        font = ImageFont.load_default(size)
        assert isinstance(font, ImageFont.FreeTypeFont), "this Pillow is built without FreeType"
        return font
    path = Path(matplotlib.get_data_path(), "fonts", "ttf", face)
    # Raqm is not in every Pillow; the basic layout gives the same pixels everywhere.
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache
def _letters(face: str) -> frozenset[str]:
    """The characters that a face has a glyph for."""
    font = load_font(face, 20)
    # The face that comes with Pillow is in memory, without a file.
    source = io.BytesIO(font.font_bytes) if face == PILLOW_FACE else font.path
    return frozenset(map(chr, FT2Font(source).get_charmap()))


def face_for(text: str, face: str) -> str:
    """The face, or the DejaVu face of its weight if it lacks a letter of the text.

    >>> face_for("total", "cmss10.ttf"), face_for("итог", "cmss10.ttf")
    ('cmss10.ttf', 'DejaVuSans.ttf')
    """
    return face if _letters(face).issuperset(text) else dejavu_face(face)


def dejavu_face(face: str) -> str:
    """The face if it is one of DejaVu, which have all scripts that are used here, else one of its weight."""
    return face if face.startswith("DejaVu") else "DejaVuSans-Bold.ttf" if "Bol" in face else "DejaVuSans.ttf"


@lru_cache(maxsize=4096)
def text_width(text: str, face: str, size: int) -> float:
    """How far the pen moves, in pixels."""
    return float(load_font(face, size).getlength(text))


def fit_text(text: str, face: str, size: int, width: float) -> str:
    """The text, or as much of its beginning as fits into `width` pixels."""
    natural = text_width(text, face, size)
    while natural > width and len(text) > 1:
        text = text[: max(1, min(len(text) - 1, int(len(text) * width / natural)))].rstrip()
        natural = text_width(text, face, size)
    return text


def draw_text(text: str, face: str, size: int, *, tall: float = 1.0, thermal: bool = False) -> Glyphs:
    """Draw one line; `tall` stretches it upwards as receipt printers do, `thermal` keeps the dots of the print head.

    A face that lacks a letter is refused: it would draw an empty box, and its label would teach that boxes are text.
    """
    if lacking := set(text) - _letters(face):
        raise StageError(
            f"{face} has no glyph for {''.join(sorted(lacking))!r}. Choose another face: face_for(text, face)",
            setting="face",
            value=face,
        )
    if thermal and size > 1.5 * THERMAL_SIZE:
        dots = draw_text(text, face, THERMAL_SIZE)
        return _stretch(dots, size / THERMAL_SIZE, tall * size / THERMAL_SIZE, cv2.INTER_LINEAR)
    font = load_font(face, size)
    left, top, right, bottom = (int(bound) for bound in font.getbbox(text, anchor="ls"))
    canvas = Image.new("L", (max(1, right - left), max(1, bottom - top)))
    ImageDraw.Draw(canvas).text((-left, -top), text, fill=255, font=font, anchor="ls")
    glyphs = Glyphs(np.asarray(canvas, dtype=np.uint8), left, top)
    return glyphs if tall == 1.0 else _stretch(glyphs, 1.0, tall, cv2.INTER_LINEAR)


def _stretch(glyphs: Glyphs, across: float, up: float, interpolation: int) -> Glyphs:
    height, width = glyphs.coverage.shape
    size = max(1, round(width * across)), max(1, round(height * up))
    coverage = np.asarray(cv2.resize(glyphs.coverage, size, interpolation=interpolation), dtype=np.uint8)
    return Glyphs(coverage, round(glyphs.left * across), round(glyphs.top * up))
