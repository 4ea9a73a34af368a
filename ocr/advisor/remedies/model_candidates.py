"""Changes on the model's side: which of them a config leaves open, and what is known of their effect on the H-mean."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

import torch
from omegaconf import DictConfig, OmegaConf

from ocr.advisor.catalogue import CATALOGUE, Configuration
from ocr.advisor.remedies.advice import NOT_KNOWN, SAME
from ocr.models.packaged import PACKAGED
from ocr.pipeline.padding import STRIDE

KNOWN = {
    "hgnetv2_b0": "0.921 on 54 receipts, trained from scratch on 140 others",
    "package's weights": "0.891 on 54 receipts and 0.882 on 30 forms before any training; after it not known",
}
"""What docs/results.md has measured; a test compares the numbers."""
ENCODERS = ("mobilenetv3_small_050", "hgnetv2_b0", "resnet18")
"""Built without a download; the fastest first."""
SIZES = (0.75, 0.5)
SMALLEST_SIZE = 320
FINETUNE_STEPS = 400
"""As experiment=finetune has."""
SLIM_CHANNELS = 64
CPU_COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True, slots=True)
class ModelCandidate:
    """A change of the model's step that is measured."""

    configuration: Configuration
    setting: str
    """What it changes: of two with the same setting only one can be in a combination."""
    hmean: str = NOT_KNOWN

    @property
    def name(self) -> str:
        return self.configuration.name


def model_candidates(
    config: DictConfig, split: str, cores: int, device: torch.device, steps: int
) -> list[ModelCandidate]:
    """Every change that the config leaves open; what it does already is left out. An epoch has so many `steps`."""
    found = [*_exact(config, split, cores, device), *_precisions(config, device), *_pages(config)]
    if all(config.get(setting) is None for setting in ("resume", "checkpoint_path", "weights")):
        found += _architectures(config)
        if split == "train" and PACKAGED.is_file():
            found.append(_packaged_weights(config, steps))
    return found


def _exact(config: DictConfig, split: str, cores: int, device: torch.device) -> Iterator[ModelCandidate]:
    """Changes after which the model learns the same."""
    layout = "channels first" if config.model.channels_last else "channels last"
    yield ModelCandidate(CATALOGUE[layout], "layout", SAME)
    checkpoints = bool(config.model.checkpoint_gradients)
    if not config.compile_model and not checkpoints and _can_compile(device):
        yield ModelCandidate(CATALOGUE["compiled model"], "kept", SAME)
    if split == "train" and not config.compile_model and not checkpoints:
        yield ModelCandidate(CATALOGUE["gradient checkpoints"], "kept", SAME)
    if device.type == "cpu":
        now = config.threads.model if config.threads.model != "auto" else cores
        for count in sorted({1, cores // 2, cores - 1, cores} - {0, now}):
            name = f"{count} core{'s' * (count > 1)} for the model"
            about = "the others are left to the workers" if count < cores else "the workers share them"
            yield ModelCandidate(Configuration(name, about, (f"threads.model={count}",), "model"), "threads", SAME)


def _precisions(config: DictConfig, device: torch.device) -> Iterator[ModelCandidate]:
    bits = str(config.trainer.precision).split("-")[0]
    names = {"bf16": "bf16", "16": "fp16", "32": "fp32"}
    others = ["fp32"] if bits != "32" else ["bf16", *["fp16"] * (device.type == "cuda")]
    yield from (ModelCandidate(CATALOGUE[name], "precision") for name in others if name != names.get(bits))


def _pages(config: DictConfig) -> Iterator[ModelCandidate]:
    if OmegaConf.select(config, "transforms.letterbox.shape") == "square":
        yield ModelCandidate(CATALOGUE["page shape"], "shape")
    size = OmegaConf.select(config, "transforms.size") or 0
    sides = (int(size * share) // STRIDE * STRIDE for share in SIZES)
    for side in (side for side in sides if SMALLEST_SIZE <= side < size):
        about = f"the longest side of a page has {side} pixels instead of {size}"
        yield ModelCandidate(Configuration(f"pages of {side}", about, (f"transforms.size={side}",), "model"), "size")


def _architectures(config: DictConfig) -> Iterator[ModelCandidate]:
    model = config.model
    # Weights of another encoder do not fit, and would be downloaded.
    own = ["model.pretrained=false"] * bool(model.pretrained) + ["model.weights=null"] * (model.weights is not None)
    for name in ENCODERS:
        if name != model.encoder:
            configuration = Configuration(name, "another encoder", (f"model.encoder={name}", *own), "model")
            yield ModelCandidate(configuration, "encoder", KNOWN.get(name, NOT_KNOWN))
    if model.channels > SLIM_CHANNELS:
        yield ModelCandidate(CATALOGUE["slim decoder"], "decoder")


def _packaged_weights(config: DictConfig, steps: int) -> ModelCandidate:
    """Start from the detector of the package, with as many steps as experiment=finetune has."""
    from ocr.models.load import read_detector

    architecture = read_detector(PACKAGED, "weights").architecture or {}
    # Given one by one: an experiment or a preset may have others.
    shape = [f"model.{name}={str(value).lower()}" for name, value in architecture.items()]
    epochs, now = max(1, ceil(FINETUNE_STEPS / steps)), config.trainer.max_epochs
    about, shorter = "a detector that knows text already, in its architecture", []
    if now is not None and 0 < epochs < now:
        about += f"; as experiment=finetune does, in {FINETUNE_STEPS} steps: {epochs} epochs instead of {now}"
        every = min(epochs, config.trainer.check_val_every_n_epoch or epochs)
        shorter = [f"trainer.max_epochs={epochs}", f"trainer.check_val_every_n_epoch={every}"]
    name = "package's weights"
    configuration = Configuration(name, about, ("weights=glyphfeed", *shape, *shorter), "model")
    return ModelCandidate(configuration, "encoder", KNOWN[name])


def _can_compile(device: torch.device) -> bool:
    """On a CPU torch.compile needs a compiler of C++."""
    return device.type == "cuda" or any(map(shutil.which, CPU_COMPILERS))
