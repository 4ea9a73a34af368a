"""TensorRT: an engine for the GPU of this machine, from an ONNX model."""

from __future__ import annotations

from typing import Any

import torch

from ocr.deploy.graph import INPUT, MULTIPLE
from ocr.deploy.runtimes import MIN_SIDE
from ocr.errors import ConfigError
from ocr.optional import require

MAX_BATCH = 8
FLAGS = {"fp32": (), "fp16": ("FP16",), "bf16": ("BF16",), "int8": ("INT8", "FP16")}
"""Builder flags of each precision; the scales of int8 are in the quantised ONNX model."""


def page_sizes(page_size: int) -> list[tuple[int, int, int, int]]:
    """Smallest, usual and largest input of an engine, (B, H, W, 3)."""
    side = -(-page_size // MULTIPLE) * MULTIPLE
    return [(1, MIN_SIDE, MIN_SIDE, 3), (1, side, side, 3), (MAX_BATCH, 2 * side, 2 * side, 3)]


def build_engine(onnx_bytes: bytes, precision: str, page_size: int) -> bytes:
    """The serialised engine; minutes of measuring on the GPU."""
    library = require("tensorrt", "format=tensorrt")
    if not torch.cuda.is_available():
        raise ConfigError(
            "format=tensorrt builds an engine for the GPU of this machine, and torch finds none. Export where it "
            "will run, or format=onnx",
            setting="format",
            value="tensorrt",
        )
    builder = library.Builder(library.Logger(library.Logger.ERROR))
    network = _parsed(library, builder, onnx_bytes)
    config = builder.create_builder_config()
    for flag in FLAGS[precision]:
        config.set_flag(getattr(library.BuilderFlag, flag))
    profile = builder.create_optimization_profile()
    profile.set_shape(INPUT, *page_sizes(page_size))
    config.add_optimization_profile(profile)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise ConfigError(
            f"format=tensorrt: no engine could be built for precision={precision}. Try precision=fp32",
            setting="precision",
            value=precision,
        )
    return bytes(engine)


def _parsed(library: Any, builder: Any, onnx_bytes: bytes) -> Any:
    network = builder.create_network(0)
    parser = library.OnnxParser(network, library.Logger(library.Logger.ERROR))
    if not parser.parse(onnx_bytes):
        faults = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise ConfigError(
            f"format=tensorrt: TensorRT {library.__version__} cannot parse the model ({faults})",
            setting="format",
            value="tensorrt",
        )
    return network
