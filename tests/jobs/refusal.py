"""A command that ends as users see a known error: exit status 2 and one line on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from rejection import rejects

from ocr.errors import ConfigError, GlyphFeedError


@contextmanager
def refuses(kind: type[GlyphFeedError] = ConfigError, **fields: object) -> Iterator[None]:
    """The block ends the command because of an error with these fields."""
    with rejects(kind, **fields):
        with pytest.raises(SystemExit) as ended:
            yield
        assert ended.value.code == 2
        assert isinstance(ended.value.__context__, kind)
        raise ended.value.__context__


def ends_well(main: Callable[[], object]) -> None:
    """Run a program, which may end with exit status 0."""
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
