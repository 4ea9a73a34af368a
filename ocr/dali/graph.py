"""ocr_pipeline: decoding, letterbox, random stages and normalisation of a dataset's pages as a graph of NVIDIA DALI."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from ocr.checks import check_choice
from ocr.dali.plan import Plan, divide
from ocr.dali.protocol import DecodablePages
from ocr.dali.requests import HALVINGS, PageReader, Request
from ocr.errors import ConfigError, StageError
from ocr.optional import require
from ocr.pipeline.device import Normalize
from ocr.pipeline.pixels import ColourJitter, RandomBlur

log = logging.getLogger(__name__)
PURPOSE = "use_dali=true"
DEVICES = ("auto", "cpu", "gpu")
SUFFIXES = ("auto", "dali", "host")
MAPS = ("host", "device")
_warned: set[str] = set()


class RefusedError(StageError):
    """DALI could not process a batch."""


def ocr_pipeline(
    dataset: DecodablePages,
    batch_size: int = 16,
    num_threads: int = 2,
    *,
    device: str = "auto",
    device_id: int = 0,
    suffix: str = "auto",
    maps: str = "host",
    model_device: torch.device | str | None = None,
) -> OCRPipeline:
    """The part of a dataset's path that DALI runs, for `DALIDataLoader`.

    `device`: "auto" takes a GPU if there is one. `suffix`: where random stages run; "auto" means in DALI on a GPU, and
    on the host after DALI on a CPU, where DALI's warp takes 16 times as long as OpenCV's. `maps="device"` draws the
    bands of the threshold maps on the GPU. Images are normalised if the dataset normalises on the host, or if
    `model_device` is the device that DALI runs on.
    """
    check_choice("dali.device", device, DEVICES)
    check_choice("dali.suffix", suffix, SUFFIXES)
    check_choice("dali.maps", maps, MAPS)
    require("nvidia.dali", PURPOSE)
    _refuse_dataset(dataset)
    on_gpu = _has_gpu(device)
    if maps == "device" and not on_gpu:
        problem = "dali.maps=device, but DALI runs on the CPU here. Set dali.maps=host"
        raise ConfigError(problem, setting="dali.maps", value=maps)
    plan = divide(dataset.transform.stages, random_too=suffix == "dali" or (suffix == "auto" and on_gpu))
    if plan.rest and on_gpu:
        raise ConfigError(
            f"use_dali=true, but DALI has no operator for {plan.rest[0]!r}, and pages do not come back from the GPU "
            "for it. Leave it out of the transforms, or set dali.device=cpu: there the host runs it after DALI",
            setting="transforms",
            value=plan.rest[0],
        )
    if plan.rest and suffix == "dali":
        log.warning("use_dali=true: the host runs these stages after DALI: %s", " -> ".join(map(repr, plan.rest)))
    return OCRPipeline(dataset, plan, batch_size, num_threads, device_id if on_gpu else None, maps, model_device)


class OCRPipeline:
    """A graph of DALI, built when it first runs, and built again after a page that it could not decode."""

    def __init__(
        self,
        dataset: DecodablePages,
        plan: Plan,
        batch_size: int,
        num_threads: int,
        device_id: int | None,
        maps: str,
        model_device: torch.device | str | None,
    ) -> None:
        self.dataset, self.plan, self.reader = dataset, plan, PageReader(dataset, plan)
        self.batch_size, self.num_threads, self.device_id, self.maps = batch_size, num_threads, device_id, maps
        transform = dataset.transform
        # If the model is on another device, pages stay uint8: a quarter of the bytes to copy.
        at_model = model_device is not None and torch.device(model_device).type == self.device.type
        wanted = at_model or transform.host_normalization is not None
        # Stages after DALI get uint8 pixels, as with every other loader.
        self.normalization = transform.normalization if wanted and not plan.rest else None
        self._graph: Any = None
        self._lock = threading.Lock()

    @property
    def device(self) -> torch.device:
        """The device that the pages of a batch are on."""
        return torch.device("cpu") if self.device_id is None else torch.device("cuda", self.device_id)

    def run(self, requests: Sequence[Request]) -> torch.Tensor:
        """The pages as (B, 3, H, W): uint8, or normalised floats. A `RefusedError` if DALI fails on one of them."""
        with self._lock:
            graph = self._graph or self._build()
            # Kept again only after success: a graph that failed once cannot run again.
            self._graph = None
            for name in requests[0].inputs:
                graph.feed_input(name, [request.inputs[name] for request in requests])
            try:
                (pages,) = graph.run()
                batch: torch.Tensor = torch.utils.dlpack.from_dlpack(pages.as_tensor())
            except RuntimeError as error:
                names = [request.sample.filename for request in requests]
                raise RefusedError(f"DALI failed on {', '.join(names)}: {error}", value=names) from error
            if self.device_id is not None:
                batch = _own_copy(batch)
            self._graph = graph
        return batch if self.normalization is not None else batch.permute(0, 3, 1, 2)

    def find_refused(self, requests: Sequence[Request]) -> list[int]:
        """The indices of those that DALI cannot process even alone."""
        refused = []
        for request in requests:
            try:
                self.run([request])
            except RefusedError:
                refused.append(request.sample.index)
        return refused

    def __repr__(self) -> str:
        steps = [self.dataset.decode, self.plan.letterbox, *self.plan.geometry, *self.plan.colours]
        in_dali = " -> ".join(map(repr, [*steps, self.normalization] if self.normalization else steps))
        after = " -> ".join(map(repr, self.plan.rest))
        return f"DALI on {self.device}: {in_dali}" + (f" | then on the host: {after}" if after else "")

    def _build(self) -> Any:
        dali = require("nvidia.dali", PURPOSE)
        pipeline = dali.pipeline_def(_define, enable_conditionals=True)(
            self.plan,
            self.normalization,
            self.device_id is not None,
            import_module("nvidia.dali.fn"),
            import_module("nvidia.dali.types"),
            # One rank may get one page more than the others in its last batch.
            batch_size=self.batch_size + 1,
            num_threads=self.num_threads,
            device_id=self.device_id,
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
        matrix, fill = external("matrix", types.FLOAT, 2), plan.letterbox.fill
        size = external("out", types.FLOAT, 1) if plan.sizes_vary else [plan.side, plan.side]
        page = fn.warp_affine(
            page, matrix=matrix, size=size, fill_value=fill, inverse_map=False, interp_type=types.INTERP_LINEAR
        )
    for number, stage in enumerate(plan.colours):
        page = _recolour(page, number, stage, external, fn, types)
    if plan.keeps_shape:
        page = fn.slice(
            page, external("origin", types.INT32, 1), external("batch", types.INT32, 1), axes=[0, 1], **padded
        )
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
    for number in range(HALVINGS):
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
    if "no gpu" not in _warned:
        _warned.add("no gpu")
        log.warning(
            "use_dali=true: there is no GPU here, so DALI runs on the CPU, where the default loader is faster: "
            "use_dali=false. Set dali.device=cpu to silence this warning"
        )
    return False


def _refuse_dataset(dataset: object) -> None:
    if not isinstance(dataset, DecodablePages):
        raise ConfigError(
            f"use_dali=true, but {type(dataset).__name__} does not know its pages in advance: shards need the index "
            "that `ocr convert` writes. Convert again, or set use_dali=false",
            setting="use_dali",
            value=type(dataset).__name__,
        )
    if dataset.cache is not None:
        raise ConfigError(
            "use_dali=true decodes every page in every epoch, so there is nothing to cache or preload. Set "
            "data.cache=off, preload_images=false, preload_maps=false, or use_dali=false",
            setting="data.cache",
        )
    if dataset.source.is_ready:
        raise ConfigError(
            f"use_dali=true, but the samples of {dataset.source.location} are decoded already. Read raw shards, or set "
            "use_dali=false",
            setting="use_dali",
            path=dataset.source.location,
        )
