"""Optional libraries are imported when they are used; if one is missing, the error names the extra to install."""

from importlib import import_module
from types import ModuleType

from ocr.errors import MissingExtraError

EXTRAS = {
    "albumentations": "albumentations",
    "nvidia.dali": "dali",
    "ray": "ray",
    "fsspec": "s3",
    "s3fs": "s3",
    "onnx": "export",
    "onnxruntime": "export",
}


def require(module: str, purpose: str) -> ModuleType:
    """Import an optional module, or name the extra that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        extra = EXTRAS[module]
        raise MissingExtraError(
            f"{purpose} needs {module}, which is not installed: pip install 'glyphfeed[{extra}]'"
        ) from error
