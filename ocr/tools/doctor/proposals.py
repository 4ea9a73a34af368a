"""What the suspects of a page would be changed to; only a copy is ever changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ocr.formats.annotation import Page, Word
from ocr.formats.validate import fault_of
from ocr.geometry.polygons import move_points
from ocr.tools.doctor.findings import Finding

SURE_ENOUGH = 0.5
"""Suspects with a lower score are listed, and nothing is proposed for them."""
Taken = list[tuple[str | None, str, str]]
"""Word, action and reason of each change."""


def propose(page: Page, findings: Sequence[Finding], size: tuple[int, int]) -> tuple[Page, Taken]:
    """The page with what its suspects should be, in the frame of its points; `size` is that of the page there."""
    taken: Taken = []
    if not findings:
        return page, taken
    words = {word.key: [word] for word in page.words}
    added: list[Word] = []
    for finding in findings:
        if finding.score is None or finding.score < SURE_ENOUGH:
            continue
        reason = f"{finding.kind}: {finding.detail} (score {finding.score:.2f})"
        if finding.matrix is not None:
            matrix = np.array(finding.matrix)
            words = {key: [_moved(word, matrix) for word in group] for key, group in words.items()}
            page = replace(page, size=size)
            taken.append((None, "page-moved", reason))
        elif finding.proposal is not None and finding.word is None:
            added += [Word(_free_key(words, added), _listed(outline)) for outline in finding.proposal]
            taken.append((added[-1].key, "word-added", reason))
        elif finding.proposal is not None and finding.word in words:
            word = words[finding.word][0]
            words[finding.word] = _replaced(word, [_listed(outline) for outline in finding.proposal])
            action = ("word-dropped", "word-moved", "word-split")[min(len(finding.proposal), 2)]
            taken.append((word.key, action, reason))
    kept = [word for group in words.values() for word in group]
    return replace(page, words=(*kept, *added)), taken


def _replaced(word: Word, outlines: list[list[list[float]]]) -> list[Word]:
    if len(outlines) == 1:
        return [replace(word, points=outlines[0])]
    # Which part of the text belongs to which piece is unknown.
    return [replace(word, key=f"{word.key}_{at}", points=points, text=None) for at, points in enumerate(outlines, 1)]


def _moved(word: Word, matrix: NDArray[np.float64]) -> Word:
    if fault_of(word.points) is not None:
        return word
    points = np.array(word.points, dtype=np.float32).reshape(-1, 2)
    return replace(word, points=np.round(move_points(points, matrix).astype(np.float64), 2).tolist())


def _free_key(words: dict[str, list[Word]], added: list[Word]) -> str:
    number = len(added) + 1
    taken = {*words, *(word.key for word in added)}
    while f"new_{number:04d}" in taken:
        number += 1
    return f"new_{number:04d}"


def _listed(outline: Sequence[tuple[float, float]]) -> list[list[float]]:
    return [[x, y] for x, y in outline]
