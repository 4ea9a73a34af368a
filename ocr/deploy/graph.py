"""graph: the detector as it is deployed: uint8 pages in, normalisation inside, probability maps out."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional

from ocr.deploy.runtimes import MIN_SIDE
from ocr.models.detector import TextDetector
from ocr.models.encoder import STRIDES
from ocr.models.head import Prediction
from ocr.pipeline.device import Normalize

MULTIPLE = STRIDES[-1]
"""Height and width of a deployed graph's pages are multiples of this."""
INPUT, OUTPUT = "pages", "prob_maps"


class DetectorGraph(nn.Module):
    """Pages (B, H, W, 3) uint8 RGB, H and W multiples of 32 from 64 on, to probability maps (B, H, W) float32.

    Normalisation and the sigmoid are float32, whatever `dtype` the layers between them have.

    >>> graph = DetectorGraph(TextDetector("mobilenetv3_small_050", channels=16).eval(), Normalize())
    >>> graph(torch.zeros(2, 64, 96, 3, dtype=torch.uint8)).shape
    torch.Size([2, 64, 96])
    """

    def __init__(self, detector: TextDetector, normalize: Normalize, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.detector = detector.to(dtype)
        self.dtype = dtype
        offset, factor = (torch.from_numpy(part).view(1, 3, 1, 1) for part in normalize.offset_and_factor)
        self.register_buffer("offset", offset)
        self.register_buffer("factor", factor)

    def forward(self, pages: torch.Tensor) -> torch.Tensor:
        pixels = pages.permute(0, 3, 1, 2).float()
        images = (pixels - self.get_buffer("offset")) * self.get_buffer("factor")
        prediction: Prediction = self.detector(images.to(self.dtype), with_threshold=False)
        return prediction.prob_map[:, 0]


def exportable(detector: TextDetector, normalize: Normalize, dtype: torch.dtype = torch.float32) -> DetectorGraph:
    """A graph of a copy of the detector whose padding does not depend on the size of the page."""
    own = copy.deepcopy(detector).eval()
    own.memory_format = torch.contiguous_format  # The layout is the runtime's choice.
    _fix_padding(own)
    return DetectorGraph(own.to(memory_format=torch.contiguous_format), normalize, dtype).eval()


class FixedPadding(nn.Module):
    """A convolution with TensorFlow's "same" padding for sizes that are multiples of its stride.

    timm computes the padding from the size of each page; symbolic sizes then grow from layer to layer, and
    `torch.export` of an EfficientNet-Lite did not end within five minutes.
    """

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution
        self.pads: list[int] = []
        sizes = zip(convolution.kernel_size, convolution.stride, convolution.dilation, strict=True)
        for kernel, stride, dilation in reversed(list(sizes)):
            total = max(dilation * (kernel - 1) + 1 - stride, 0)
            self.pads += [total // 2, total - total // 2]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        own = self.convolution
        padded = functional.pad(images, self.pads)
        return functional.conv2d(padded, own.weight, own.bias, own.stride, 0, own.dilation, own.groups)


def _fix_padding(module: nn.Module) -> None:
    from timm.layers.conv2d_same import Conv2dSame  # Here, because a checkpoint runs without timm.

    for name, child in list(module.named_children()):
        if isinstance(child, Conv2dSame):
            setattr(module, name, FixedPadding(child))
        else:
            _fix_padding(child)


def export_program(graph: DetectorGraph) -> torch.export.ExportedProgram:
    """The graph with symbolic batch, height and width."""
    height, width = (torch.export.Dim(name, min=MIN_SIDE // MULTIPLE, max=1024) for name in ("height_32", "width_32"))
    shapes = {0: torch.export.Dim("batch", min=1, max=1024), 1: MULTIPLE * height, 2: MULTIPLE * width}
    # Different from each other and from 1: a symbol that equals a constant would become it.
    example = torch.zeros(2, 4 * MULTIPLE, 3 * MULTIPLE, 3, dtype=torch.uint8)
    return torch.export.export(graph, (example,), dynamic_shapes=(shapes,))
