"""Safe access to the fields of a result, which may be missing or of another type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def number(found: Mapping[str, Any], key: str) -> float | None:
    """A finite number; None if there is none."""
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def objects(found: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The objects of a list; empty if there is no such list."""
    value = found.get(key)
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def part(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object; empty if there is none."""
    value = found.get(key)
    return value if isinstance(value, Mapping) else {}


def words(found: Mapping[str, Any], key: str) -> str:
    """A text as one printable line; empty if there is none.

    >>> words({"name": "a\\nb\\udcff"}, "name")
    'a b\ufffd'
    """
    value = found.get(key)
    if value is None or isinstance(value, Mapping | list):
        return ""
    # File names may contain bytes that are not UTF-8; JSON keeps them as lone surrogates.
    return "".join(c if c.isprintable() else "\ufffd" for c in " ".join(str(value).split()))


def texts(found: Mapping[str, Any], key: str) -> list[str]:
    """The texts of a list."""
    value = found.get(key)
    return [words({"": text}, "") for text in value] if isinstance(value, list) else []
