"""The detector: encoder -> decoder -> (scale fusion) -> head, and its loss."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocr.models.detector import TextDetector as TextDetector
    from ocr.models.distil_loss import DistilLoss as DistilLoss
    from ocr.models.head import Prediction as Prediction
    from ocr.models.loss import DBLoss as DBLoss

_HOMES = {
    "DBLoss": "ocr.models.loss",
    "DistilLoss": "ocr.models.distil_loss",
    "Prediction": "ocr.models.head",
    "TextDetector": "ocr.models.detector",
}

__all__ = ["DBLoss", "DistilLoss", "Prediction", "TextDetector"]


def __getattr__(name: str) -> Any:
    # Torch and timm load with the first model that is used, not with the package.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
