"""OpenVINO: model.xml and model.bin, on the CPU unless another of its devices is named."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.deploy.model_file import EXPORT_KEY, ModelInfo
from ocr.deploy.runtimes import Model
from ocr.errors import ConfigError
from ocr.models.settings import METADATA_KEY
from ocr.optional import require


class OpenvinoRuntime:
    """A compiled model of OpenVINO."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self._request = compiled.create_infer_request()
        # A request takes one call at a time; others end in an error, or in the map of another page.
        self._at_work = threading.Lock()

    def __call__(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        # The input is read in place; the output is a copy, so the next call does not change it.
        with self._at_work:
            found: NDArray[np.float32] = self._request.infer([pages_bhwc], share_inputs=True)[0]
        return found


def open_model(path: Path, device: str, threads: int | None) -> Model:
    library = require("openvino", f"Running {path}")
    try:
        network = library.Core().read_model(path)
    except RuntimeError as error:
        raise ConfigError(f"{path} is not a model that OpenVINO can read ({_last_line(error)})", path=path) from error
    metadata = {
        key: str(network.get_rt_info(_name(key)).value)
        for key in (METADATA_KEY, EXPORT_KEY)
        if network.has_rt_info(_name(key))
    }
    info = ModelInfo.from_metadata(metadata, str(path))
    try:
        return Model(start(network, info.precision, device, threads), info)
    except RuntimeError as error:
        raise ConfigError(
            f"{path} is not a model that OpenVINO can compile ({_last_line(error)})", path=path
        ) from error


def start(network: Any, precision: str = "fp32", device: str = "auto", threads: int | None = None) -> OpenvinoRuntime:
    """Compile a model for a device."""
    library = require("openvino", "Running an OpenVINO model")
    core = library.Core()
    name = "CPU" if device in ("auto", "cpu") else device.upper()
    if not is_listed(name, core.available_devices):
        raise ConfigError(
            f"device={device}: OpenVINO finds {', '.join(core.available_devices)} here. Set device to one of them",
            setting="device",
            value=device,
        )
    options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if name == "CPU":
        # By itself it computes in bfloat16 wherever the processor can, which is another precision than was checked.
        options["INFERENCE_PRECISION_HINT"] = "bf16" if precision == "bf16" else "f32"
        if threads is not None:
            options["INFERENCE_NUM_THREADS"] = threads
    return OpenvinoRuntime(core.compile_model(network, name, options))


def is_listed(name: str, devices: Sequence[str]) -> bool:
    """Whether a device is there: of several GPUs OpenVINO lists GPU.0 and GPU.1, and a plain GPU is the first.

    >>> is_listed("GPU.1", ["CPU", "GPU.0", "GPU.1"]), is_listed("GPU", ["CPU", "GPU.0", "GPU.1"])
    (True, True)
    >>> is_listed("GPU.0", ["CPU", "GPU"]), is_listed("GPU.2", ["CPU", "GPU.0", "GPU.1"]), is_listed("NPU", ["CPU"])
    (True, False, False)
    """
    return name in {*devices, *(listed.partition(".")[0] for listed in devices)} or name.partition(".")[0] in devices


def write_metadata(network: Any, info: ModelInfo) -> None:
    """Put the metadata into a model that is about to be saved."""
    for key, value in info.to_metadata().items():
        network.set_rt_info(value, _name(key))


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


def _name(key: str) -> str:
    # A dot would be read as a path.
    return key.replace(".", "_")
