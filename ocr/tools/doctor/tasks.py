"""Pages with suspects as tasks for a labelling tool, each suspect with its reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ocr.formats.annotation import Annotations, Page, Word
from ocr.formats.write import write_annotations
from ocr.geometry.polygons import move_points
from ocr.tools.doctor.findings import Finding, Report, Split
from ocr.tools.doctor.labels import sound_words, to_upright


def write_tasks(report: Report, format: str, out: Path) -> list[Path]:
    """Write the pages that have suspects, the most suspicious first; returns the files, one per split."""
    by_page: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in report.suspects:
        by_page[finding.split, finding.image].append(finding)
    written = []
    concerned = [split for split in report.splits if any(name == split.name for name, _ in by_page)]
    for split in concerned:
        target = out if len(concerned) == 1 else out.with_name(f"{out.stem}.{split.name}{out.suffix}")
        pages, scores = {}, {}
        for (name, image), findings in by_page.items():
            if name == split.name:
                pages[image], scores[image] = _task(split, image, findings)
        annotations = Annotations(str(out), format, pages)
        write_annotations(annotations, target, format, scores, "ocr doctor", image_path=split.folder)
        written.append(target)
    return written


def _task(split: Split, image: str, findings: Sequence[Finding]) -> tuple[Page, list[float]]:
    """The upright page with a note on each suspect; and how sure each label is, 1 if nothing speaks against it."""
    notes: dict[str | None, list[Finding]] = defaultdict(list)
    for finding in findings:
        notes[finding.word].append(finding)
    turn = to_upright(split, image)
    words, scores = [], []
    for word in sound_words(split, image):
        points = np.array(word.points, dtype=np.float32).reshape(-1, 2)
        doubts = notes.get(word.key, [])
        words.append(replace(word, points=_upright(points, turn), note=_note(doubts)))
        scores.append(1 - max((doubt.score or 0.0 for doubt in doubts), default=0.0))
    for number, finding in enumerate(notes.get(None, []), 1):
        points = np.array(finding.points, dtype=np.float32).reshape(-1, 2)
        if len(points):
            words.append(Word(f"suspect_{number:04d}", _upright(points, turn), note=_note([finding])))
            scores.append(finding.score or 0.0)
        elif words:
            # A whole page: its reason is on the first label, as a region is what tools show reasons with.
            words[0] = replace(words[0], note="; ".join(filter(None, (_note([finding]), words[0].note))))
    return Page(tuple(words), split.images[image].size_in("upright")), scores


def _note(findings: Sequence[Finding]) -> str | None:
    return "; ".join(f"{finding.kind}: {finding.detail}" for finding in findings) or None


def _upright(points: NDArray[np.float32], turn: NDArray[np.float64]) -> list[list[float]]:
    moved: list[list[float]] = np.round(move_points(points, turn).astype(np.float64), 2).tolist()
    return moved
