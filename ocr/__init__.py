"""GlyphFeed: text detectors for documents.

>>> from ocr import DBTransforms
>>> DBTransforms([]).fixed
()
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocr.cache.items import cached as cached
    from ocr.datasets.base import OCRDataset as OCRDataset
    from ocr.datasets.conditional_normalize import ConditionalNormalize as ConditionalNormalize
    from ocr.datasets.data_module import OCRDataModule as OCRDataModule
    from ocr.datasets.db_collate_fn import DBCollateFN as DBCollateFN
    from ocr.datasets.transforms import DBTransforms as DBTransforms
    from ocr.datasets.webdataset import OCRWebDataset as OCRWebDataset
    from ocr.deploy.detector import Detector as Detector
    from ocr.evaluation.cleval import CLEvalMetric as CLEvalMetric
    from ocr.evaluation.hmean import HmeanIoU as HmeanIoU
    from ocr.loader.loader import Loader as Loader
    from ocr.loader.shapes import ShapeBatchSampler as ShapeBatchSampler
    from ocr.models.detector import TextDetector as TextDetector

__version__ = "0.1.0"
# No network unless asked: Albumentations looks for a newer version when it is imported, Ray sends usage statistics.
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
__all__ = [
    "CLEvalMetric",
    "ConditionalNormalize",
    "DBCollateFN",
    "DBTransforms",
    "Detector",
    "HmeanIoU",
    "Loader",
    "OCRDataModule",
    "OCRDataset",
    "OCRWebDataset",
    "ShapeBatchSampler",
    "TextDetector",
    "cached",
]

_HOMES = {
    "CLEvalMetric": "ocr.evaluation.cleval",
    "ConditionalNormalize": "ocr.datasets.conditional_normalize",
    "DBCollateFN": "ocr.datasets.db_collate_fn",
    "DBTransforms": "ocr.datasets.transforms",
    "Detector": "ocr.deploy.detector",
    "HmeanIoU": "ocr.evaluation.hmean",
    "Loader": "ocr.loader.loader",
    "OCRDataModule": "ocr.datasets.data_module",
    "OCRDataset": "ocr.datasets.base",
    "OCRWebDataset": "ocr.datasets.webdataset",
    "ShapeBatchSampler": "ocr.loader.shapes",
    "TextDetector": "ocr.models.detector",
    "cached": "ocr.cache.items",
}


def __getattr__(name: str) -> Any:
    # Torch, numba and Lightning are imported with the first name that needs them, not with the package.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
