"""An error that GlyphFeed raises on purpose, checked by its fields: its wording can improve without a broken test."""

from collections.abc import Iterator
from contextlib import contextmanager
from os import fspath

import pytest

from ocr.errors import GlyphFeedError


@contextmanager
def rejects(kind: type[GlyphFeedError], **fields: object) -> Iterator[pytest.ExceptionInfo[GlyphFeedError]]:
    """The block raises this error about this `setting`, `value` and `path`; at least one of them is named."""
    assert fields, "name a field: its wording alone says nothing"
    with pytest.raises(kind) as caught:
        yield caught
    if fields.get("path") is not None:
        fields["path"] = fspath(fields["path"])  # type: ignore[call-overload]
    assert {name: getattr(caught.value, name) for name in fields} == fields, str(caught.value)
