"""Classes that fields are annotated with: code calls methods of their instances without naming them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, get_args

_NAME = re.compile(r"[^\W\d]\w*")


def field_types(kind: type) -> list[type]:
    """Classes named by the annotations in the body of a class, each once, in their order."""
    namespace = vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {}
    found: dict[type, None] = {}
    for annotation in vars(kind).get("__annotations__", {}).values():
        found.update(dict.fromkeys(_types(annotation, namespace)))
    return list(found)


def _types(annotation: Any, namespace: dict[str, Any]) -> Iterator[type]:
    if isinstance(annotation, str):
        for name in _NAME.findall(annotation):
            if isinstance(namespace.get(name), type):
                yield namespace[name]
    elif isinstance(annotation, type):
        yield annotation
    else:
        for part in get_args(annotation):
            yield from _types(part, namespace)
