"""Archives of torch.export, read without unpickling."""

from __future__ import annotations

import os
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

# What `torch.export.save` writes for a detector. Others make torch unpickle objects or load compiled libraries.
_KNOWN = re.compile(
    r"[^/]+/(archive_format|archive_version|byteorder|\.data/\w+|models/model\.json|extra/[\w.]+|"
    r"data/sample_inputs/model\.pt|data/weights/(weight_\d+|model_weights_config\.json)|"
    r"data/constants/(tensor_\w+|model_constants_config\.json))"
)
_WEIGHTS_ONLY = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_ENVIRONMENT = threading.Lock()


def load_program(path: Path, extra_files: dict[str, Any]) -> Any:
    """The program of an archive, and its extra files; raises ValueError if it holds anything but tensors and graph."""
    with zipfile.ZipFile(path) as archive:
        foreign = [name for name in archive.namelist() if not _KNOWN.fullmatch(name)]
    if foreign:
        raise ValueError(f"it holds {foreign[0]}, which is neither a tensor nor the graph")
    with _weights_only():
        return torch.export.load(path, extra_files=extra_files)


@contextmanager
def _weights_only() -> Iterator[None]:
    """torch.export falls back to unpickling where tensors cannot be read otherwise; this forbids it."""
    with _ENVIRONMENT:
        before = os.environ.get(_WEIGHTS_ONLY)
        os.environ[_WEIGHTS_ONLY] = "1"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_WEIGHTS_ONLY]
            else:
                os.environ[_WEIGHTS_ONLY] = before
