"""What is on the paper: marks of ink, and the regions of text that the annotation names."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.strip import Strip

Color = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """Ink on the paper, from the paper's pixel (x, y) on."""

    coverage: NDArray[np.uint8]
    x: int
    y: int
    color: Color
    strength: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One labelled region, a word or a line: its ink, its position, its transcription."""

    marks: tuple[Mark, ...]
    strip: Strip
    text: str
    illegible: bool = False


@dataclass(slots=True)
class Layout:
    """All marks in the order they are painted in, and the runs of text among them."""

    width: int
    height: int
    marks: list[Mark] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
