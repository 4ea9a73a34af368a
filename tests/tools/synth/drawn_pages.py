"""Pages with known levels, for tests of what is measured and matched."""

import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.fonts import draw_text

LINES = ("Green tea 4.20", "Brown bread 11.80", "Soap bar x2 7.60", "Subtotal 23.60", "Change 16.40")


def make_page(
    paper: int = 240, ink: int = 60, scale: int = 1, noise: float = 0.0
) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """960 x 480 pixels times `scale`, five lines of text and their boxes."""
    gray = np.full((960 * scale, 480 * scale), float(paper))
    boxes = []
    for number, text in enumerate(LINES):
        coverage = draw_text(text, "DejaVuSans.ttf", 24 * scale).coverage
        top, left = (100 + 120 * number) * scale, 60 * scale
        bottom, right = top + coverage.shape[0], left + coverage.shape[1]
        gray[top:bottom, left:right] += (ink - paper) * (coverage / 255)
        boxes.append((left, top, right, bottom))
    gray += np.random.default_rng(0).normal(0, noise, gray.shape)
    image = np.repeat(np.clip(gray, 0, 255).round().astype(np.uint8)[..., None], 3, axis=2)
    return image, np.array(boxes, dtype=np.float64)
