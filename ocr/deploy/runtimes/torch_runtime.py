"""torch: checkpoints as they are, and TorchScript."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.deploy.graph import DetectorGraph
from ocr.deploy.model_file import EXPORT_KEY, ModelInfo, check_settings, format_of
from ocr.deploy.runtimes import Model
from ocr.errors import ConfigError
from ocr.models.detector import TextDetector
from ocr.models.load import load_detector
from ocr.models.settings import METADATA_KEY, DetectorSettings
from ocr.pipeline.device import Normalize


class TorchRuntime:
    """A graph of torch on one device."""

    def __init__(self, graph: Callable[[torch.Tensor], torch.Tensor], device: torch.device) -> None:
        self.graph, self.device = graph, device

    def __call__(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        with torch.inference_mode():
            maps = self.graph(torch.from_numpy(pages_bhwc).to(self.device))
            found: NDArray[np.float32] = maps.cpu().numpy()
            return found


def open_model(path: Path, device: str, threads: int | None) -> Model:
    where = _device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    if format_of(path) == "torch":
        detector, settings = load_detector(path, "model")
        check_settings(settings, str(path))
        return wrap_detector(detector, settings, where)
    metadata = dict.fromkeys((METADATA_KEY, EXPORT_KEY), "")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "`torch.jit.load` is deprecated")
            script = torch.jit.load(str(path), map_location=where, _extra_files=metadata)  # type: ignore[no-untyped-call]
    except Exception as error:  # Damaged bytes end in any error of the reader.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"{path} is not a model that `glyphfeed export --to torchscript` wrote ({reason})", path=path
        ) from error
    given = {key: _text(value) for key, value in metadata.items() if value}
    return Model(TorchRuntime(script, where), ModelInfo.from_metadata(given, str(path)))


def wrap_detector(detector: TextDetector, settings: DetectorSettings, device: torch.device | None = None) -> Model:
    """A detector that is already loaded."""
    where = device or torch.device("cpu")
    graph = DetectorGraph(detector, settings.build("normalization", Normalize)).eval().to(where)
    return Model(TorchRuntime(graph, where), ModelInfo(settings))


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"device={name} cannot be used here ({reason}). Set device=cpu", setting="device", value=name
        ) from error
    return device


def _text(value: str | bytes) -> str:
    # Damaged text is then rejected as JSON.
    return value.decode(errors="replace") if isinstance(value, bytes) else value
