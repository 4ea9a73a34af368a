"""Model files that our own code reads: settings, .safetensors, checkpoints, the head of a TensorRT engine."""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from pathlib import Path

import torch

from ocr.deploy.detector import Detector
from ocr.deploy.model_file import ModelInfo
from ocr.deploy.runtimes import Model
from ocr.deploy.runtimes.tensorrt_runtime import pack, unpack
from ocr.errors import GlyphFeedError
from ocr.models.load import read_detector, save_detector
from ocr.models.settings import DetectorSettings
from ocr.models.weights import read_weights
from tests.campaign.cases import Parser, refused, register
from tests.campaign.pages import TINY

SETTINGS = DetectorSettings(
    TINY,
    letterbox={"size": 64, "shape": "square"},
    normalization={"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]},
    targets={"shrink_ratio": 0.4},
    boxes={"thresh": 0.5, "box_thresh": 0.5, "min_size": 1, "unclip_ratio": 1.5, "use_polygon": False},
)
TRACED = ("ocr/models/", "ocr/deploy/", "torch/_weights_only_unpickler")


@lru_cache(maxsize=1)
def safetensors_bytes() -> bytes:
    """A detector with as little in it as there can be, so that most changes are changes of its head."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        detector = torch.nn.Linear(2, 2)
        save_detector(path, detector, SETTINGS)  # type: ignore[arg-type]
        return path.read_bytes()


@lru_cache(maxsize=1)
def checkpoint_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.ckpt"
        weights = {f"model.{name}": value for name, value in torch.nn.Linear(2, 2).state_dict().items()}
        torch.save({"state_dict": weights, "architecture": TINY, "detector": SETTINGS.to_dict()}, path)
        return path.read_bytes()


def parse_file(name: str, data: bytes, folder: Path) -> bool:
    file = folder / name
    file.write_bytes(data)
    try:
        stored = read_detector(file, "model")
        if stored.settings is not None:
            stored.settings.to_json()
        read_weights(file)
    except GlyphFeedError as error:
        return refused(error, name)
    finally:
        file.unlink()
    return True


def parse_settings(data: bytes, folder: Path) -> bool:
    """Through everything that a Detector makes of the settings of a file."""
    text = data.decode(errors="replace")
    metadata = {
        "glyphfeed": text,
        "glyphfeed.export": json.dumps({"format": "onnx", "precision": "fp32", "proof": {}, "versions": {}}),
    }
    try:
        Detector(Model(lambda pages: pages, ModelInfo.from_metadata(metadata, "a.onnx")))  # type: ignore[arg-type,return-value]
    except GlyphFeedError as error:
        return refused(error, "a.onnx") if isinstance(error, GlyphFeedError) else False
    return True


def parse_engine(data: bytes, folder: Path) -> bool:
    try:
        unpack(data, "a.engine")
    except GlyphFeedError as error:
        return refused(error, "a.engine")
    return True


for _name, _examples in (("a.safetensors", safetensors_bytes), ("a.ckpt", checkpoint_bytes)):
    register(
        Parser(
            f"model-{_name[2:]}",
            f"detector files, {_name[1:]}",
            lambda examples=_examples: [examples()],
            lambda data, folder, name=_name: parse_file(name, data, folder),
            TRACED,
            share=20,
        )
    )
register(
    Parser(
        "model-settings",
        "settings in a model file",
        lambda: [SETTINGS.to_json().encode()],
        parse_settings,
        TRACED,
        "json",
        share=20,
    )
)
register(
    Parser(
        "model-engine",
        "head of a TensorRT engine",
        lambda: [pack(ModelInfo(SETTINGS, "tensorrt"), b"engine")],
        parse_engine,
        TRACED,
        share=15,
    )
)
