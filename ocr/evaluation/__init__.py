"""Boxes from maps, and the scores of boxes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocr.evaluation.boxes import BoxesFromMap as BoxesFromMap
    from ocr.evaluation.boxes import BoxPool as BoxPool
    from ocr.evaluation.boxes import Detections as Detections
    from ocr.evaluation.cleval import CLEvalMetric as CLEvalMetric
    from ocr.evaluation.hmean import HmeanIoU as HmeanIoU

_HOMES = {
    "BoxPool": "ocr.evaluation.boxes",
    "BoxesFromMap": "ocr.evaluation.boxes",
    "Detections": "ocr.evaluation.boxes",
    "CLEvalMetric": "ocr.evaluation.cleval",
    "HmeanIoU": "ocr.evaluation.hmean",
}

__all__ = ["BoxPool", "BoxesFromMap", "CLEvalMetric", "Detections", "HmeanIoU"]


def __getattr__(name: str) -> Any:
    # Torch and numba load with the first name that is used, not with the package.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
