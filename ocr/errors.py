"""Every error that GlyphFeed raises on purpose: `problem, value. Fix.`, with the setting, value and file as fields.

GlyphFeedError
├── ConfigError            a setting that cannot work; raised before the first image is read
│   └── MissingExtraError  an optional library is not installed
├── OutputError            a file that cannot be written
├── StageError             a stage or transform failed on a page
└── DataError              something on disk is not what it should be
    ├── AnnotationError    an annotation file, or a word in it
    ├── ImageError         an image that cannot be read, or exceeds a limit
    │   └── ImageSizeError an image with too many pixels
    └── MapError           a stored map that does not belong to its page
"""

import os


class GlyphFeedError(Exception):
    """Base of all errors below; bugs raise other errors.

    >>> error = ConfigError("data.num_workers=-1 must be an integer >= 0", setting="data.num_workers", value=-1)
    >>> error.setting, error.value, error.path
    ('data.num_workers', -1, None)
    """

    def __init__(
        self,
        message: str = "",
        *,
        setting: str | None = None,
        value: object = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(message)
        self.setting = setting
        """What the user set, as they write it: a config key, a `--flag` or `Class.parameter`."""
        self.value = value
        """What is wrong with the setting or in the file."""
        self.path = None if path is None else os.fspath(path)
        """The file, folder or address that the error is about."""


class ConfigError(GlyphFeedError, ValueError):
    """A setting that cannot work."""


class MissingExtraError(ConfigError, ImportError):
    """An optional library is needed and not installed."""


class OutputError(GlyphFeedError, OSError):
    """A file cannot be written."""


class StageError(GlyphFeedError, RuntimeError):
    """A stage or transform failed on a page; its own error is the cause."""


class DataError(GlyphFeedError):
    """Something on disk is not what it should be."""


class AnnotationError(DataError, ValueError):
    """An annotation file, or a word in it, cannot be used."""


class ImageError(DataError, OSError):
    """An image cannot be read, or exceeds a limit."""


class ImageSizeError(ImageError):
    """An image has more pixels than the limit."""


class MapError(DataError):
    """A stored map does not belong to its page."""


def near_names(name: str, known: list[str]) -> str:
    """The hint for a mistyped name.

    >>> near_names("lettrbox", ["letterbox", "flip"])
    'Did you mean letterbox? Known: flip, letterbox'
    """
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=3)
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}Known: {', '.join(sorted(known))}"
