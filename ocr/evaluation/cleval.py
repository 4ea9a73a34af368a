"""CLEval, the character-level score of text detection and reading, as a metric that is exact on several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from ocr.errors import ConfigError
from ocr.evaluation.cleval_page import Counts, Page, Words
from ocr.evaluation.cleval_words import relative_heights
from ocr.geometry.kernels.overlap import Rings, Shapes, read_rings
from ocr.geometry.polygons import Polygons

# The text that marks an illegible word in ICDAR ground truth.
UNREADABLE = "###"


class CLEvalMetric(Metric):
    """Precision, recall and their harmonic mean over characters, with the numbers and the call of the `cleval` package.

    >>> metric = CLEvalMetric()
    >>> box = [[0, 0, 80, 0, 80, 20, 0, 20]]
    >>> _ = metric(box, box, ["TOTAL"], ["T0TAL"], [False])
    >>> scores = metric.compute()
    >>> scores["det_h"].item(), round(scores["e2e_h"].item(), 3)
    (1.0, 0.8)
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True
    sums: Tensor

    def __init__(
        self,
        dist_sync_on_step: bool = False,
        case_sensitive: bool = True,
        recall_gran_penalty: float = 1.0,
        precision_gran_penalty: float = 1.0,
        vertical_aspect_ratio_thresh: float = 0.5,
        ap_constraint: float = 0.3,
        scale_wise: bool = False,
        scale_bins: Sequence[float] = (0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.1, 0.5, 1.0),
        scale_range: tuple[float, float] = (0.0, 1.0),
        **kwargs: Any,
    ) -> None:
        super().__init__(dist_sync_on_step=dist_sync_on_step, **kwargs)
        if not 0 < ap_constraint <= 1:
            problem = f"ap_constraint={ap_constraint} must be a number > 0 and <= 1 (a share of a box's area)"
            raise ConfigError(problem, setting="CLEvalMetric.ap_constraint", value=ap_constraint)
        self.case_sensitive = case_sensitive
        self.recall_gran_penalty = recall_gran_penalty
        self.precision_gran_penalty = precision_gran_penalty
        self.vertical_aspect_ratio_thresh = vertical_aspect_ratio_thresh
        self.ap_constraint = ap_constraint
        self.scale_ranges = [tuple(scale_range), *(pairwise(scale_bins) if scale_wise else ())]
        # One row per range of text heights. One tensor of integers: one exact reduction over devices.
        size = (len(self.scale_ranges), len(fields(Counts)))
        self.add_state("sums", torch.zeros(size, dtype=torch.int64), dist_reduce_fx="sum")

    def update(
        self,
        det_quads: Shapes,
        gt_quads: Shapes,
        det_letters: Sequence[str] | None = None,
        gt_letters: Sequence[str | None] | None = None,
        gt_is_dcs: Sequence[bool] | NDArray[np.bool_] | None = None,
        img_longer_length: float | None = None,
    ) -> None:
        """Add one page: boxes as (N, 8) arrays, or polygons in any form that `read_rings` takes.

        `gt_is_dcs` marks words that count neither way; without it those are the words "###", or what packed polygons
        say. Without `det_letters` only detection is scored. Words without text count the characters that their shape
        has room for. `img_longer_length`, the page's longer side, is needed for scores by text height.
        """
        if isinstance(gt_quads, Polygons):
            gt_letters = gt_quads.texts if gt_letters is None else gt_letters
            gt_is_dcs = gt_quads.ignore if gt_is_dcs is None else gt_is_dcs
        dets = _read_words(read_rings(det_quads, "det_quads"), det_letters, None, "det")
        gts = _read_words(read_rings(gt_quads, "gt_quads"), gt_letters, gt_is_dcs, "gt")
        end_to_end = det_letters is not None
        if end_to_end:
            _require_texts(dets, gts)
        page = Page(dets, gts, self.vertical_aspect_ratio_thresh, self.case_sensitive)
        ignores = self._ignored_by_range(gts, img_longer_length)
        counts = [astuple(page.count(ignore, self.ap_constraint, end_to_end)) for ignore in ignores]
        self.sums += torch.tensor(counts, dtype=torch.int64).to(self.sums.device)

    def _ignored_by_range(self, gts: Words, longer_side: float | None) -> list[NDArray[np.bool_]]:
        """For each range of text heights, which words are out of it or ignored anyway."""
        if longer_side is None:
            if len(self.scale_ranges) > 1:
                raise ValueError("scale_wise=True, but no img_longer_length. Pass the page's longer side in pixels")
            return [gts.ignore]
        heights = relative_heights(gts.rings, longer_side)
        return [gts.ignore | ~((low <= heights) & (heights <= high)) for low, high in self.scale_ranges]

    def compute(self) -> dict[str, Any]:
        """Scores `det_p`, `det_r`, `det_h`, `e2e_p`, `e2e_r`, `e2e_h` and how many words were split or merged.

        With `scale_wise=True` also `scale_wise`: the same for each range of text heights.
        """
        whole, *by_range = [self._scores(Counts(*row)) for row in self.sums.tolist()]
        if by_range:
            return {**whole, "scale_wise": dict(zip(self.scale_ranges[1:], by_range, strict=True))}
        return whole

    def _scores(self, counts: Counts) -> dict[str, Tensor]:
        c = counts
        scores: dict[str, float] = {}
        for kind, found, gt_chars, det_chars, splits, merges in (
            ("det", c.found_chars, c.gt_chars, c.det_chars, c.split_penalties, c.merge_penalties),
            ("e2e", c.e2e_found_chars, c.e2e_gt_chars, c.e2e_det_chars, c.e2e_split_penalties, c.e2e_merge_penalties),
        ):
            recall = max(0.0, found - self.recall_gran_penalty * splits) / gt_chars if gt_chars else 0.0
            precision = max(0.0, found - self.precision_gran_penalty * merges) / det_chars if det_chars else 0.0
            hmean = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
            scores |= {f"{kind}_r": recall, f"{kind}_p": precision, f"{kind}_h": hmean}
        tensors = {key: torch.tensor(value, dtype=torch.float32, device=self.device) for key, value in scores.items()}
        for key in ("num_splitted", "num_merged", "num_char_overlapped"):
            tensors[key] = torch.tensor(getattr(counts, key), device=self.device)
        return tensors


def _read_words(
    rings: Rings,
    letters: Sequence[str | None] | None,
    ignore: Sequence[bool] | NDArray[np.bool_] | None,
    side: str,
) -> Words:
    texts: tuple[str | None, ...] = (None,) * len(rings) if letters is None else tuple(letters)
    if len(texts) != len(rings):
        raise ValueError(f"{side}_letters has {len(texts)} texts for {len(rings)} {side}_quads. Pass one per box")
    if ignore is None:
        return Words(rings, texts, np.array([text == UNREADABLE for text in texts], dtype=np.bool_))
    flags = np.asarray(ignore, dtype=np.bool_).reshape(-1)
    if len(flags) != len(rings):
        raise ValueError(f"{side}_is_dcs has {len(flags)} flags for {len(rings)} {side}_quads. Pass one per box")
    return Words(rings, texts, flags)


def _require_texts(dets: Words, gts: Words) -> None:
    for side, words, fix in (
        ("det", dets, "Leave det_letters out to score detection alone"),
        ("gt", gts, "Pass its text, mark it in gt_is_dcs, or leave det_letters out to score detection alone"),
    ):
        for index, (text, ignored) in enumerate(zip(words.texts, words.ignore.tolist(), strict=True)):
            if text is None and not ignored:
                raise ValueError(f"det_letters asks for end-to-end scores, but {side}_letters[{index}] is None. {fix}")
