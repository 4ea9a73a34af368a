"""quantize: int8 by static calibration, with the layers that suffer most left in float32."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocr.deploy.graph import INPUT
from ocr.deploy.runtimes import Runtime, onnx_runtime
from ocr.optional import require

log = logging.getLogger(__name__)
Pages = Sequence[NDArray[np.uint8]]
"""Pages as the model sees them, (1, H, W, 3) each."""

# With convolutions alone, values return to float32 between them: 88 ms instead of 63 for a page of 960 x 512
# (tf_efficientnet_lite0, one core, ONNX Runtime), and twice the error.
OPERATORS = ["Conv", "Add", "Clip", "Concat", "MaxPool", "Relu", "Resize"]
GROUPS = 8
"""Runs of neighbouring convolutions that are judged, and left in float32, together."""
MAX_FLOAT_GROUPS = 3
MAX_CHANGED = 0.06
"""Share of the text pixels that may change sides; above it, layers are left in float32."""
MEASURED_PAGES = 4


@dataclass(frozen=True, slots=True)
class Quantized:
    """An int8 model, and how it was made."""

    model: Any
    changed: float
    """Share of the text pixels that changed sides on pages of the calibration."""
    float_layers: tuple[str, ...]


def quantize(model: Any, pages: Pages, thresh: float, tell: Callable[[str], None] = log.info) -> Generator[Quantized]:
    """Quantised copies of a float32 ONNX model, each with more layers in float32 than the one before, made on demand.

    The last convolution and the sigmoid stay float32 in all of them.
    """
    with TemporaryDirectory(prefix="glyphfeed-int8-") as folder:
        yield from _Calibration(model, pages, thresh, Path(folder)).candidates(tell)


class _Calibration:
    def __init__(self, model: Any, pages: Pages, thresh: float, folder: Path) -> None:
        self.pages, self.thresh, self.folder = pages, thresh, folder
        require("onnxruntime", "precision=int8")
        shape_inference = import_module("onnxruntime.quantization.shape_inference")
        onnx = require("onnx", "precision=int8")
        onnx.save(model, folder / "float.onnx")
        # Folds norms into convolutions, which would be rounded apart from each other.
        shape_inference.quant_pre_process(folder / "float.onnx", folder / "ready.onnx", skip_symbolic_shape=True)
        nodes = onnx.load(folder / "ready.onnx").graph.node
        *self.layers, self.last = [node.name for node in nodes if node.op_type == "Conv"]
        self.measured = pages[:MEASURED_PAGES]
        self.ranges = folder / "ranges.json"
        self.expected = self._text(onnx_runtime.start(str(folder / "ready.onnx"), "cpu"))

    def candidates(self, tell: Callable[[str], None]) -> Generator[Quantized]:
        """First all layers, then without the groups that change pages most: those that change them little enough.

        If all of them change pages more than that, the one that does least.
        """
        best = self._quantized(set())
        if best.changed <= MAX_CHANGED:
            yield best
        groups = [list(part) for part in np.array_split(np.array(self.layers), min(GROUPS, len(self.layers)))]
        tell(f"int8 changes {best.changed:.1%} of the text pixels: measuring {len(groups)} groups of layers")
        alone = [self._quantized(set(self.layers) - set(group)).changed for group in groups]
        kept: set[str] = set()
        for index in np.argsort(alone)[::-1][:MAX_FLOAT_GROUPS]:
            kept |= set(groups[index])
            found = self._quantized(kept)
            best = min(best, found, key=lambda quantized: quantized.changed)
            if found.changed <= MAX_CHANGED:
                yield found
        if best.changed > MAX_CHANGED:
            yield best

    def _quantized(self, float_layers: set[str]) -> Quantized:
        library = import_module("onnxruntime.quantization")
        file = self.folder / "int8.onnx"
        library.quantize_static(
            self.folder / "ready.onnx",
            file,
            # The pages are run once; every candidate reads the ranges that were found then.
            None if self.ranges.is_file() else _reader(library, self.pages),
            calibration_cache_path=self.ranges,
            quant_format=library.QuantFormat.QDQ,
            activation_type=library.QuantType.QUInt8,
            weight_type=library.QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=OPERATORS,
            nodes_to_exclude=[*float_layers, self.last],
            calibrate_method=library.CalibrationMethod.MinMax,
            # The mean of the pages' ranges, not the widest of all: text pixels that change fall by two fifths.
            extra_options={"CalibMovingAverage": True},
        )
        text = self._text(onnx_runtime.start(str(file), "cpu"))
        both = list(zip(self.expected, text, strict=True))
        changed = sum(int((one ^ two).sum()) for one, two in both)
        either = sum(int((one | two).sum()) for one, two in both)
        model = require("onnx", "precision=int8").load(file)
        return Quantized(model, changed / max(either, 1), tuple(sorted(float_layers)))

    def _text(self, runtime: Runtime) -> list[NDArray[np.bool_]]:
        return [runtime(page) > self.thresh for page in self.measured]


def _reader(library: Any, pages: Pages) -> Any:
    """The pages in the form that the calibration asks for: one per call, then None."""
    remaining = iter(pages)

    class Reader(library.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, NDArray[np.uint8]] | None:
            page = next(remaining, None)
            return None if page is None else {INPUT: page}

    return Reader()
