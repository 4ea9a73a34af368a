"""Detector: text in anything that holds pages, with the same result whatever runs below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ocr.checks import check_integer
from ocr.deploy.inputs import PagePixels, PageSource, is_single, pages_below, pages_of
from ocr.deploy.large_pages import AUTO, LargePages
from ocr.deploy.model_file import ModelInfo
from ocr.deploy.page import TextPage
from ocr.deploy.runtimes import Model, Runtime, open_model
from ocr.deploy.stream import PageStream
from ocr.deploy.views import PageViews, Views, on_first_grid
from ocr.errors import ConfigError, near_names
from ocr.evaluation.boxes import BoxesFromMap, Detections
from ocr.geometry.kernels.warm_up import warm_up
from ocr.models.packaged import packaged_detector
from ocr.pipeline.decode import Decode
from ocr.pipeline.sample import Sample

MAX_PIXELS = Decode().max_pixels


class Detector:
    """Finds the text on pages: paths, bytes, arrays, Pillow images, PDFs, or many of them."""

    def __init__(
        self,
        model: Model,
        boxes: Mapping[str, Any] | None = None,
        max_pixels: int = MAX_PIXELS,
        tile: int | str | None = AUTO,
        scales: Sequence[float] = (1.0,),
    ) -> None:
        self.runtime: Runtime = model.runtime
        self.info: ModelInfo = model.info
        settings = model.info.settings
        self.boxes = _changed(settings.build("boxes", BoxesFromMap), boxes or {})
        self.views = PageViews.of_settings(settings, scales)
        self.large_pages = LargePages(tile)
        needed = max(self.views.sides(self.views.letterbox.size))
        self.decode = Decode(needed_side=needed, max_pixels=max_pixels)

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        device: str = "auto",
        threads: int | None = None,
        boxes: Mapping[str, Any] | None = None,
        max_pixels: int = MAX_PIXELS,
        tile: int | str | None = AUTO,
        scales: Sequence[float] = (1.0,),
    ) -> Self:
        """A detector from a checkpoint (.ckpt, .safetensors), what `ocr export` wrote, or the package's own weights.

        `device` is auto, cpu, cuda, or a name that the runtime knows; `threads` limits the cores of the model;
        `boxes` changes settings of `BoxesFromMap`, such as {"thresh": 0.4}; `max_pixels` limits the size of a page.
        `tile` says which pages are done in windows (see `LargePages`); `scales` are sizes of the page, relative to that
        of the training, whose maps are averaged.
        """
        if threads is not None:
            check_integer("threads", threads, minimum=1)
        warm_up()  # With a progress bar, instead of a first page that takes a minute without a word.
        model = open_model(packaged_detector() if path is None else path, device, threads)
        return cls(model, boxes, max_pixels, tile, scales)

    def __call__(self, source: object) -> Any:
        """A TextPage for one image (path, bytes, array, Pillow image); a list for a PDF, many pages or an iterable."""
        if is_single(source):
            (page,) = pages_of(source)
            return self.on_page(page)
        return list(PageStream(self, pages_of(source)))

    def stream(
        self, sources: object, batch_size: int = 8, readers: int = 2, on_bad_sample: str = "raise"
    ) -> PageStream:
        """Pages in their order, while the next ones are decoded, and boxes of the last ones are found, in threads.

        `sources` is also a folder or a glob pattern. With on_bad_sample="skip", pages that cannot be read are left
        out and listed in `skipped` of the stream.
        """
        return PageStream(self, pages_below(sources), batch_size, readers, on_bad_sample)

    def on_page(self, page: PageSource) -> TextPage:
        """One page from its pixels to its boxes, without threads."""
        pixels = PagePixels(page)
        views = self.views.of_page(pixels.read(self.decode))
        if self.is_large(views):
            return self.text_page(page, views[0], self.large_pages.find(self, pixels, views))
        pixels.release()
        return self.text_page(page, views[0], self.boxes_of(views))

    def prepare(self, page: PageSource) -> Sample:
        """A page as the model sees it, filled up on the right and at the bottom to a size that every runtime takes."""
        return self.prepare_views(page)[0]

    def prepare_views(self, page: PageSource) -> Views:
        """As `prepare`, once per scale."""
        return self.views.of_page(page.read(self.decode))

    def is_large(self, views: Views) -> bool:
        """Whether a page is done in windows."""
        size = self.views.letterbox.size
        return self.large_pages.sides(max(views[0].shape), size) != [size]

    def maps(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Probability maps (B, H, W) of prepared pages of one size."""
        return self.runtime(np.ascontiguousarray(pages_bhwc))

    def maps_of_views(self, pages: Sequence[Views]) -> NDArray[np.float32]:
        """Probability maps (B, H, W) of pages with views of the same sizes, on the grids of the first ones."""
        by_scale = [self.maps(np.stack([view.image for view in views])) for views in zip(*pages, strict=True)]
        if len(by_scale) == 1:
            return by_scale[0]
        by_page = zip(zip(*by_scale, strict=True), pages, strict=True)
        return np.stack([on_first_grid(maps, views) for maps, views in by_page])

    def boxes_of(self, views: Views) -> Detections:
        """The boxes of a page that is done whole."""
        return self.boxes(self.maps_of_views([views])[0], views[0].inverse_matrix, views[0].shape)

    def text_page(self, page: PageSource, sample: Sample, found: Detections) -> TextPage:
        """The result for a prepared page."""
        return TextPage(page, *sample.shape, found, self.decode)

    def __repr__(self) -> str:
        info = self.info
        return f"Detector({info.format} {info.precision}, {self.views.letterbox!r}, {self.boxes!r})"


def _changed(boxes: BoxesFromMap, changes: Mapping[str, Any]) -> BoxesFromMap:
    known = [item.name for item in fields(BoxesFromMap)]
    for name in changes:
        if name not in known:
            raise ConfigError(
                f"boxes: {name} is not a setting of BoxesFromMap: {near_names(name, known)}",
                setting=f"boxes.{name}",
                value=changes[name],
            )
    return replace(boxes, **changes)
