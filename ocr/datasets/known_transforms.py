"""Which transforms of Albumentations a transform is: by its class, since anyone may give theirs the same name."""

from __future__ import annotations

import sys
from typing import Any

CONDITIONAL = "ConditionalNormalize"
_HOMES = {CONDITIONAL: "ocr.datasets.conditional_normalize"}


def is_exactly(step: object, *names: str) -> bool:
    """Whether a transform is an instance of one of these classes, and not of a subclass."""
    return any(type(step) is _class(name) for name in names)


def is_kind_of(step: object, *names: str) -> bool:
    """Whether a transform is an instance of one of these classes or of a subclass."""
    return any(isinstance(step, kind) for name in names if (kind := _class(name)) is not None)


def _class(name: str) -> Any:
    """A class of Albumentations, or ours that extends one; None as long as nobody imported it: there is no instance."""
    return getattr(sys.modules.get(_HOMES.get(name, "albumentations")), name, None)
