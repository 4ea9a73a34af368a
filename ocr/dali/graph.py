"""ocr_pipeline: decoding, letterbox, random stages and normalisation of a dataset's pages as a graph of NVIDIA DALI."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch

from ocr.checks import check_choice
from ocr.dali.plan import Plan, divide
from ocr.dali.requests import DIVISORS, PageReader, Request
from ocr.errors import ConfigError, StageError
from ocr.optional import require
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.path import PagePath, path_of
from ocr.pipeline.pixels import ColourJitter, RandomBlur

log = logging.getLogger(__name__)
PURPOSE = "use_dali=true"
DEVICES = ("auto", "cpu", "gpu")
SUFFIXES = ("auto", "dali", "host")


class RefusedError(StageError):
    """DALI could not process a batch."""


def ocr_pipeline(
    dataset: Any,
    batch_size: int = 16,
    num_threads: int = 2,
    *,
    device: str = "auto",
    device_id: int = 0,
    suffix: str = "auto",
    model_device: torch.device | str | None = None,
) -> OCRPipeline:
    """The part of the path of a dataset's pages that DALI runs, for `DALIDataLoader`.

    `device`: "auto" takes a GPU if there is one. `suffix`: where random stages run; "auto" means in DALI on a GPU, and
    on the host after DALI on a CPU, where DALI's warp takes 16 times as long as OpenCV's. Images are normalised if the
    dataset normalises on the host, or if `model_device` is the device that DALI runs on.
    """
    check_choice("dali.device", device, DEVICES)
    check_choice("dali.suffix", suffix, SUFFIXES)
    require("nvidia.dali", PURPOSE)
    path = _decodable(dataset)
    on_gpu = _has_gpu(device)
    plan = divide((*path.fixed, *path.random), random_too=suffix == "dali" or (suffix == "auto" and on_gpu))
    if plan.rest and on_gpu:
        raise ConfigError(
            f"use_dali=true, but DALI has no operator for {plan.rest[0]!r}. Leave it out of the transforms, "
            "or set dali.device=cpu to run it on the host",
            setting="transforms",
            value=plan.rest[0],
        )
    if plan.rest and suffix == "dali":
        log.warning("use_dali=true: the host runs these stages after DALI: %s", " -> ".join(map(repr, plan.rest)))
    device_of_dali = torch.device("cuda", device_id) if on_gpu else torch.device("cpu")
    # If the model is on another device, pages stay uint8: a quarter of the bytes to copy.
    at_model = model_device is not None and torch.device(model_device).type == device_of_dali.type
    # Stages after DALI get uint8 pixels, as with every other loader.
    is_normalized = (at_model or path.normalize is not None) and not plan.rest
    normalization = path.normalization if is_normalized else None
    return OCRPipeline(dataset, path, plan, normalization, device_of_dali, batch_size, num_threads)


class OCRPipeline:
    """A graph of DALI, built when it first runs, and rebuilt after a page that it could not decode."""

    def __init__(
        self,
        dataset: Any,
        path: PagePath,
        plan: Plan,
        normalization: Normalize | None,
        device: torch.device,
        batch_size: int,
        num_threads: int,
    ) -> None:
        """`normalization` is part of the graph; `device` is where the pages of a batch come out."""
        self.dataset, self.path, self.plan, self.reader = dataset, path, plan, PageReader(path, plan)
        self.normalization, self.device = normalization, device
        self.batch_size, self.num_threads = batch_size, num_threads
        self._graph: Any = None
        self._lock = threading.Lock()

    def run(self, requests: Sequence[Request], shape: tuple[int, int] | None = None) -> torch.Tensor:
        """The pages as (B, 3, H, W): uint8, or normalised floats. A `RefusedError` if DALI fails on one of them.

        `shape` is the (height, width) of the batch if pages keep their own shape.
        """
        inputs = {name: [request.inputs[name] for request in requests] for name in requests[0].inputs}
        if shape is not None:
            inputs["batch"] = [np.array(shape, dtype=np.int32)] * len(requests)
        with self._lock:
            graph = self._graph or self._build()
            # Kept again only after success: a graph that failed once cannot run again.
            self._graph = None
            for name, values in inputs.items():
                graph.feed_input(name, values)
            try:
                (pages,) = graph.run()
                batch: torch.Tensor = torch.utils.dlpack.from_dlpack(pages.as_tensor())
            except RuntimeError as error:
                names = [request.sample.filename for request in requests]
                raise RefusedError(f"DALI failed on {', '.join(names)}: {error}", value=names) from error
            if self.device.type == "cuda":
                batch = _own_copy(batch)
            self._graph = graph
        return batch if self.normalization is not None else batch.permute(0, 3, 1, 2)

    def find_refused(self, requests: Sequence[Request], shape: tuple[int, int] | None = None) -> set[int]:
        """The indices of the pages that DALI cannot process even alone."""
        refused = set()
        for request in requests:
            try:
                self.run([request], shape)
            except RefusedError:
                refused.add(request.sample.index)
        return refused

    def __repr__(self) -> str:
        steps = [self.path.decode, self.plan.letterbox, *self.plan.geometry, *self.plan.colours]
        in_dali = " -> ".join(map(repr, [*steps, self.normalization] if self.normalization else steps))
        after = " -> ".join(map(repr, self.plan.rest))
        return f"DALI on {self.device}: {in_dali}" + (f" | then on the host: {after}" if after else "")

    def _build(self) -> Any:
        dali = require("nvidia.dali", PURPOSE)
        pipeline = dali.pipeline_def(_define, enable_conditionals=True)(
            self.plan,
            self.normalization,
            self.device.type == "cuda",
            import_module("nvidia.dali.fn"),
            import_module("nvidia.dali.types"),
            # One rank can get one page more than the others in its last batch.
            batch_size=self.batch_size + 1,
            num_threads=self.num_threads,
            device_id=self.device.index,
            # Threads of the loader prefetch; DALI gets one batch at a time.
            prefetch_queue_depth=1,
        )
        pipeline.build()
        return pipeline


def _define(plan: Plan, normalization: Normalize | None, on_gpu: bool, fn: Any, types: Any) -> Any:
    """The graph; DALI evaluates an `if` on an external input for each page."""

    def external(name: str, dtype: Any, ndim: int, **settings: Any) -> Any:
        return fn.external_source(name=name, dtype=dtype, ndim=ndim, **settings)

    page = _decode(on_gpu, external, fn, types)
    start, shape = external("start", types.INT32, 1), external("shape", types.INT32, 1)
    padded = {"out_of_bounds_policy": "pad", "fill_values": plan.letterbox.fill}
    page = fn.slice(page, start, shape, axes=[0, 1], **padded)
    if plan.geometry:
        page = fn.warp_affine(
            page,
            matrix=external("matrix", types.FLOAT, 2),
            size=external("out", types.FLOAT, 1),
            fill_value=plan.letterbox.fill,
            inverse_map=False,
            interp_type=types.INTERP_LINEAR,
        )
    for number, stage in enumerate(plan.colours):
        page = _recolour(page, number, stage, external, fn, types)
    if plan.keeps_shape:
        page = fn.slice(page, start=[0, 0], shape=external("batch", types.INT32, 1), axes=[0, 1], **padded)
    if normalization is None:
        return page
    peak = normalization.max_pixel_value
    mean, std = [peak * value for value in normalization.mean], [peak * value for value in normalization.std]
    return fn.crop_mirror_normalize(page, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std)


def _decode(on_gpu: bool, external: Any, fn: Any, types: Any) -> Any:
    """Upright pages in the size that they have inside the letterbox, not yet padded."""
    page = fn.decoders.image(
        external("encoded", types.UINT8, 1, no_copy=True),
        device="mixed" if on_gpu else "cpu",
        output_type=types.RGB,
        # Rotated below by the orientation that we read ourselves, so that pixels and polygons always agree.
        adjust_orientation=False,
    )
    linear = {"interp_type": types.INTERP_LINEAR, "antialias": False}
    halvings = external("halvings", types.INT32, 0)
    for number in range(len(DIVISORS)):
        half = external(f"half_{number}", types.FLOAT, 1)
        if halvings > number:
            # Linear interpolation by exactly 2 is the mean of 2 x 2 pixels: close to a JPEG decoded at half size.
            page = fn.resize(page, size=half, **linear)
    page = fn.resize(page, size=external("size", types.FLOAT, 1), **linear)
    turned, flip_x, flip_y = (
        external("turned", types.BOOL, 0),
        external("flip_x", types.INT32, 0),
        external("flip_y", types.INT32, 0),
    )
    if turned:
        page = fn.transpose(page, perm=[1, 0, 2], output_layout="HWC")
    if flip_x + flip_y > 0:
        page = fn.flip(page, horizontal=flip_x, vertical=flip_y)
    return page


def _recolour(page: Any, number: int, stage: Any, external: Any, fn: Any, types: Any) -> Any:
    """The operator of a pixel stage."""
    on = external(f"on_{number}", types.BOOL, 0)
    if isinstance(stage, ColourJitter):
        matrix, shift = external(f"matrix_{number}", types.FLOAT, 2), external(f"shift_{number}", types.FLOAT, 1)
        if on:
            page = fn.coord_transform(page, M=matrix, T=shift, dtype=types.UINT8)
    elif isinstance(stage, RandomBlur):
        sigma, window = external(f"sigma_{number}", types.FLOAT, 1), external(f"window_{number}", types.INT32, 1)
        if on:
            page = fn.gaussian_blur(page, sigma=sigma, window_size=window)
    else:
        quality = external(f"quality_{number}", types.INT32, 0)
        if on:
            page = fn.jpeg_compression_distortion(page, quality=quality)
    return page


def _own_copy(batch: torch.Tensor) -> torch.Tensor:
    """A copy owned by torch: DALI reuses its memory, whatever torch's streams still read."""
    torch.cuda.synchronize(batch.device)
    copy = batch.clone()
    torch.cuda.synchronize(batch.device)
    return copy


def _has_gpu(device: str) -> bool:
    if device == "cpu":
        return False
    if torch.cuda.is_available():
        return True
    if device == "gpu":
        problem = "dali.device=gpu, but torch sees no GPU here. Set dali.device=auto or cpu"
        raise ConfigError(problem, setting="dali.device", value=device)
    _warn_of_cpu()
    return False


@cache
def _warn_of_cpu() -> None:
    """Once, for all splits."""
    log.warning(
        "use_dali=true runs DALI on the CPU, where the default loader is faster. Set "
        "use_dali=false, or dali.device=cpu to silence this warning"
    )


def _decodable(dataset: object) -> PagePath:
    """The path of a dataset whose pages DALI can decode."""
    path = path_of(dataset)
    if path is None:
        raise ConfigError(
            f"use_dali=true, but {type(dataset).__name__} is not a dataset of pages. Pass an OCRDataset or an "
            "OCRWebDataset, or set use_dali=false",
            setting="use_dali",
            value=type(dataset).__name__,
        )
    if path.cache is not None:
        raise ConfigError(
            "use_dali=true decodes every page in every epoch, so there is nothing to cache or preload. Set "
            "data.cache=off, preload_images=false, data.preload_everything=false, or use_dali=false",
            setting="data.cache",
        )
    if path.source.is_ready:
        raise ConfigError(
            f"use_dali=true, but the samples of {path.source.location} are decoded already. Read raw shards, or set "
            "use_dali=false",
            setting="use_dali",
            path=path.source.location,
        )
    return path
