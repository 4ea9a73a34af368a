"""Model files that are damaged, or are none of ours: refused by name, or opened and run."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import numpy as np

from ocr.deploy.export import formats
from ocr.deploy.graph import exportable
from ocr.deploy.model_file import NAMES, ModelInfo
from ocr.deploy.runtimes import open_model
from ocr.deploy.runtimes.tensorrt_runtime import pack
from ocr.errors import GlyphFeedError
from ocr.models.detector import TextDetector
from ocr.models.load import load_detector, save_detector
from ocr.pipeline.device import Normalize
from tests.campaign.cases import Case, CrashError, fault
from tests.campaign.damage import DAMAGES
from tests.campaign.pages import encode, images, shard_bytes
from tests.campaign.parsers.models import SETTINGS

NEEDS = ("onnx", "onnxscript", "onnxruntime", "openvino")
PAGE = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)


def save_tiny(path: Path) -> Path:
    """A detector that was never trained."""
    save_detector(path, TextDetector(**SETTINGS.architecture).eval(), SETTINGS)
    return path


def prepare(folder: Path) -> Path:
    """The same detector in every format."""
    import torch

    models = folder / "models"
    models.mkdir()
    detector, settings = load_detector(save_tiny(models / "model.safetensors"))
    weights = {f"model.{name}": value for name, value in detector.state_dict().items()}
    torch.save(
        {"state_dict": weights, "architecture": settings.architecture, "detector": settings.to_dict()},
        models / "model.ckpt",
    )
    graph = exportable(detector, Normalize())
    formats.torchscript_saver(graph)(models, ModelInfo(settings, "torchscript"))
    formats.torch_export_saver(graph)(models, ModelInfo(settings, "torch_export"))
    onnx = formats.onnx_model(graph)
    formats.onnx_saver(onnx)(models, ModelInfo(settings, "onnx"))
    formats.openvino_saver(onnx, "fp32")(models, ModelInfo(settings, "openvino"))
    (models / NAMES["tensorrt"]).write_bytes(pack(ModelInfo(settings, "tensorrt"), b"an engine"))
    return models


def try_model(case: Case, file: Path) -> None:
    """Open it and run a page, or be told its name."""
    try:
        model = open_model(file, "cpu")
        maps = model.runtime(PAGE)
    except GlyphFeedError as error:
        case.refusal(error, file.name, file.stem)
        return
    if maps.shape != PAGE.shape[:3]:
        raise CrashError(f"a map of {maps.shape}")


@fault("model-damage", "a model file: any damage", share=60, prepare=prepare, needs=NEEDS)
def damaged(case: Case) -> None:
    models = shutil.copytree(case.prepared, case.folder / "models")
    file = case.rng.choice(sorted(models.iterdir()))
    DAMAGES[case.rng.choice([*DAMAGES])][1](file, case.rng)
    try_model(case, file.with_suffix(".xml") if file.suffix == ".bin" else file)


@fault("model-foreign", "a file that is no model, or one of another program", share=20, prepare=prepare, needs=NEEDS)
def foreign(case: Case) -> None:
    name = case.rng.choice(["model.ckpt", "model.safetensors", *NAMES.values()])
    file = case.folder / name
    file.write_bytes(foreign_bytes(case.prepared, case.rng, name))
    try_model(case, file)


def foreign_bytes(models: Path, rng: Random, name: str) -> bytes:
    """Another kind of model, an image, a shard, an archive, or the model without what we write into it."""
    kinds = [file for file in sorted(models.iterdir()) if file.name != name]
    if rng.random() < 0.3 and name == NAMES["onnx"]:
        import onnx

        model = onnx.load(models / name)
        del model.metadata_props[:]
        return bytes(model.SerializeToString())
    choices = [encode("PNG"), shard_bytes("raw")["val-000000.tar"], rng.randbytes(3000), b"{}", b""]
    choices += [data for _, examples in images() for data in examples[:1]]
    return rng.choice([*choices, *(file.read_bytes() for file in kinds)])
