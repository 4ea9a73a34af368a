"""formats: a detector to ONNX, OpenVINO, TorchScript and TensorRT."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ocr.deploy.graph import INPUT, MULTIPLE, OUTPUT, DetectorGraph, export_program
from ocr.deploy.model_file import NAMES, ModelInfo
from ocr.deploy.runtimes import MIN_SIDE, openvino_runtime, tensorrt_runtime
from ocr.errors import ConfigError, near_names
from ocr.optional import require

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.float32}
PRECISIONS = {
    "onnx": ("fp32", "fp16", "int8"),  # ONNX Runtime has no bfloat16 convolution on a CPU.
    "openvino": ("fp32", "fp16", "bf16", "int8"),
    "torchscript": ("fp32", "fp16", "bf16"),
    "tensorrt": ("fp32", "fp16", "bf16", "int8"),
}
"""Which precisions each format has."""
NEXT_TO_ZERO = 1e-6
NEEDS: dict[str, tuple[str, ...]] = {
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "openvino": ("onnx", "onnxscript", "onnxruntime", "openvino"),
    "tensorrt": ("onnx", "onnxscript", "onnxruntime", "tensorrt"),
}
"""Modules that writing each format takes; int8 is always ONNX Runtime's."""
MAX_BATCH = 8
FLAGS = {"fp32": (), "fp16": ("FP16",), "bf16": ("BF16",), "int8": ("INT8", "FP16")}
"""Builder flags of TensorRT for each precision; the scales of int8 are in the quantised ONNX model."""

Save = Callable[[Path, ModelInfo], None]
"""Writes a model into a folder, with its metadata."""


def check_format(format: str, precision: str) -> None:
    """Raise ConfigError, or name the extra that is missing, before anything is computed."""
    if format not in PRECISIONS:
        raise ConfigError(
            f"--to {format} is unknown. {near_names(str(format), list(PRECISIONS))}", setting="--to", value=format
        )
    if precision not in PRECISIONS[format]:
        raise ConfigError(
            f"--precision {precision} is not available for --to {format}, which has {', '.join(PRECISIONS[format])}",
            setting="--precision",
            value=precision,
        )
    for module in NEEDS.get(format, ()):
        require(module, f"--to {format}")


def onnx_model(graph: DetectorGraph) -> Any:
    """The graph as an ONNX model with dynamic batch, height and width."""
    with _quiet():
        program = torch.onnx.export(
            export_program(graph), dynamo=True, input_names=[INPUT], output_names=[OUTPUT], verbose=False
        )
    assert program is not None
    model = program.model_proto
    for value in (*model.graph.input, *model.graph.output):
        names = zip(value.type.tensor_type.shape.dim, ("batch", "height", "width"), strict=False)
        for dimension, name in names:
            dimension.dim_param = name
    _keep_padding(model.graph)
    return model


def _keep_padding(graph: Any) -> None:
    """Pads before a MaxPool get a value next to zero.

    ONNX Runtime replaces zeros by the padding of MaxPool itself, which is minus infinity: the maps of hgnetv2 were off
    by up to 0.05 at the lower edge of a page.
    """
    make_tensor = require("onnx", "--to onnx").helper.make_tensor
    types = {value.name: value.type.tensor_type.elem_type for value in graph.value_info}
    pooled = {node.input[0] for node in graph.node if node.op_type == "MaxPool"}
    for node in graph.node:
        if node.op_type == "Pad" and node.output[0] in pooled:
            value = make_tensor(f"{node.output[0]}_value", types[node.output[0]], [], [NEXT_TO_ZERO])
            graph.initializer.append(value)
            node.input[2:] = [value.name]


def onnx_saver(model: Any) -> Save:
    def save(folder: Path, info: ModelInfo) -> None:
        library = require("onnx", "--to onnx")
        library.helper.set_model_props(model, info.to_metadata())
        library.save(model, folder / NAMES["onnx"])

    return save


def openvino_saver(model: Any, precision: str) -> Save:
    """From an ONNX model, quantised or not; half precision of the weights for fp16 and bf16."""
    library = require("openvino", "--to openvino")
    network = library.Core().read_model(model.SerializeToString())

    def save(folder: Path, info: ModelInfo) -> None:
        openvino_runtime.write_metadata(network, info)
        library.save_model(network, folder / NAMES["openvino"], compress_to_fp16=precision in ("fp16", "bf16"))

    return save


def torchscript_saver(graph: DetectorGraph) -> Save:
    example = torch.zeros(2, 4 * MULTIPLE, 3 * MULTIPLE, 3, dtype=torch.uint8)
    with _quiet(), torch.inference_mode():
        # Frozen: norms are folded into convolutions.
        script = torch.jit.freeze(torch.jit.trace(graph, example, check_trace=False))  # type: ignore[no-untyped-call]

    def save(folder: Path, info: ModelInfo) -> None:
        with _quiet():
            script.save(str(folder / NAMES["torchscript"]), _extra_files=info.to_metadata())

    return save


def tensorrt_saver(model: Any, precision: str, page_size: int) -> Save:
    engine = build_engine(model.SerializeToString(), precision, page_size)

    def save(folder: Path, info: ModelInfo) -> None:
        (folder / NAMES["tensorrt"]).write_bytes(tensorrt_runtime.pack(info, engine))

    return save


def page_sizes(page_size: int) -> list[tuple[int, int, int, int]]:
    """Smallest, usual and largest input of an engine, (B, H, W, 3)."""
    side = -(-page_size // MULTIPLE) * MULTIPLE
    return [(1, MIN_SIDE, MIN_SIDE, 3), (1, side, side, 3), (MAX_BATCH, 2 * side, 2 * side, 3)]


def build_engine(onnx_bytes: bytes, precision: str, page_size: int) -> bytes:
    """The serialised engine; minutes of measuring on the GPU."""
    library = require("tensorrt", "--to tensorrt")
    if not torch.cuda.is_available():
        raise ConfigError(
            "--to tensorrt builds an engine for the GPU of this machine, and torch finds none. Export where it "
            "will run, or --to onnx",
            setting="--to",
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
            f"--to tensorrt: no engine could be built for --precision {precision}. Try --precision fp32",
            setting="--precision",
            value=precision,
        )
    return bytes(engine)


def _parsed(library: Any, builder: Any, onnx_bytes: bytes) -> Any:
    network = builder.create_network(0)
    parser = library.OnnxParser(network, library.Logger(library.Logger.ERROR))
    if not parser.parse(onnx_bytes):
        errors = "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors))
        raise ConfigError(
            f"--to tensorrt: TensorRT {library.__version__} cannot parse the model ({errors})",
            setting="--to",
            value="tensorrt",
        )
    return network


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporters warn of their own deprecations and of constants that they fold, on every call."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
