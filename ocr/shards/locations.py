"""Where shards are: paths, URLs, and patterns of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ocr.errors import ConfigError
from ocr.optional import require

Locations = str | os.PathLike[str] | Iterable["Locations"]
"""A path, a URL, a pattern or a list of them."""
TELLING = frozenset(
    {"etag", "contentmd5", "md5hash", "crc32c", "digest", "checksum", "sha", "generation", "versionid", "blobid"}
    | {"lastmodified", "mtime", "modified", "modificationtime", "modify", "updated", "created"}
)
"""What stores call the digests and times of a file; a size alone does not tell one content from another."""


def is_remote(url: str) -> bool:
    """Whether a URL is outside the file system of this machine.

    >>> is_remote("s3://bucket/train-000000.tar"), is_remote("data/train-000000.tar")
    (True, False)
    """
    return "://" in url and not url.startswith("file://")


def expand(locations: Locations, setting: str = "tar_path") -> list[str]:
    """A brace pattern, a glob, a path or a list of them, as a list of paths and URLs.

    >>> expand("s3://b/train-{000008..000010}.tar")
    ['s3://b/train-000008.tar', 's3://b/train-000009.tar', 's3://b/train-000010.tar']
    """
    if isinstance(locations, str | os.PathLike):
        found = _expand_one(str(locations))
    else:
        try:
            found = [url for each in locations for url in expand(each, setting)]
        except TypeError:
            problem = f"{setting}={locations!r} must be a path, a pattern or a list of them"
            raise ConfigError(problem, setting=setting, value=locations) from None
    if not found:
        problem = f"{setting}={locations!r} matches no shard. Write some: ocr convert SRC DST"
        raise ConfigError(problem, setting=setting, value=locations)
    return found


def _expand_one(pattern: str) -> list[str]:
    head, opened, rest = pattern.partition("{")
    body, closed, tail = rest.partition("}")
    if opened and closed:
        first, dots, last = body.partition("..")
        if dots and first.isdigit() and last.isdigit():
            options = [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
        else:
            options = body.split(",")
        return [url for option in options for url in _expand_one(head + option + tail)]
    if "*" in pattern or "?" in pattern:
        if is_remote(pattern):
            system, remote_path = file_system(pattern)
            return sorted(system.unstrip_protocol(path) for path in system.glob(remote_path))
        anchor = Path(pattern)
        return sorted(str(path) for path in anchor.parent.glob(anchor.name))
    return [pattern]


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and its path there."""
    fsspec = require("fsspec", f"{url.partition('://')[0]}:// shards")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{url}: {error}. Install what its protocol needs, for S3: pip install glyphfeed[s3]", path=url
        ) from error
    return system, path


def remote_version(url: str) -> str | None:
    """Digest of the ETag, size and times that a store gives for a file; None if it tells neither digest nor time."""
    system, path = file_system(url)
    system.invalidate_cache(path)  # Listings are remembered: they tell what was there before.
    info = {name.lower().replace("-", "").replace("_", ""): str(value) for name, value in system.info(path).items()}
    told = sorted((name, value) for name, value in info.items() if name in TELLING and value not in ("", "None"))
    return hashlib.sha256(repr([*told, info.get("size")]).encode()).hexdigest() if told else None
