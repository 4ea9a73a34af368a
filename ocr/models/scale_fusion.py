"""scale fusion: the adaptive scale fusion of DBNet++, which weighs the levels of the pyramid pixel by pixel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ocr.errors import ConfigError


class ScaleFusion(nn.Module):
    """Concatenate maps of one size, each multiplied by an attention map computed from all of them."""

    def __init__(self, level_channels: Sequence[int]) -> None:
        super().__init__()
        if len(level_channels) < 2:
            raise ConfigError(
                "scale_fusion=true needs a decoder of several levels: decoder=fpn or decoder=pan",
                setting="scale_fusion",
                value=True,
            )
        total, count = sum(level_channels), len(level_channels)
        width = total // 4
        squeezed = max(width // 4, 1)
        self.reduce = nn.Conv2d(total, width, 3, padding=1)
        self.channel = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(width, squeezed, 1, bias=False),
            nn.ReLU(inplace=True),
            nn.Conv2d(squeezed, width, 1, bias=False),
            nn.Sigmoid(),
        )
        # The published ReLU and second convolution are left out: on one channel, a ReLU can be dead from the start.
        self.spatial = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, bias=False), nn.Sigmoid())
        self.weigh = nn.Sequential(nn.Conv2d(width, count, 1, bias=False), nn.Sigmoid())

    def forward(self, levels: list[torch.Tensor]) -> torch.Tensor:
        features = self.reduce(torch.cat(levels, dim=1))
        features = features + self.channel(features)
        features = features + self.spatial(features.mean(dim=1, keepdim=True))
        weights = self.weigh(features)
        return torch.cat([level * weights[:, i : i + 1] for i, level in enumerate(levels)], dim=1)
