"""encoder: any timm backbone that gives features at strides 4, 8, 16 and 32."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ocr.errors import ConfigError
from ocr.models import hgnet
from ocr.models.weights import StateDict, find_weights, match_encoder_weights, read_weights

STRIDES = (4, 8, 16, 32)
PROBE_SIDE = 64


class Encoder(nn.Module):
    """Images (B, 3, H, W), H and W multiples of 32, to four feature maps at strides 4, 8, 16, 32."""

    def __init__(
        self,
        name: str,
        pretrained: bool = False,
        weights: str | Path | None = None,
        checkpoint_gradients: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.backbone = _with_weights(name, weights) if weights is not None else _build(name, pretrained)
        known = isinstance(self.backbone, hgnet.HgNet)
        self.channels = [*hgnet.CHANNELS] if known else _probe_channels(name, self.backbone)
        self.frozen = False
        """Neither weights nor statistics of norms change."""
        self._momenta: dict[str, float | None] = {}
        if checkpoint_gradients:
            self._momenta = {key: norm.momentum for key, norm in self._norms()}
            _checkpoint_gradients(name, self.backbone)

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        once = self._statistics_once() if self._momenta else nullcontext()
        with torch.no_grad() if self.frozen else once:
            features: list[torch.Tensor] = self.backbone(images)
        return features

    def train(self, mode: bool = True) -> Self:
        """As of every module, but a frozen encoder stays in evaluation."""
        return super().train(mode and not self.frozen)

    @contextmanager
    def _statistics_once(self) -> Iterator[None]:
        """Outside this block norms have momentum 0: a checkpointed block that is computed again shows them the batch
        a second time."""
        for key, norm in self._norms():
            norm.momentum = self._momenta[key]
        try:
            yield
        finally:
            for _, norm in self._norms():
                norm.momentum = 0.0

    def _norms(self) -> Iterator[tuple[str, nn.modules.batchnorm._BatchNorm]]:
        for key, module in self.backbone.named_modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                yield key, module


def _unknown_encoder(name: str) -> str:
    import timm

    close = get_close_matches(name.lower(), timm.list_models(), n=5, cutoff=0.6)
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"encoder={name!r} is not a model of timm ({timm.__version__}). {hint}List all: timm.list_models()"


def _build(name: str, pretrained: bool, state_dict: StateDict | None = None) -> nn.Module:
    if name == hgnet.NAME and not pretrained:
        return hgnet.HgNet()
    import timm  # Here, because it imports torchvision: 1.7 s of CPU that the bundled detector does without.

    if not timm.is_model(name):
        raise ConfigError(_unknown_encoder(name), setting="encoder", value=name)
    options: dict[str, Any] = {"pretrained_cfg_overlay": {"state_dict": state_dict}} if state_dict is not None else {}
    try:
        return timm.create_model(
            name, pretrained=pretrained, features_only=True, out_indices=(-4, -3, -2, -1), **options
        )
    except (RuntimeError, AssertionError, AttributeError, TypeError, ValueError) as error:
        raise _cannot_build(name, pretrained, error) from error
    except OSError as error:  # A failed download raises this in every library.
        raise ConfigError(
            f"pretrained=true, but the weights of encoder={name!r} could not be downloaded ({error}). "
            "Set weights=PATH to a local file, or pretrained=false",
            setting="pretrained",
            value=name,
        ) from error


def _cannot_build(name: str, pretrained: bool, error: Exception) -> ConfigError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    if pretrained and "pretrained" in reason:
        problem = f"pretrained=true, but encoder={name!r} has none ({reason}). Set pretrained=false, or weights=PATH"
        return ConfigError(problem, setting="pretrained", value=name)
    problem = f"encoder={name!r} has no feature pyramid ({reason}). Use a convolutional one, such as resnet18"
    return ConfigError(problem, setting="encoder", value=name)


def _with_weights(name: str, weights: str | Path) -> nn.Module:
    import timm

    if not timm.is_model(name):
        raise ConfigError(_unknown_encoder(name), setting="encoder", value=name)
    path = find_weights(weights, name)
    # The whole classifier knows the names that files use; its feature pyramid renames some of them.
    classifier = timm.create_model(name, pretrained=False)
    state_dict = match_encoder_weights(read_weights(path), classifier, path, name)
    logger = logging.getLogger("timm.models._builder")
    level = logger.level
    # Every key was checked above; timm would warn of keys after the last feature map.
    logger.setLevel(logging.ERROR)
    try:
        return _build(name, pretrained=True, state_dict=state_dict)
    finally:
        logger.setLevel(level)


def _checkpoint_gradients(name: str, backbone: nn.Module) -> None:
    """Blocks keep their input only. timm's own switch fails on resnet18: it also takes ReLUs that work in place."""
    blocks = list(_blocks(backbone))
    if not blocks:
        raise ConfigError(
            f"checkpoint_gradients=true, but encoder={name!r} is not made of blocks. Use another one, such as "
            "resnet18, or checkpoint_gradients=false",
            setting="checkpoint_gradients",
            value=name,
        )
    for block in blocks:
        # In place of the method: a module around it would rename the weights.
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, (nn.Sequential, nn.ModuleList)):
            yield from _blocks(child)
        elif next(child.children(), None) is not None:
            yield child


def _probe_channels(name: str, backbone: nn.Module) -> list[int]:
    """Channels of the four maps, from a forward pass: transformers of a fixed size or other layout show here."""
    training = backbone.training
    try:
        with torch.inference_mode():
            features = backbone.eval()(torch.zeros(1, 3, PROBE_SIDE, PROBE_SIDE))
    except (RuntimeError, AssertionError) as error:
        raise _cannot_build(name, False, error) from error
    finally:
        backbone.train(training)
    sides = [tuple(feature.shape[-2:]) for feature in features]
    if sides != [(PROBE_SIDE // stride,) * 2 for stride in STRIDES]:
        raise ConfigError(
            f"encoder={name!r} gives maps of {sides} for a page of {PROBE_SIDE} x {PROBE_SIDE}, "
            f"but strides {STRIDES} are needed. Use a convolutional one, such as resnet18",
            setting="encoder",
            value=name,
        )
    return [int(feature.shape[1]) for feature in features]
