"""The public face: datasets and transforms by the names that training code already uses."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocr.datasets.collate import DBCollateFN as DBCollateFN
    from ocr.datasets.dali_loader import DALIDataLoader as DALIDataLoader
    from ocr.datasets.ocr_dataset import OCRDataset as OCRDataset
    from ocr.datasets.ocr_webdataset import OCRWebDataset as OCRWebDataset
    from ocr.datasets.transforms import DBTransforms as DBTransforms

_HOMES = {
    "DALIDataLoader": "ocr.datasets.dali_loader",
    "DBCollateFN": "ocr.datasets.collate",
    "DBTransforms": "ocr.datasets.transforms",
    "OCRDataset": "ocr.datasets.ocr_dataset",
    "OCRWebDataset": "ocr.datasets.ocr_webdataset",
}

__all__ = ["DALIDataLoader", "DBCollateFN", "DBTransforms", "OCRDataset", "OCRWebDataset"]


def __getattr__(name: str) -> Any:
    # Torch and numba load with the first dataset that is asked for, not with the package.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
