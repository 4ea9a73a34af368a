"""Optional libraries are imported when they are used; if one is missing, the error names the extra to install."""

import sys
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
    "onnxscript": "export",
    "openvino": "export",
    "tensorrt": "tensorrt",
    "pandas": "pandas",
    "pypdfium2": "pdf",
    "fastapi": "serve",
    "prometheus_client": "serve",
    "python_multipart": "serve",
    "uvicorn": "serve",
    "wandb": "wandb",
    "mlflow": "mlflow",
}

REPORTERS = {"openvino": "openvino_telemetry"}
"""Packages that send usage statistics as soon as their library is imported, which works without them."""


def require(module: str, purpose: str) -> ModuleType:
    """Import an optional module, or name the extra that installs it."""
    if module in REPORTERS:
        # No network unless asked: an entry of None makes its import fail.
        sys.modules.setdefault(REPORTERS[module], None)  # type: ignore[arg-type]
    try:
        return import_module(module)
    except ImportError as error:
        extra = EXTRAS[module]
        raise MissingExtraError(
            f"{purpose} needs {module}, which is not installed. Install it: pip install 'glyphfeed[{extra}]'",
            setting=extra,
            value=module,
        ) from error
