"""TensorRT: model.engine on an NVIDIA GPU. The file is the length of its metadata, the metadata as JSON, the engine."""

from __future__ import annotations

import json
import struct
import threading
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ocr.deploy.graph import INPUT, OUTPUT
from ocr.deploy.model_file import ModelInfo
from ocr.deploy.runtimes import Model
from ocr.errors import ConfigError
from ocr.optional import require

MAX_METADATA = 1 << 24


class TensorrtRuntime:
    """An execution context of TensorRT; torch owns the memory on the device."""

    def __init__(self, engine_bytes: bytes, device: torch.device, source: str) -> None:
        library = require("tensorrt", f"Running {source}")
        self.device = device
        # The engine does not outlive its runtime.
        self._runtime = library.Runtime(library.Logger(library.Logger.ERROR))
        engine = self._runtime.deserialize_cuda_engine(engine_bytes)
        if engine is None:
            raise ConfigError(
                f"{source}: the engine is damaged, or was built by another TensorRT or for another GPU (here "
                f"{library.__version__}). Export it again on this machine",
                path=source,
            )
        self._context = engine.create_execution_context()
        # The context holds shape and addresses of one call.
        self._at_work = threading.Lock()

    def __call__(self, pages_bhwc: NDArray[np.uint8]) -> NDArray[np.float32]:
        pages = torch.from_numpy(pages_bhwc).to(self.device)
        maps = torch.empty(pages.shape[:3], dtype=torch.float32, device=self.device)
        with self._at_work:
            self._context.set_input_shape(INPUT, tuple(pages.shape))
            self._context.set_tensor_address(INPUT, pages.data_ptr())
            self._context.set_tensor_address(OUTPUT, maps.data_ptr())
            stream = torch.cuda.current_stream(self.device)
            if not self._context.execute_async_v3(stream.cuda_stream):
                raise RuntimeError(f"TensorRT failed on pages of {tuple(pages.shape)}")
            found: NDArray[np.float32] = maps.cpu().numpy()
        return found


def open_model(path: Path, device: str, threads: int | None) -> Model:
    info, engine = unpack(path.read_bytes(), str(path))
    require("tensorrt", f"Running {path}")
    if not torch.cuda.is_available():
        raise ConfigError(
            f"{path} needs an NVIDIA GPU, and torch finds none. Export --to onnx or --to openvino", path=path
        )
    return Model(TensorrtRuntime(engine, torch.device("cuda" if device == "auto" else device), str(path)), info)


def pack(info: ModelInfo, engine: bytes) -> bytes:
    """The content of a file."""
    metadata = json.dumps(info.to_metadata()).encode()
    return struct.pack("<I", len(metadata)) + metadata + engine


def unpack(content: bytes, source: str) -> tuple[ModelInfo, bytes]:
    """Metadata and engine of a file; raises ConfigError if GlyphFeed did not write it."""
    try:
        (length,) = struct.unpack_from("<I", content)
        metadata = json.loads(content[4 : 4 + min(length, MAX_METADATA)])
        engine = content[4 + length :]
        if not isinstance(metadata, dict):
            raise ValueError("no metadata")
    except (struct.error, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{source} is not an engine that `glyphfeed export --to tensorrt` wrote ({error}). Export it again",
            path=source,
        ) from error
    return ModelInfo.from_metadata(metadata, source), engine
