"""CLEval of one page: words and detections are matched by area and by the characters covered, then counted.

The rules follow the published implementation, https://github.com/clovaai/CLEval. There every word meets every
detection; here only pairs whose bounding boxes touch are examined; all others share nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ocr.evaluation.cleval_letters import count_read_letters, reading_order
from ocr.evaluation.cleval_words import aspect_ratios, character_centers, corner_frames, guessed_lengths, stray_lengths
from ocr.geometry.kernels.overlap import Rings, covered_points, shared_areas, touching_pairs


@dataclass(frozen=True, slots=True)
class Counts:
    """What a page adds to the score; all integers, so that sums over pages and devices are exact."""

    gt_chars: int = 0
    det_chars: int = 0
    found_chars: int = 0
    split_penalties: int = 0
    merge_penalties: int = 0
    e2e_gt_chars: int = 0
    e2e_det_chars: int = 0
    e2e_found_chars: int = 0
    e2e_split_penalties: int = 0
    e2e_merge_penalties: int = 0
    num_splitted: int = 0
    num_merged: int = 0
    num_char_overlapped: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """One side of a page: outlines, and the text of each (None if unknown)."""

    rings: Rings
    texts: tuple[str | None, ...]
    ignore: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Words and detections that touch: pair k is word `gt[k]` and detection `det[k]`.

    `precision` is the share of the detection that is in the word, `hits` the word's characters that it covers:
    `hits[starts[k]:starts[k + 1]]` belong to the packed characters from `first_char[k]` on.
    """

    gt: NDArray[np.int64]
    det: NDArray[np.int64]
    precision: NDArray[np.float32]
    hits: NDArray[np.bool_]
    starts: NDArray[np.int64]
    first_char: NDArray[np.int64]
    hit_counts: NDArray[np.int64]


class Page:
    """The geometry of one page, from which scores for any choice of ignored words are counted."""

    def __init__(self, dets: Words, gts: Words, upright_ratio: float, case_sensitive: bool) -> None:
        self.det_ratios = aspect_ratios(corner_frames(dets.rings))
        frames = corner_frames(gts.rings)
        ratios = aspect_ratios(frames)
        self.det_texts = _letters(dets, self.det_ratios, case_sensitive)
        self.gt_texts = _letters(gts, ratios, case_sensitive)
        self.lengths = np.array([len(text) for text in self.gt_texts], dtype=np.int64)
        self.centers, self.char_starts = character_centers(gts.rings, frames, ratios, self.lengths, upright_ratio)
        self.dets, self.gts = dets.rings.cut_to_whole_pixels(), gts.rings.cut_to_whole_pixels()
        self.det_areas = _outline_areas(self.dets)
        self.touching = touching_pairs(self._gt_reach(), self.dets.bounds)
        self.gts_touching = touching_pairs(self.gts.bounds, self.gts.bounds)

    def count(self, ignore: NDArray[np.bool_], min_precision: float, end_to_end: bool) -> Counts:
        """The page's counts when the words in `ignore` are not counted."""
        pairs = self._measure(ignore)
        ignored_det = self._ignored_detections(pairs, ignore, min_precision)
        matched = match_pairs(pairs, ignore, ignored_det, min_precision)
        gts_of_det = np.bincount(pairs.det[matched], minlength=len(self.dets))
        dets_of_gt = np.bincount(pairs.gt[matched], minlength=len(self.gts))
        covered = int(pairs.hit_counts[matched].sum())
        found = self._found_chars(pairs, matched)
        stray = (gts_of_det == 0) & ~ignored_det
        gt_chars = int(self.lengths[~ignore].sum())
        splits, merges = int(np.maximum(dets_of_gt - 1, 0).sum()), int(np.maximum(gts_of_det - 1, 0).sum())
        detection = Counts(
            gt_chars=gt_chars,
            det_chars=covered + int(stray_lengths(self.det_ratios[stray]).sum()),
            found_chars=found,
            split_penalties=splits,
            merge_penalties=merges,
            num_splitted=int((dets_of_gt > 1).sum()),
            num_merged=int((gts_of_det > 1).sum()),
            num_char_overlapped=covered - found,
        )
        if not end_to_end:
            return detection
        return replace(
            detection,
            e2e_gt_chars=gt_chars,
            e2e_det_chars=sum(len(self.det_texts[det]) for det in np.flatnonzero(~ignored_det).tolist()),
            e2e_found_chars=self._read_letters(pairs, matched, ignore),
            e2e_split_penalties=splits,
            e2e_merge_penalties=merges,
        )

    def _gt_reach(self) -> NDArray[np.float64]:
        """Bounds of each word together with its characters, which can be outside the outline cut to whole pixels."""
        bounds = self.gts.bounds
        word = np.repeat(np.arange(len(self.gts)), self.lengths)
        np.minimum.at(bounds[:, :2], word, self.centers)
        np.maximum.at(bounds[:, 2:], word, self.centers)
        return bounds

    def _measure(self, ignore: NDArray[np.bool_]) -> Pairs:
        gt, det = self.touching.T
        # Ignored words give way to the words they overlap.
        cut = ignore[self.gts_touching[:, 0]] & ~ignore[self.gts_touching[:, 1]]
        cut_from, holes = self.gts_touching[cut].T
        hole_starts = np.searchsorted(cut_from, np.arange(len(self.gts) + 1))
        gts, dets = self.gts, self.dets
        areas = shared_areas(
            gts.vertices,
            gts.starts,
            dets.vertices,
            dets.starts,
            self.touching,
            np.ascontiguousarray(holes),
            hole_starts,
        )
        det_areas = self.det_areas[det]
        # Float32 as published: an overlap of exactly 3 tenths passes 0.3.
        precision = np.divide(areas, det_areas, out=np.zeros(len(gt)), where=det_areas > 0).astype(np.float32)
        starts = np.zeros(len(gt) + 1, dtype=np.int64)
        np.cumsum(self.lengths[gt], out=starts[1:])
        hits = covered_points(dets.vertices, dets.starts, self.centers, self.char_starts, self.touching, starts)
        hit_sums = np.zeros(len(hits) + 1, dtype=np.int64)
        np.cumsum(hits, out=hit_sums[1:])
        return Pairs(gt, det, precision, hits, starts, self.char_starts[gt], np.diff(hit_sums[starts]))

    def _ignored_detections(self, pairs: Pairs, ignore: NDArray[np.bool_], min_precision: float) -> NDArray[np.bool_]:
        """Detections inside an ignored word, or over characters of several that together hold enough of it."""
        in_ignored = ignore[pairs.gt]
        ignored = np.zeros(len(self.dets), dtype=np.bool_)
        ignored[pairs.det[in_ignored & (pairs.precision >= np.float32(min_precision))]] = True
        together = np.zeros(len(self.dets), dtype=np.float32)
        partly = in_ignored & (pairs.hit_counts > 0)
        np.add.at(together, pairs.det[partly], pairs.precision[partly])
        return ignored | (together >= np.float32(min_precision))

    def _found_chars(self, pairs: Pairs, matched: NDArray[np.bool_]) -> int:
        """Characters that at least one matched detection covers."""
        sizes = np.diff(pairs.starts)
        char = np.arange(len(pairs.hits)) + np.repeat(pairs.first_char - pairs.starts[:-1], sizes)
        found = np.zeros(len(self.centers), dtype=np.bool_)
        found[char[pairs.hits & np.repeat(matched, sizes)]] = True
        return int(found.sum())

    def _read_letters(self, pairs: Pairs, matched: NDArray[np.bool_], ignore: NDArray[np.bool_]) -> int:
        rows: dict[int, list[int]] = {}
        for row, gt in zip(np.flatnonzero(matched).tolist(), pairs.gt[matched].tolist(), strict=True):
            rows.setdefault(gt, []).append(row)
        dets, starts = pairs.det.tolist(), pairs.starts.tolist()
        readers = {}
        for gt, own in rows.items():
            hits = [pairs.hits[starts[row] : starts[row + 1]] for row in own]
            readers[gt] = reading_order([dets[row] for row in own], hits)
        # A letter that two words claim goes to the first. The published order is the order of this set.
        gt_order = set(range(len(self.gts))) - set(np.flatnonzero(ignore).tolist())
        return count_read_letters(self.gt_texts, self.det_texts, list(gt_order), readers)


def match_pairs(
    pairs: Pairs, ignore: NDArray[np.bool_], ignored_det: NDArray[np.bool_], min_precision: float
) -> NDArray[np.bool_]:
    """Which pairs match: one word and one detection, a word split over detections, or words merged in one."""
    gts, dets = len(ignore), len(ignored_det)
    touches = pairs.hit_counts > 0
    strong = touches & (pairs.precision >= np.float32(min_precision))
    counted = ~ignore[pairs.gt] & ~ignored_det[pairs.det]
    alone_gt = np.bincount(pairs.gt[strong], minlength=gts) == 1
    alone_det = np.bincount(pairs.det[strong], minlength=dets) == 1
    one_to_one = strong & alone_gt[pairs.gt] & alone_det[pairs.det]
    split = strong & (np.bincount(pairs.gt[strong & counted], minlength=gts) > 1)[pairs.gt]
    touches_counted = touches & counted
    det = pairs.det[touches_counted]
    held = np.bincount(det, weights=pairs.precision[touches_counted], minlength=dets)
    merges = (np.bincount(det, minlength=dets) > 1) & (held >= min_precision)
    matched: NDArray[np.bool_] = counted & (one_to_one | split | (touches & merges[pairs.det]))
    return matched


def _letters(words: Words, ratios: NDArray[np.float64], case_sensitive: bool) -> list[str]:
    """Text of each word; if ignored or unknown, as many characters as its shape has room for."""
    guessed = guessed_lengths(ratios).tolist()
    words_of_page = zip(words.texts, words.ignore.tolist(), guessed, strict=True)
    texts = ("#" * length if text is None or ignored else text for text, ignored, length in words_of_page)
    return [text if case_sensitive else text.upper() for text in texts]


def _outline_areas(rings: Rings) -> NDArray[np.float64]:
    """Area by the shoelace formula: as published, the loops of a self-crossing outline cancel here."""
    if not len(rings):
        return np.zeros(0)
    following = np.arange(1, len(rings.vertices) + 1)
    following[rings.starts[1:] - 1] = rings.starts[:-1]
    x, y = rings.vertices.T
    twice = np.add.reduceat((x + x[following]) * (y[following] - y), rings.starts[:-1])
    return np.abs(twice) / 2
