"""ONNX Runtime: model.onnx on the CPU, or on CUDA if the installed package can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.deploy.model_file import ModelInfo
from ocr.deploy.runtimes import Model
from ocr.errors import ConfigError
from ocr.optional import require

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


class OnnxRuntime:
    """A session of ONNX Runtime."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.input = session.get_inputs()[0].name

    def __call__(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self.session.run(None, {self.input: pages_bhwc})[0]
        return found


def open_model(path: Path, device: str, threads: int | None) -> Model:
    runtime = start(str(path), device, threads)
    metadata = runtime.session.get_modelmeta().custom_metadata_map
    return Model(runtime, ModelInfo.from_metadata(metadata, str(path)))


def start(model: str | bytes, device: str = "auto", threads: int | None = None) -> OnnxRuntime:
    """A session of a file, or of the bytes of one."""
    name = model if isinstance(model, str) else "the model"
    library = require("onnxruntime", f"Running {name}")
    options = library.SessionOptions()
    options.log_severity_level = 3  # Its warnings are about graph optimisations.
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = library.InferenceSession(model, options, providers=_providers(library, device))
    except ConfigError:
        raise
    except Exception as error:  # The library's own errors share no base class.
        raise ConfigError(
            f"{name} is not a model that ONNX Runtime can read ({_first_line(error)})", path=name
        ) from error
    return OnnxRuntime(session)


def _providers(library: Any, device: str) -> list[str]:
    available = library.get_available_providers()
    if device == "cpu" or (device == "auto" and CUDA not in available):
        return [CPU]
    if CUDA not in available or device.partition(":")[0] not in ("auto", "cuda"):
        raise ConfigError(
            f"device={device}: this ONNX Runtime has {', '.join(available)}. Set device=cpu, or for CUDA "
            "pip install onnxruntime-gpu",
            setting="device",
            value=device,
        )
    return [CUDA, CPU]


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
