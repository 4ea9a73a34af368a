"""ocr_pipeline: decoding, letterbox, random stages and normalisation of a dataset's pages as a graph of NVIDIA DALI."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch

from ocr.dali.plan import Plan, divide
from ocr.dali.protocol import DecodablePages
from ocr.dali.requests import HALVINGS, PageReader, Request
from ocr.errors import ConfigError, StageError, near_names
from ocr.optional import require
from ocr.pipeline.device import Normalize
from ocr.pipeline.pixels import ColourJitter, RandomBlur

log = logging.getLogger(__name__)
PURPOSE = "use_dali=true"
DEVICES = ("auto", "cpu", "gpu")
SUFFIXES = ("auto", "dali", "host")
MAPS = ("host", "device")
_said: set[str] = set()


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

    `device`: "auto" takes a GPU where there is one. `suffix`: where random stages run; "auto" in DALI on a GPU, and
    on a CPU behind it on the host, for DALI's warp takes 16 times as long there as OpenCV's. `maps="device"` draws the
    bands of the threshold maps on the GPU. Images come out as the dataset gives them, and normalised where
    `model_device` is DALI's own.
    """
    for name, value, known in (("device", device, DEVICES), ("suffix", suffix, SUFFIXES), ("maps", maps, MAPS)):
        if value not in known:
            raise ConfigError(f"dali.{name}={value!r}: {near_names(str(value), list(known))}")
    require("nvidia.dali", PURPOSE)
    _refuse_dataset(dataset)
    on_gpu = _has_gpu(device)
    if maps == "device" and not on_gpu:
        raise ConfigError("dali.maps=device, but DALI runs on the CPU here. Set dali.maps=host")
    plan = divide(dataset.transform.stages, random_too=suffix == "dali" or (suffix == "auto" and on_gpu))
    if plan.rest and on_gpu:
        raise ConfigError(
            f"use_dali=true, but DALI has no operator for {plan.rest[0]!r}, and pages do not come back from the GPU "
            "for it. Leave it out of the transforms, or set dali.device=cpu, where the host runs it behind DALI"
        )
    if plan.rest and suffix == "dali":
        log.warning("use_dali=true: behind DALI the host runs %s", " -> ".join(map(repr, plan.rest)))
    return OCRPipeline(dataset, plan, batch_size, num_threads, device_id if on_gpu else None, maps, model_device)


class OCRPipeline:
    """A graph of DALI that is built when it first runs, and anew after a page that it could not decode."""

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
        # Towards another device, uint8 is a quarter of the bytes.
        at_model = model_device is not None and torch.device(model_device).type == self.device.type
        wanted = at_model or transform.host_normalization is not None
        # Stages behind DALI see pixels as they are in every other loader.
        self.normalization = transform.normalization if wanted and not plan.rest else None
        self._graph: Any = None
        self._lock = threading.Lock()

    @property
    def device(self) -> torch.device:
        """Where pages come out."""
        return torch.device("cpu") if self.device_id is None else torch.device("cuda", self.device_id)

    def run(self, requests: Sequence[Request]) -> torch.Tensor:
        """The pages as (B, 3, H, W): uint8, or normalised floats. A `RefusedError` where one of them is beyond DALI."""
        with self._lock:
            graph = self._graph or self._build()
            # Out of its place while it runs: what failed once is of no more use.
            self._graph = None
            for name in requests[0].inputs:
                graph.feed_input(name, [request.inputs[name] for request in requests])
            try:
                (pages,) = graph.run()
                batch: torch.Tensor = torch.utils.dlpack.from_dlpack(pages.as_tensor())
            except RuntimeError as error:
                names = ", ".join(request.sample.filename for request in requests)
                raise RefusedError(f"DALI failed on {names}: {error}") from error
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
        behind = " -> ".join(map(repr, self.plan.rest))
        return f"DALI on {self.device}: {in_dali}" + (f" | behind it: {behind}" if behind else "")

    def _build(self) -> Any:
        dali = require("nvidia.dali", PURPOSE)
        pipeline = dali.pipeline_def(_define, enable_conditionals=True)(
            self.plan,
            self.normalization,
            self.device_id is not None,
            import_module("nvidia.dali.fn"),
            import_module("nvidia.dali.types"),
            # Ranks with an odd page have it in one of their batches.
            batch_size=self.batch_size + 1,
            num_threads=self.num_threads,
            device_id=self.device_id,
            # Batches are handed over one by one, by threads of the loader.
            prefetch_queue_depth=1,
        )
        pipeline.build()
        return pipeline


def _define(plan: Plan, normalization: Normalize | None, on_gpu: bool, fn: Any, types: Any) -> Any:
    """The graph; an `if` over what is fed is taken page by page."""

    def fed(name: str, dtype: Any, ndim: int, **settings: Any) -> Any:
        return fn.external_source(name=name, dtype=dtype, ndim=ndim, **settings)

    page = _decode(on_gpu, fed, fn, types)
    start, shape = fed("start", types.INT32, 1), fed("shape", types.INT32, 1)
    padded = {"out_of_bounds_policy": "pad", "fill_values": plan.letterbox.fill}
    page = fn.slice(page, start, shape, axes=[0, 1], **padded)
    if plan.geometry:
        matrix, side, fill = fed("matrix", types.FLOAT, 2), plan.side, plan.letterbox.fill
        page = fn.warp_affine(
            page, matrix=matrix, size=[side, side], fill_value=fill, inverse_map=False, interp_type=types.INTERP_LINEAR
        )
    for number, stage in enumerate(plan.colours):
        page = _recolour(page, number, stage, fed, fn, types)
    if normalization is None:
        return page
    peak = normalization.max_pixel_value
    mean, std = [peak * value for value in normalization.mean], [peak * value for value in normalization.std]
    return fn.crop_mirror_normalize(page, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std)


def _decode(on_gpu: bool, fed: Any, fn: Any, types: Any) -> Any:
    """Pages upright and as large as the letterbox has them, but not padded."""
    page = fn.decoders.image(
        fed("encoded", types.UINT8, 1, no_copy=True),
        device="mixed" if on_gpu else "cpu",
        output_type=types.RGB,
        # Turned by what our own reading of the tag says, so that pixels and polygons agree whatever the tag holds.
        adjust_orientation=False,
    )
    linear = {"interp_type": types.INTERP_LINEAR, "antialias": False}
    halvings = fed("halvings", types.INT32, 0)
    for number in range(HALVINGS):
        half = fed(f"half_{number}", types.FLOAT, 1)
        if halvings > number:
            # Linear by exactly 2 is the mean of 2 x 2: the nearest there is to a JPEG that is decoded smaller.
            page = fn.resize(page, size=half, **linear)
    page = fn.resize(page, size=fed("size", types.FLOAT, 1), **linear)
    turned, flip_x, flip_y = fed("turned", types.BOOL, 0), fed("flip_x", types.INT32, 0), fed("flip_y", types.INT32, 0)
    if turned:
        page = fn.transpose(page, perm=[1, 0, 2], output_layout="HWC")
    if flip_x + flip_y > 0:
        page = fn.flip(page, horizontal=flip_x, vertical=flip_y)
    return page


def _recolour(page: Any, number: int, stage: Any, fed: Any, fn: Any, types: Any) -> Any:
    """The operator of a stage of colours."""
    on = fed(f"on_{number}", types.BOOL, 0)
    if isinstance(stage, ColourJitter):
        matrix, shift = fed(f"matrix_{number}", types.FLOAT, 2), fed(f"shift_{number}", types.FLOAT, 1)
        if on:
            page = fn.coord_transform(page, M=matrix, T=shift, dtype=types.UINT8)
    elif isinstance(stage, RandomBlur):
        sigma, window = fed(f"sigma_{number}", types.FLOAT, 1), fed(f"window_{number}", types.INT32, 1)
        if on:
            page = fn.gaussian_blur(page, sigma=sigma, window_size=window)
    else:
        quality = fed(f"quality_{number}", types.INT32, 0)
        if on:
            page = fn.jpeg_compression_distortion(page, quality=quality)
    return page


def _own_copy(batch: torch.Tensor) -> torch.Tensor:
    """A batch of torch's own: DALI knows nothing of the streams that read it, and uses its memory again."""
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
        raise ConfigError("dali.device=gpu, but torch sees no GPU here. Set dali.device=auto or cpu")
    if "no gpu" not in _said:
        _said.add("no gpu")
        log.warning(
            "use_dali=true: there is no GPU here, so DALI runs on the CPU, where the default loader is faster: "
            "use_dali=false. Set dali.device=cpu to say that it is meant"
        )
    return False


def _refuse_dataset(dataset: object) -> None:
    if not isinstance(dataset, DecodablePages):
        raise ConfigError(
            f"use_dali=true, but {type(dataset).__name__} does not know its pages in advance: shards need the index "
            "that `ocr convert` writes. Convert again, or set use_dali=false"
        )
    if dataset.cache is not None:
        raise ConfigError(
            "use_dali=true decodes every page in every epoch, so there is nothing to cache or preload. Set "
            "data.cache=off, preload_images=false, preload_maps=false, or use_dali=false"
        )
    if dataset.source.is_ready:
        raise ConfigError(
            f"use_dali=true, but the samples of {dataset.source.location} are decoded already. Read raw shards, or set "
            "use_dali=false"
        )
