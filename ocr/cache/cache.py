"""cache: what some stages make of pages, found by what it was made of.

A key is the digest of the stages (parameters, code, libraries), of the file's content and of its annotation. So nothing
is ever stale: an edited page has another key, a renamed folder has the same ones. A second table remembers the content
of a file by its path and signature, as git's index does. A value is used if its checksum is right.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Sequence
from typing import Any

from ocr.cache.store import MAX_REMEMBERED, PREFIX_BYTES, Store, cache_root, checked, open_store, unchecked
from ocr.pipeline.dense import codec_version
from ocr.pipeline.fingerprint import digest, stages_digest
from ocr.pipeline.page_index import PACKED_BYTES, UNKNOWN, Signature, content_digest
from ocr.pipeline.path import Kept
from ocr.units import parse_bytes

log = logging.getLogger(__name__)
FORMAT = "pages 1"
"""Of the values: another one makes other keys."""
RECHECKED = 3
"""Hits of a run that are made again and compared: a stage can depend on something that no digest shows."""
MAX_LOCATIONS = 8


class Cache:
    """The pages of one dataset at its cut."""

    def __init__(
        self,
        stages: Sequence[object],
        folder: str | os.PathLike[str] | None = None,
        max_bytes: int | str = "auto",
        location: str = "",
        *,
        unit: str = "page",
        recheck: int = RECHECKED,
    ) -> None:
        """`location` says where the pages are from, and `unit` what they are, for people who look into the cache."""
        if max_bytes != "auto":
            parse_bytes(max_bytes)  # An error of the setting, before the first page is read.
        self.root, self._max_bytes = cache_root(folder), max_bytes
        self.prefix = bytes.fromhex(digest(FORMAT, codec_version(), stages_digest(tuple(stages))))[:PREFIX_BYTES]
        self._about = {"unit": unit, "stages": " -> ".join(map(repr, stages))}
        self._location, self._is_described = location, False
        self._to_recheck = recheck
        self._files: dict[str, bytes] = {}
        """Signature and content of files, as far as this process was asked for them."""
        self._lock = threading.Lock()

    @property
    def store(self) -> Store:
        """Where values are; every process has its own."""
        return open_store(self.root, self._max_bytes)

    @property
    def stopped(self) -> str:
        """Why nothing more is kept; empty as long as pages are."""
        return self.store.stopped

    def content_of(self, path: str, signature: Signature) -> bytes | None:
        """The digest of a file's content, if the file has the signature that it had when it was read."""
        known, packed = self._files.get(path), signature.packed
        if known is None or not known.startswith(packed):
            known = self.store.get("files", _path_key(path))
            if known is None or not known.startswith(packed):
                return None
            if len(self._files) < MAX_REMEMBERED:
                self._files[path] = known
        return known[PACKED_BYTES:]

    def remember(self, path: str, signature: Signature, content: bytes) -> None:
        """Note the content of a file, unless its signature does not prove it."""
        if signature != UNKNOWN:
            self.store.put("files", _path_key(path), signature.packed + content)

    def get(self, content: bytes, annotation: bytes) -> Kept:
        """What was made of this content and annotation."""
        found = self.store.get("pages", self._key(content, annotation))
        if found is None:
            return Kept(None, "miss")
        value = unchecked(found)
        if value is None:
            return Kept(None, "invalid")
        if not self._to_recheck:
            return Kept(value, "hit")
        with self._lock:
            recheck = self._to_recheck > 0
            self._to_recheck -= recheck
        return Kept(value, "hit", recheck)

    def put(self, content: bytes, annotation: bytes, value: bytes) -> None:
        """Keep what was made of this content and annotation."""
        if not self._is_described:
            self._describe()
        self.store.put("pages", self._key(content, annotation), checked(value))

    def flush(self) -> None:
        """Write what is on its way."""
        self.store.flush()

    def distrust(self, name: str) -> None:
        """The stages now make something else of a page: forget all that they made."""
        log.warning(
            "the stages now make something else of %s, for no known reason. Does a stage depend on something that is "
            "not one of its parameters? What the cache has of them is rebuilt",
            name,
        )
        self.store.delete_all(self.prefix)

    def _key(self, content: bytes, annotation: bytes) -> bytes:
        return self.prefix + content_digest(content + annotation)

    def _describe(self) -> None:
        """Note what the keys of these stages are of, for `glyphfeed cache ls`."""
        self._is_described = True
        known = describe(self.store).get(self.prefix, {})
        locations = [*dict.fromkeys([self._location, *known.get("data", ())])][:MAX_LOCATIONS]
        self.store.put("about", self.prefix, json.dumps(self._about | {"data": locations}).encode())

    def __getstate__(self) -> dict[str, object]:
        return {name: {} if name == "_files" else value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())


def describe(store: Store) -> dict[bytes, dict[str, Any]]:
    """By the prefix of their keys: what values are, where their sources are from, the stages that made them."""
    found = {}
    for prefix, text in store.items("about"):
        try:
            found[prefix] = json.loads(bytes(text))
        except ValueError:
            continue
    return found


def _path_key(path: str) -> bytes:
    return content_digest(os.path.abspath(path).encode(errors="surrogatepass"))
