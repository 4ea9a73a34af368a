"""Whose code a module is: the user's and ours is followed, that of Python and of installed distributions is not."""

from __future__ import annotations

import sys

from ocr.pipeline.reach.distributions import distributions_of

NEVER_PIXELS = (
    "ocr.errors",
    "ocr.checks",
    "ocr.atomic",
    "ocr.malloc",
    "ocr.pipeline.fingerprint",
    "ocr.pipeline.reach",
)
"""Modules that decide whether a stage runs or a file is written, never what is made of a page."""


def is_followed(module: str) -> bool:
    """Whether the code of a module counts, and not only its name and version."""
    if _is_ours(module):  # Also if it is installed: between two releases only its code tells.
        return not f"{module}.".startswith(tuple(f"{name}." for name in NEVER_PIXELS))
    return not _is_standard(module) and not distributions_of(module)


def versions_of(module: str) -> tuple[str, ...]:
    """The distributions that a module depends on, if it is from one."""
    return () if _is_ours(module) or _is_standard(module) else distributions_of(module)


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == __name__.split(".")[0]


def _is_standard(module: str) -> bool:
    """Whether a module comes with Python."""
    return module.split(".")[0] in sys.stdlib_module_names
