"""Detector: text in anything that holds pages, with the same result whatever runs the model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from ocr.checks import check_choice, check_integer
from ocr.deploy.inputs import PagePixels, PageSource, is_single, pages_of
from ocr.deploy.model_file import ModelInfo
from ocr.deploy.page import TextPage, TextPages
from ocr.deploy.runtimes import MIN_SIDE, Model, Runtime, open_model
from ocr.deploy.stream import PageStream
from ocr.deploy.tiles import AUTO, Tiles
from ocr.errors import ConfigError, near_names
from ocr.evaluation.boxes import BoxesFromMap, Detections
from ocr.geometry.kernels.warm_up import compile_missing
from ocr.models.packaged import BUNDLED, packaged_detector
from ocr.models.settings import DetectorSettings
from ocr.pipeline.decode import Decode
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample, rounded_up

if TYPE_CHECKING:
    import torch
    from PIL import Image

    Path_ = str | os.PathLike[str]
    Pixels = NDArray[Any] | Image.Image | torch.Tensor

MAX_PIXELS = Decode().max_pixels
QUAD, CURVED = "quad", "curved"


class Detector:
    """Finds the text on pages: paths, bytes, arrays, tensors, Pillow images, PDFs, folders, or many of them.

    `detector("page.jpg")` is a TextPage, and so is every single image. A PDF, a TIFF of several pages, a folder, a
    pattern, a batch (B, H, W, 3) or a list gives TextPages, a list. `page` and `pages` always give one, or a list.
    """

    def __init__(
        self,
        model: Model,
        boxes: Mapping[str, Any] | None = None,
        max_pixels: int = MAX_PIXELS,
        tile: int | str | None = AUTO,
        polygons: str | None = None,
    ) -> None:
        self.model = model
        self.runtime: Runtime = model.runtime
        self.info: ModelInfo = model.info
        settings = model.info.settings
        self.boxes = _boxes(settings, boxes or {}, polygons)
        self.preparation = Preparation.of_settings(settings)
        self.tiles = Tiles(tile)
        self.decode = Decode(needed_side=self.page_size, max_pixels=max_pixels)

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
        polygons: str | None = None,
    ) -> Self:
        """A detector from a checkpoint (.ckpt, .safetensors) or what `glyphfeed export` wrote.

        Without a path it is the bundled one, which is also "glyphfeed".

        `device` is auto, cpu, cuda, or a name that the runtime knows; `threads` limits the cores of the model;
        `boxes` changes settings of `BoxesFromMap`, such as {"thresh": 0.4}; `max_pixels` limits the size of a page.
        `tile` says which pages are done in windows (see `Tiles`). `polygons` are "quad", rectangles at any angle, or
        "curved", outlines with as many corners as the text needs; by default "quad" if the detector was trained on
        quadrilaterals.
        """
        if threads is not None:
            check_integer("threads", threads, minimum=1)
        compile_missing()  # With a progress bar, instead of a first page that takes a minute without a word.
        file = packaged_detector() if path is None or path == BUNDLED else path
        return cls(open_model(file, device, threads), boxes, max_pixels, tile, polygons)

    @overload
    def __call__(self, source: Pixels) -> TextPage: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, source: Path_ | bytes) -> TextPage | TextPages: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, source: Iterable[Path_ | bytes | Pixels]) -> TextPages: ...

    def __call__(self, source: Any) -> TextPage | TextPages:
        """A TextPage for one image; TextPages for a PDF, a folder, a pattern, a batch or an iterable."""
        return self.page(source) if is_single(source) else self.pages(source)

    def page(self, source: Path_ | bytes | Pixels) -> TextPage:
        """The only page of a source; raises ConfigError if it has several."""
        found = [page for page, _ in zip(pages_of(source), range(2), strict=False)]
        if len(found) != 1:
            raise ConfigError(
                f"{source!s:.80} has {len(found) or 'no'} pages, or more. Pass it to pages()", value=source
            )
        return self.on_page(found[0])

    def pages(self, source: object) -> TextPages:
        """All pages of a source, as a list, even if it is one."""
        return TextPages(self.stream(source))

    def stream(
        self, sources: object, batch_size: int = 8, readers: int = 2, on_bad_sample: str = "raise"
    ) -> PageStream:
        """Pages in their order, one at a time: the next ones are decoded in threads, in which boxes are found, too.

        With on_bad_sample="skip", pages that cannot be read are left out and listed in `skipped` of the stream.
        """
        return PageStream(self, pages_of(sources), batch_size, readers, on_bad_sample)

    def to(self, device: str) -> Self:
        """Move the model to a device, such as "cuda", "cuda:1" or "cpu"; returns this detector."""
        self.model = self.model.on(device)
        self.runtime = self.model.runtime
        return self

    @property
    def page_size(self) -> int:
        """Longest side of a page as the model sees it."""
        return self.preparation.letterbox.size

    def on_page(self, page: PageSource) -> TextPage:
        """One page from its pixels to its boxes, without threads."""
        pixels = PagePixels(page)
        sample = self.preparation(pixels.read(self.decode))
        if self.is_large(sample):
            return self.text_page(page, sample, self.tiles.find(self, pixels, sample))
        pixels.release()
        return self.text_page(page, sample, self.boxes_of(sample))

    def prepare(self, page: PageSource) -> Sample:
        """A page as the model sees it, filled up on the right and at the bottom to a size that every runtime takes."""
        return self.preparation(page.read(self.decode))

    def is_large(self, sample: Sample) -> bool:
        """Whether a page is done in windows."""
        return self.tiles.sides(max(sample.shape), self.page_size) != [self.page_size]

    def maps(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Probability maps (B, H, W) of prepared pages of one size."""
        return self.runtime(np.ascontiguousarray(pages_bhwc))

    def boxes_of(self, sample: Sample) -> Detections:
        """The boxes of a prepared page that is done whole."""
        return self.boxes(self.maps(sample.image[None])[0], sample.inverse_matrix, sample.shape)

    def text_page(self, page: PageSource, sample: Sample, found: Detections) -> TextPage:
        """The result for a prepared page."""
        return TextPage(page, *sample.shape, found, self.decode)

    def __repr__(self) -> str:
        info = self.info
        return f"Detector({info.format} {info.precision}, {self.preparation.letterbox!r}, {self.boxes!r})"


@dataclass(frozen=True, slots=True)
class Preparation:
    """Makes of a decoded page what the model was trained to see."""

    letterbox: Letterbox
    margin: tuple[int, ...]
    """Pixel around a page: the letterbox's fill in a batch of shapes, else what the model pads with itself."""

    @classmethod
    def of_settings(cls, settings: DetectorSettings) -> Preparation:
        letterbox, normalize = settings.build("letterbox", Letterbox), settings.build("normalization", Normalize)
        mean = np.round(np.array(normalize.mean) * normalize.max_pixel_value)
        fill = np.full(3, letterbox.fill) if letterbox.shape == "page" else mean
        return cls(letterbox, tuple(fill.clip(0, 255).astype(int).tolist()))

    def __call__(self, page: Sample) -> Sample:
        return self.filled_up(self.letterbox(page))

    def enlarged(self, page: Sample, longest: int) -> Sample:
        """A page whose longest side becomes `longest`, not yet filled up."""
        return replace(self.letterbox, size=longest, shape="page", position="top_left")(page)

    def filled_up(self, sample: Sample) -> Sample:
        """A page, filled up on the right and at the bottom to a size that every runtime takes."""
        height, width = (max(side, MIN_SIDE) for side in rounded_up(sample.height, sample.width))
        if (height, width) == (sample.height, sample.width):
            return sample
        canvas = np.empty((height, width, 3), dtype=np.uint8)
        canvas[: sample.height, : sample.width] = sample.image
        canvas[sample.height :] = self.margin
        canvas[: sample.height, sample.width :] = self.margin
        return replace(sample, image=canvas)


def _boxes(settings: DetectorSettings, changes: Mapping[str, Any], polygons: str | None) -> BoxesFromMap:
    """As the model's file says, with the changes of the user."""
    known = [item.name for item in fields(BoxesFromMap)]
    for name in changes:
        if name not in known:
            raise ConfigError(
                f"boxes: {name} is not a setting of BoxesFromMap. {near_names(name, known)}",
                setting=f"boxes.{name}",
                value=changes[name],
            )
    boxes = settings.build("boxes", BoxesFromMap)
    if polygons is not None:
        check_choice("polygons", polygons, (QUAD, CURVED))
    elif settings.trained_on == QUAD:
        polygons = QUAD
    curved = boxes.use_polygon if polygons is None else polygons == CURVED
    return replace(boxes, **({"use_polygon": curved} | dict(changes)))
