"""DBCollateFN: a batch from items of `OCRDataset`."""

from __future__ import annotations

from collections.abc import Sequence

from ocr.pipeline.batch import Batch, Item, collate
from ocr.pipeline.targets import Targets


class DBCollateFN:
    """Stack items into `images`, `prob_maps`, `thresh_maps`, their masks, and lists of everything else.

    Maps are drawn here for items that have none, or whose maps were drawn with other parameters.
    """

    def __init__(self, shrink_ratio: float = 0.4, thresh_min: float = 0.3, thresh_max: float = 0.7) -> None:
        self.targets = Targets(shrink_ratio=shrink_ratio, thresh_min=thresh_min, thresh_max=thresh_max)

    def __call__(self, items: Sequence[Item | None]) -> Batch | None:
        return collate(items, self.targets)

    def __repr__(self) -> str:
        targets = self.targets
        return f"DBCollateFN({targets.shrink_ratio}, {targets.thresh_min}, {targets.thresh_max})"
