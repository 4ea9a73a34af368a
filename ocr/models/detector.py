"""TextDetector: images in, probability (and threshold) maps of the same size out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.geometry.polygons import check_units
from ocr.models.decoder import build_decoder
from ocr.models.encoder import STRIDES, Encoder
from ocr.models.head import DBHead, Prediction, with_units
from ocr.models.orientation import OrientationHead
from ocr.models.scale_fusion import ScaleFusion
from ocr.models.weights import describe_misfit

ARCHITECTURE = ("encoder", "decoder", "channels", "head_channels", "scale_fusion", "units", "orientation")
"""Arguments that determine the shapes of the weights."""
OPTIONAL = ("units", "orientation")
"""Of these, weights of others fit too."""


class TextDetector(nn.Module):
    """A DBNet (with `scale_fusion`, a DBNet++) on any timm encoder, for pages of any size.

    >>> detector = TextDetector("mobilenetv3_small_050", channels=32).eval()
    >>> detector(torch.zeros(1, 3, 100, 60)).prob_map.shape
    torch.Size([1, 1, 100, 60])

    With `units=("lines", "words")` it has a map for each; with one of them, or none, one map.
    """

    def __init__(
        self,
        encoder: str = "resnet18",
        decoder: str = "fpn",
        channels: int = 256,
        head_channels: int | None = None,
        scale_fusion: bool = False,
        k: float = 50.0,
        pretrained: bool = False,
        weights: str | Path | None = None,
        channels_last: bool = True,
        checkpoint_gradients: bool = False,
        freeze_epochs: int = 0,
        units: Sequence[str] | None = None,
        orientation: int | None = None,
    ) -> None:
        super().__init__()
        check_integer("freeze_epochs", freeze_epochs)
        if not isinstance(checkpoint_gradients, bool):
            raise ConfigError(
                f"checkpoint_gradients={checkpoint_gradients!r} must be true or false",
                setting="checkpoint_gradients",
                value=checkpoint_gradients,
            )
        head_channels = max(channels // 4, 1) if head_channels is None else head_channels
        for name, number, usual in (("head_channels", head_channels, "channels / 4"), ("k", k, "50")):
            if number <= 0:
                raise ConfigError(f"{name}={number} must be > 0; {usual} is usual", setting=name, value=number)
        shape = (encoder, decoder, channels, head_channels, scale_fusion)
        self.units = check_units("units", units)
        """What each map finds; empty: one map of what the labels surround."""
        self.architecture: dict[str, Any] = dict(zip(ARCHITECTURE, shape, strict=False))
        """TextDetector(**architecture) can load the weights."""
        if self.units:
            self.architecture["units"] = list(self.units)
        self.encoder = Encoder(encoder, pretrained, weights, checkpoint_gradients)
        self.orientation: OrientationHead | None = None
        self.freeze_epochs = freeze_epochs
        self.decoder = build_decoder(decoder, self.encoder.channels, channels)
        self.scale_fusion = ScaleFusion(self.decoder.level_channels) if scale_fusion else None
        self.head = DBHead(sum(self.decoder.level_channels), head_channels, k, max(1, len(self.units)))
        if orientation is not None:
            self.add_orientation(orientation)
        self.memory_format = torch.channels_last if channels_last else torch.contiguous_format
        self.to(memory_format=self.memory_format)

    def forward(self, images: torch.Tensor, with_threshold: bool | None = None) -> Prediction:
        """Maps of the images' size. The threshold branch runs in training, or if `with_threshold` is true."""
        height, width = images.shape[-2:]
        padded = pad_to_multiple(images, STRIDES[-1]).contiguous(memory_format=self.memory_format)
        levels = self.decoder(self.encoder(padded))
        features = torch.cat(levels, dim=1) if self.scale_fusion is None else self.scale_fusion(levels)
        prediction: Prediction = self.head(features, self.training if with_threshold is None else with_threshold)
        return prediction.crop(height, width)

    def add_orientation(self, side: int) -> OrientationHead:
        """A new head that tells how a page is turned, from its pixels in a square of `side`."""
        check_integer("orientation", side, minimum=STRIDES[-1])
        self.orientation = OrientationHead(self.encoder.channels)
        self.architecture["orientation"] = side
        return self.orientation

    def start_epoch(self, epoch: int) -> None:
        """The encoder learns from epoch `freeze_epochs` on."""
        frozen = epoch < self.freeze_epochs
        if frozen != self.encoder.frozen:
            self.encoder.frozen = frozen
            self.encoder.train(self.training)

    def load_weights(
        self,
        state_dict: Mapping[str, torch.Tensor],
        architecture: Mapping[str, Any] | None = None,
        source: str = "the checkpoint",
        path: str | Path | None = None,
    ) -> None:
        """Load weights of the same architecture. Otherwise raises ConfigError, which names the differences.

        Units can differ: each map starts as the stored map of its unit, or as the first one that is stored.
        """
        stored_units = (architecture or {}).get("units") or ()
        state_dict = with_units(state_dict, stored_units, self.units)
        if self.orientation is None:  # New training moves the encoder, and the head no longer fits.
            state_dict = {name: value for name, value in state_dict.items() if not name.startswith("orientation.")}
        different = {
            name: architecture[name]
            for name, value in self.architecture.items()
            if architecture is not None
            and name in architecture
            and name not in OPTIONAL
            and architecture[name] != value
        }
        if different:
            shown = ", ".join(
                f"{name}={value} (here {name}={self.architecture[name]})" for name, value in different.items()
            )
            raise ConfigError(
                f"{source} has another architecture, {shown}. Set the model to it",
                setting="model",
                value=different,
                path=path,
            )
        misfit = describe_misfit(state_dict, self.state_dict())
        if misfit:
            settings = ", ".join(f"{name}={value}" for name, value in self.architecture.items())
            raise ConfigError(
                f"{source} does not fit the architecture {settings} ({misfit}). Set the model to its architecture",
                setting="model",
                value=misfit,
                path=path,
            )
        self.load_state_dict(dict(state_dict), strict=False)

    def inherit(self, other: TextDetector) -> list[str]:
        """Take the weights of another detector's decoder and head where name and shape are the same; their names."""
        own, parts = self.state_dict(), tuple(f"{name}." for name, _ in self.named_children() if name != "encoder")
        fitting = {
            name: value
            for name, value in with_units(other.state_dict(), other.units, self.units).items()
            if name.startswith(parts) and name in own and own[name].shape == value.shape
        }
        self.load_state_dict(fitting, strict=False)
        return [*fitting]

    @property
    def parameter_counts(self) -> dict[str, int]:
        """Parameters of each part that has any."""
        return {name: sum(value.numel() for value in part.parameters()) for name, part in self.named_children()}

    def extra_repr(self) -> str:
        settings = ", ".join(f"{name}={value}" for name, value in self.architecture.items())
        counts = self.parameter_counts
        parts = ", ".join(f"{name} {count / 1e6:.2f} M" for name, count in counts.items())
        return f"{settings}\n{sum(counts.values()) / 1e6:.2f} M parameters ({parts})"


def pad_to_multiple(images: torch.Tensor, multiple: int) -> torch.Tensor:
    """Zeros (the mean colour) on the right and at the bottom, if the size needs them."""
    height, width = images.shape[-2:]
    right, bottom = -width % multiple, -height % multiple
    return functional.pad(images, (0, right, 0, bottom)) if right or bottom else images
