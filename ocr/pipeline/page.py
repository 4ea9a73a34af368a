"""page: the fixed part of the path as one call, from stored bytes to what is kept at the cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ocr.pipeline.decode import Decode
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage
from ocr.pipeline.targets import StoredTargets, Targets
from ocr.pipeline.timing import timed

if TYPE_CHECKING:  # Ray workers do without torch.
    from ocr.pipeline.device import Normalize


@dataclass(frozen=True, slots=True)
class FixedPart:
    """Decode a page and run its fixed stages; holds no reference to the dataset."""

    decode: Decode
    stages: tuple[FixedStage, ...] = ()
    draw_maps: Targets | StoredTargets | None = None
    normalization: Normalize | None = None

    def __call__(self, raw: Sample) -> Sample:
        with timed("decode"):
            page = self.decode(raw)
        page = self._run(page)
        if self.draw_maps is not None:
            page = self.draw_maps(page)
        if self.normalization is not None:
            page = replace(page, image=self.normalization.on_host(page.image).transpose(1, 2, 0))
        return page

    def measure(self, raw: Sample) -> Sample:
        """The page for the sake of its geometry; pixels are not decoded if the first stage is a letterbox."""
        return self._run(self.decode(raw) if self.decode.needed_side is None else self.decode.measure(raw))

    @property
    def parts(self) -> tuple[object, ...]:
        """All that the output depends on, for its fingerprint. Stored maps are used only if they equal drawn ones."""
        targets = self.draw_maps.targets if isinstance(self.draw_maps, StoredTargets) else self.draw_maps
        parts = (self.decode, *self.stages, targets, self.normalization)
        return tuple(part for part in parts if part is not None)

    def _run(self, page: Sample) -> Sample:
        for stage in self.stages:
            with timed(type(stage).__name__):
                page = stage(page)
        return page
