"""No step waits for the device: torch's FakeTensorMode runs it on pretended CUDA tensors and raises if the host reads
one (`item`, `float`, `bool`, `nonzero`, indexing by a mask), or if tensors of two devices meet.

Backward runs on pretended `meta` tensors where there is no GPU: autograd asks the driver for the streams of CUDA.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.optim.swa_utils import AveragedModel
from torch.utils._python_dispatch import TorchDispatchMode

from ocr.evaluation.boxes import BoxesFromMap, host_maps
from ocr.models import DBLoss, TextDetector
from ocr.models.loss import MAPS
from ocr.pipeline.device import Arrival, HostCopy, Normalize
from ocr.training.callbacks.ema import update_average
from ocr.training.distillation import Distillation
from ocr.training.module import OCRPLModule
from ocr.training.teacher import BatchTeacher

PAGES = 2
SHAPES = [(640, 640), (640, 352)]
PRECISIONS = {"32-true": None, "16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}
MODELS: dict[str, dict[str, Any]] = {
    "lite": {"encoder": "mobilenetv3_small_050", "channels": 64},
    "base": {"encoder": "resnet18", "channels": 64},
    "dbnetpp, checkpointed": {
        "encoder": "resnet18",
        "channels": 64,
        "scale_fusion": True,
        "checkpoint_gradients": True,
    },
    "pan, frozen": {"encoder": "mobilenetv3_small_050", "channels": 64, "decoder": "pan", "freeze_epochs": 1},
}
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=["square", "page"])
every_precision = pytest.mark.parametrize("precision", PRECISIONS)


class PretendedStream:
    """Counts who waits for it; there is no driver to ask for a real one."""

    waits = 0

    def record_event(self) -> "PretendedStream":
        return self

    def synchronize(self) -> None:
        PretendedStream.waits += 1


@pytest.fixture(autouse=True)
def device(monkeypatch) -> Iterator[None]:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: PretendedStream())
    monkeypatch.setattr(PretendedStream, "waits", 0)
    with FakeTensorMode():
        yield


def pretend(module: nn.Module, device: str = "cuda") -> None:
    """Move a module to the pretended device; `Module.to` cannot swap real parameters for pretended ones."""
    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, value in tensors.items():
                if value is not None:
                    moved = torch.empty(value.shape, dtype=value.dtype, device=device)
                    tensors[name] = nn.Parameter(moved) if tensors is part._parameters else moved


def make_module(model: str = "lite", device: str = "cuda", teacher: str | None = None) -> OCRPLModule:
    adamw = partial(torch.optim.AdamW, lr=0.001, weight_decay=0.0001)
    with unset_fake_temporarily():
        detector = TextDetector(**MODELS[model])
        # Of another normalisation, which its images are converted to.
        other = Normalize(std=(1, 1, 1))
        distillation = Distillation(BatchTeacher(TextDetector(**MODELS[teacher]), other)) if teacher else None
        module = OCRPLModule(
            detector, DBLoss(), BoxesFromMap(), adamw, encoder_lr_factor=0.1, distillation=distillation
        )
    pretend(module, device)
    if distillation is not None:
        pretend(distillation.teacher.model, device)
    return module


def make_batch(shape: tuple[int, int], device: str = "cuda") -> dict[str, Any]:
    maps = {
        name: torch.empty(PAGES, 1, *shape, dtype=torch.bool if "mask" in name else torch.float32, device=device)
        for name in MAPS
    }
    images = torch.empty(PAGES, 3, *shape, dtype=torch.uint8, device=device)
    return {"images": images, "image_filename": ["a.jpg", "b.jpg"]} | maps


def autocast(precision: str) -> Any:
    half = PRECISIONS[precision]
    return nullcontext() if half is None else torch.autocast("cuda", half)


@every_precision
@every_shape
@pytest.mark.parametrize("model", MODELS)
def test_a_training_step_up_to_backward(model, shape, precision):
    module = make_module(model).train()
    batch = module.on_after_batch_transfer(make_batch(shape), 0)
    with autocast(precision):
        loss = module.training_step(batch, 0)
    _check_loss(module, loss)


@every_precision
@every_shape
def test_a_distilled_step_up_to_backward(shape, precision):
    module = make_module("lite", teacher="base").train()
    batch = module.on_after_batch_transfer(make_batch(shape), 0)
    with autocast(precision), HostTensors() as host:
        loss = module.training_step(batch, 0)
    assert host.seen == []
    _check_loss(module, loss)


def _check_loss(module: OCRPLModule, loss: torch.Tensor) -> None:
    assert isinstance(loss, FakeTensor)
    assert (loss.device.type, loss.dtype, loss.requires_grad) == ("cuda", torch.float32, True)
    assert PretendedStream.waits == 0
    with pytest.raises(DataDependentOutputException):
        module.finite.finish()  # One step later: here the host reads the loss.
    assert PretendedStream.waits == 1


@every_shape
@pytest.mark.parametrize("model", MODELS)
def test_backward(model, shape, monkeypatch):
    name = "cuda" if torch.cuda.is_available() else "meta"
    if name == "meta":
        monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # There is none for this device.
    module = make_module(model, name).train()
    module.training_step(module.on_after_batch_transfer(make_batch(shape, name), 0), 0).backward()
    learning = [
        value for key, value in module.model.named_parameters() if "frozen" not in model or "encoder" not in key
    ]
    assert all(value.grad is not None and value.grad.device.type == name for value in learning)


def test_backward_of_a_distilled_step(monkeypatch):
    name = "cuda" if torch.cuda.is_available() else "meta"
    if name == "meta":
        monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    module = make_module("lite", name, teacher="base").train()
    module.training_step(module.on_after_batch_transfer(make_batch((64, 32), name), 0), 0).backward()
    assert all(value.grad is not None for value in module.parameters())
    assert module.distillation is not None
    assert all(value.grad is None for value in module.distillation.teacher.model.parameters())


def test_the_step_of_the_optimizer_and_of_the_average():
    module = make_module()
    for parameter in module.parameters():
        parameter.grad = torch.empty_like(parameter)
    average = AveragedModel(nn.Identity())
    average.module = make_module()
    optimizer = module.build_optimizer()
    for _ in range(2):
        torch.nn.utils.clip_grad_norm_(module.parameters(), 5.0)
        optimizer.step()
        update_average(average, module, 0.995)


@every_precision
@every_shape
def test_validation_and_prediction_up_to_the_maps_that_go_to_the_host(shape, precision):
    module = make_module().eval()
    batch = module.on_after_batch_transfer(make_batch(shape), 0)
    with torch.inference_mode(), autocast(precision):
        maps = module.model(batch["images"], with_threshold=False).prob_map
    assert (maps.device.type, maps.dtype, maps.shape) == ("cuda", torch.float32, (PAGES, 1, *shape))
    with pytest.raises(RuntimeError, match="numpy"):
        host_maps(maps)  # The transfer: boxes are found on the host.


class HostTensors(TorchDispatchMode):
    """The operations that read a tensor of the host: a copy of one to the device waits for all queued work."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(isinstance(arg, torch.Tensor) and arg.device.type == "cpu" for arg in args):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_uint8_batch_on_the_device_is_normalised_without_tensors_of_the_host():
    images = make_batch((64, 32))["images"]
    with HostTensors() as host:
        Normalize().on_device(images)
    assert host.seen == []


def test_a_batch_arrives_normalised():
    host = make_batch((64, 32), "cpu")
    arrived = Arrival(Normalize(), "cuda")._move(host)
    assert {value.device.type for value in arrived.values() if isinstance(value, torch.Tensor)} == {"cuda"}
    assert arrived["images"].dtype == torch.float32


def test_all_batches_arrive_on_one_stream(monkeypatch):
    made = []
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: made.append(device) or PretendedStream())
    for name in ("stream", "device"):
        monkeypatch.setattr(torch.cuda, name, lambda _: nullcontext())
    arrival = Arrival(Normalize(), "cuda")
    for _ in range(3):
        arrival.bring(make_batch((64, 32), "cpu"))
    assert made == [torch.device("cuda")]


def test_a_copy_to_the_host_waits_only_when_it_is_read():
    copy = HostCopy(torch.empty(1, device="cuda"))
    assert PretendedStream.waits == 0
    assert copy.read().device.type == "cpu"
    assert PretendedStream.waits == 1
