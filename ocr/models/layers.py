"""The two layers that decoders, scale fusion and head are made of."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class ConvNormReLU(nn.Sequential):
    """A convolution that keeps the size (or divides it by `stride`), batch norm, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int = 3, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )


def upsample_to(small: torch.Tensor, large: torch.Tensor) -> torch.Tensor:
    """Repeat pixels until `small` has the height and width of `large`."""
    if small.shape[-2:] == large.shape[-2:]:
        return small
    return functional.interpolate(small, size=large.shape[-2:], mode="nearest")
