"""hgnet: PP-HGNetV2-B0, the encoder of the bundled detector, with the names of timm's weights.

Importing timm takes 1.7 s of CPU, because it imports torchvision. This encoder does without.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

NAME = "hgnetv2_b0"
# Channels in, in a layer and out; blocks; whether it halves the page; light layers; kernel size.
STAGES = (
    (16, 16, 64, 1, False, False, 3),
    (64, 32, 256, 1, True, False, 3),
    (256, 64, 512, 2, True, True, 5),
    (512, 128, 1024, 1, True, True, 5),
)
CHANNELS = tuple(made for _, _, made, *_ in STAGES)
LAYERS = 3


class HgNet(nn.Module):
    """Images to feature maps at strides 4, 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.stages_0, self.stages_1, self.stages_2, self.stages_3 = (Stage(*stage) for stage in STAGES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
        features = [self.stem(images)]
        for stage in (self.stages_0, self.stages_1, self.stages_2, self.stages_3):
            features.append(stage(features[-1]))
        return features[1:]


class Affine(nn.Module):
    """One learnt factor and one offset for all channels."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.scale * features + self.bias


class Convolution(nn.Module):
    """Convolution, norm and, if `act`, ReLU with an affine step."""

    def __init__(self, given: int, made: int, kernel: int, stride: int = 1, groups: int = 1, act: bool = True) -> None:
        super().__init__()
        # Of even kernels, the caller pads.
        padding = (kernel - 1) // 2
        self.conv = nn.Conv2d(given, made, kernel, stride, padding, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(made)
        self.act = nn.ReLU() if act else nn.Identity()
        self.lab = Affine() if act else nn.Identity()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.lab(self.act(self.bn(self.conv(features))))
        return found


class LightConvolution(nn.Module):
    """A convolution per pixel, then one per channel."""

    def __init__(self, given: int, made: int, kernel: int) -> None:
        super().__init__()
        self.conv1 = Convolution(given, made, 1, act=False)
        self.conv2 = Convolution(made, made, kernel, groups=made)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.conv2(self.conv1(features))
        return found


class Stem(nn.Module):
    """Pages to a quarter of their size."""

    def __init__(self) -> None:
        super().__init__()
        self.stem1 = Convolution(3, 16, 3, stride=2)
        self.stem2a, self.stem2b = Convolution(16, 8, 2), Convolution(8, 16, 2)
        self.stem3 = Convolution(32, 16, 3, stride=2)
        self.stem4 = Convolution(16, 16, 1)
        self.pool = nn.MaxPool2d(2, stride=1, ceil_mode=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        halved = functional.pad(self.stem1(images), (0, 1, 0, 1))
        convolved = self.stem2b(functional.pad(self.stem2a(halved), (0, 1, 0, 1)))
        found: torch.Tensor = self.stem4(self.stem3(torch.cat([self.pool(halved), convolved], dim=1)))
        return found


class Block(nn.Module):
    """Layers one after the other, all of whose outputs are joined."""

    def __init__(self, given: int, inner: int, made: int, kernel: int, light: bool, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        kind = LightConvolution if light else Convolution
        self.layers = nn.ModuleList([kind(inner if layer else given, inner, kernel) for layer in range(LAYERS)])
        joined = given + LAYERS * inner
        self.aggregation = nn.Sequential(Convolution(joined, made // 2, 1), Convolution(made // 2, made, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs = [features]
        for layer in self.layers:
            outputs.append(layer(outputs[-1]))
        found: torch.Tensor = self.aggregation(torch.cat(outputs, dim=1))
        return found + features if self.residual else found


class Stage(nn.Module):
    """Blocks at one size of the page."""

    def __init__(self, given: int, inner: int, made: int, blocks: int, halve: bool, light: bool, kernel: int) -> None:
        super().__init__()
        self.downsample = Convolution(given, given, 3, 2, given, act=False) if halve else nn.Identity()
        parts = [Block(made if n else given, inner, made, kernel, light, residual=n > 0) for n in range(blocks)]
        self.blocks = nn.Sequential(*parts)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.blocks(self.downsample(features))
        return found
