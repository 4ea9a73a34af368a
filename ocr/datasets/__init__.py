"""The public face: datasets and transforms by the names that training code already uses."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocr.dali.loader import DALIDataLoader as DALIDataLoader
    from ocr.datasets.base import OCRDataset as OCRDataset
    from ocr.datasets.db_collate_fn import DBCollateFN as DBCollateFN
    from ocr.datasets.transforms import DBTransforms as DBTransforms
    from ocr.datasets.webdataset import OCRWebDataset as OCRWebDataset
    from ocr.loader.shapes import ShapeBatchSampler as ShapeBatchSampler

_HOMES = {
    "DALIDataLoader": "ocr.dali.loader",
    "DBCollateFN": "ocr.datasets.db_collate_fn",
    "DBTransforms": "ocr.datasets.transforms",
    "OCRDataset": "ocr.datasets.base",
    "OCRWebDataset": "ocr.datasets.webdataset",
    "ShapeBatchSampler": "ocr.loader.shapes",
}

__all__ = ["DALIDataLoader", "DBCollateFN", "DBTransforms", "OCRDataset", "OCRWebDataset", "ShapeBatchSampler"]


def __getattr__(name: str) -> Any:
    # Torch and numba are imported with the first dataset, not with the package.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
