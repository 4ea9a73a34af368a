"""What runs a model: one file per library, all with the same call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ocr.deploy.model_file import ModelInfo, find_model, format_of
from ocr.errors import ConfigError

MIN_SIDE = 64
"""Smallest height and width of a page: the exporter makes a side of one pixel at stride 32 a special case."""
# Loaded when a model of the kind is opened; each has `open_model(path, device, threads)`.
_HOMES = {
    "torch": "ocr.deploy.runtimes.torch_runtime",
    "torchscript": "ocr.deploy.runtimes.torch_runtime",
    "onnx": "ocr.deploy.runtimes.onnx_runtime",
    "openvino": "ocr.deploy.runtimes.openvino_runtime",
    "tensorrt": "ocr.deploy.runtimes.tensorrt_runtime",
}


class Runtime(Protocol):
    """Runs the graph of a detector."""

    def __call__(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Pages (B, H, W, 3), upright RGB, H and W multiples of 32 from 64 on, to probability maps (B, H, W)."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that is ready to run, and what its file says about it."""

    runtime: Runtime
    info: ModelInfo
    file: Path | None = None
    """None: it was made from a detector in memory."""
    threads: int | None = None

    def on(self, device: str) -> Model:
        """The same model on another device."""
        if self.file is None:
            raise ConfigError(
                f"device={device}: only a model that was loaded from a file can be moved",
                setting="device",
                value=device,
            )
        return open_model(self.file, device, self.threads)


def open_model(path: str | Path, device: str = "auto", threads: int | None = None) -> Model:
    """Open a checkpoint, a file that `glyphfeed export` wrote, or the folder of it.

    `threads` limits the cores that the model uses; None: the default of the library, all of them.
    """
    file = find_model(path)
    try:
        home = import_module(_HOMES[format_of(file)])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError(
            f"{file} runs with torch, which is not installed. Export it where torch is: "
            f"glyphfeed export {file.name} --to onnx",
            path=file,
        ) from error
    model: Model = replace(home.open_model(file, device, threads), file=file, threads=threads)
    if model.info.format != "torch":
        _try_out(model, file)
    return model


def _try_out(model: Model, file: Path) -> None:
    """Run the smallest page: a damaged graph, or one of another program, may open and fail on every page."""
    page = np.zeros((1, MIN_SIDE, MIN_SIDE, 3), dtype=np.uint8)
    try:
        found = model.runtime(page).shape
    except Exception as error:  # Errors of runtimes share no base class.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{file} opens, but does not run ({reason}). Export it again", path=file) from error
    if found != page.shape[:3]:
        raise ConfigError(
            f"{file} makes a map of {found} of a page of {page.shape[1:]}: GlyphFeed did not write it",
            value=found,
            path=file,
        )
