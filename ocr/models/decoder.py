"""decoder: four feature maps become maps at stride 4 that see the whole pyramid (FPN, PAN or UNet-like)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ocr.errors import ConfigError, near_names
from ocr.models.layers import ConvNormReLU, upsample_to


class FPN(nn.Module):
    """Top-down sums; each level is then smoothed to a quarter of the channels and brought to stride 4."""

    def __init__(self, in_channels: Sequence[int], channels: int) -> None:
        super().__init__()
        self.lateral = nn.ModuleList(ConvNormReLU(size, channels, kernel=1) for size in in_channels)
        self.smooth = nn.ModuleList(ConvNormReLU(channels, channels // 4) for _ in in_channels)
        self.level_channels = [channels // 4] * len(in_channels)

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor]:
        levels = top_down([layer(feature) for layer, feature in zip(self.lateral, features, strict=True)])
        return _to_largest([layer(level) for layer, level in zip(self.smooth, levels, strict=True)])


class PAN(nn.Module):
    """An FPN whose sums then also travel from fine to coarse, so that deep levels see sharp edges."""

    def __init__(self, in_channels: Sequence[int], channels: int) -> None:
        super().__init__()
        width = channels // 4
        self.lateral = nn.ModuleList(ConvNormReLU(size, channels, kernel=1) for size in in_channels)
        self.smooth = nn.ModuleList(ConvNormReLU(channels, width) for _ in in_channels)
        self.down = nn.ModuleList(ConvNormReLU(width, width, stride=2) for _ in in_channels[1:])
        self.merge = nn.ModuleList(ConvNormReLU(width, width) for _ in in_channels)
        self.level_channels = [width] * len(in_channels)

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor]:
        levels = top_down([layer(feature) for layer, feature in zip(self.lateral, features, strict=True)])
        levels = [layer(level) for layer, level in zip(self.smooth, levels, strict=True)]
        for index, layer in enumerate(self.down):
            levels[index + 1] = levels[index + 1] + layer(levels[index])
        return _to_largest([layer(level) for layer, level in zip(self.merge, levels, strict=True)])


class UNet(nn.Module):
    """From coarse to fine, each level joined with the next finer one and halved in width; the result is one map."""

    def __init__(self, in_channels: Sequence[int], channels: int) -> None:
        super().__init__()
        *skips, deepest = in_channels
        widths = [channels, channels // 2, channels // 4]
        joined = [deep + skip for deep, skip in zip([deepest, *widths], reversed(skips), strict=False)]
        self.up = nn.ModuleList(ConvNormReLU(size, width) for size, width in zip(joined, widths, strict=True))
        self.level_channels = [widths[-1]]

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor]:
        *skips, level = features
        for layer, skip in zip(self.up, reversed(skips), strict=True):
            level = layer(torch.cat([upsample_to(level, skip), skip], dim=1))
        return [level]


DECODERS: dict[str, type[FPN] | type[PAN] | type[UNet]] = {"fpn": FPN, "pan": PAN, "unet": UNet}


def build_decoder(name: str, in_channels: Sequence[int], channels: int) -> FPN | PAN | UNet:
    """The decoder of that name; its maps at stride 4 have `level_channels`."""
    if name not in DECODERS:
        raise ConfigError(
            f"decoder={name!r} is unknown. {near_names(name, list(DECODERS))}", setting="decoder", value=name
        )
    if channels < 4 or channels % 4:
        raise ConfigError(
            f"channels={channels} must be a multiple of 4, one quarter per level",
            setting="channels",
            value=channels,
        )
    return DECODERS[name](in_channels, channels)


def top_down(levels: list[torch.Tensor]) -> list[torch.Tensor]:
    """Add the coarser levels to each level."""
    for index in range(len(levels) - 1, 0, -1):
        levels[index - 1] = levels[index - 1] + upsample_to(levels[index], levels[index - 1])
    return levels


def _to_largest(levels: list[torch.Tensor]) -> list[torch.Tensor]:
    return [upsample_to(level, levels[0]) for level in levels]
