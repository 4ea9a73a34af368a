"""Files of any store as local files: local ones as they are, remote ones fetched and kept within a budget."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, BinaryIO, TypeVar, cast

from ocr.errors import DataError
from ocr.shards.locations import file_system, is_remote, remote_version

log = logging.getLogger(__name__)
CHUNK_BYTES = 4 << 20
MAX_IN_MEMORY = 64 << 20
FIRST_PAUSE_SECONDS = 0.5
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Storage:
    """Where fetched files are kept, how many bytes they may take, and how often a fetch is tried."""

    folder: Path
    max_bytes: int | None = None
    tries: int = 5

    def open(self, url: str, size: int | None = None, sha256: str | None = None) -> tuple[Path, BinaryIO]:
        """The content of `url` as a local file, and that file opened: it can be read even if it is removed since.

        What must be fetched is checked against size and sha256. Without a sha256 the store is asked for the version of
        the file every time, and a copy of another version is not used.
        """
        if not is_remote(url):
            return _open_local(Path(url.removeprefix("file://")), size)
        for _ in range(self.tries):
            version = sha256 or self.version(url)
            opened = self._open_copy(url, version, size, sha256)
            if opened is not None:
                return opened
        problem = f"{url}: changed each of {self.tries} times while it was fetched. Start again after its upload"
        raise DataError(problem, path=url)

    def fetch(self, url: str, size: int | None = None, sha256: str | None = None) -> None:
        """Fetch a remote file before it is needed, unless its copy could not be told from an old one then."""
        if is_remote(url) and (sha256 or self.version(url)):
            self.open(url, size, sha256)[1].close()

    def read(self, url: str) -> IO[bytes] | None:
        """A file such as an index, as a stream; None if it does not exist."""
        if not is_remote(url):
            return _read_local(Path(url.removeprefix("file://")))
        return self._retry(lambda: _read_remote(url), url)

    def exists(self, url: str) -> bool:
        """Whether a file exists."""
        if not is_remote(url):
            return Path(url.removeprefix("file://")).exists()
        system, remote_path = file_system(url)
        return bool(self._retry(lambda: system.exists(remote_path), url))

    def version(self, url: str) -> str | None:
        """What the store says about the content of a remote file; None if it says nothing."""
        return self._retry(lambda: remote_version(url), url)

    def _open_copy(
        self, url: str, version: str | None, size: int | None, sha256: str | None
    ) -> tuple[Path, BinaryIO] | None:
        """The copy of a version, fetched if it is missing; None if the file changed while it was fetched."""
        path = self.folder / f"{_short(url)}-{_short(str(version))}-{url.rpartition('/')[2]}"
        with self._turn(path) as partial:
            stream = _open_complete(path, size) if version else None
            if stream is not None:
                os.utime(stream.fileno())
                return path, stream
            self._retry(lambda: self._fetch(url, partial, size, sha256), url)
            if sha256 is None and self.version(url) != version:
                return None
            # Opened before it has its name, from which on another process may remove it to make room.
            stream = partial.open("rb")
            os.replace(partial, path)
        self._remove_other_versions(path)
        self._stay_within_budget(path)
        return path, stream

    def _fetch(self, url: str, partial: Path, size: int | None, sha256: str | None) -> None:
        system, remote_path = file_system(url)
        hashed, fetched = hashlib.sha256(), 0
        with system.open(remote_path, "rb", block_size=CHUNK_BYTES) as remote, partial.open("wb") as stream:
            while chunk := remote.read(CHUNK_BYTES):
                stream.write(chunk)
                hashed.update(chunk)
                fetched += len(chunk)
        if size is not None and fetched != size:
            problem = f"{url}: ended at offset {fetched} of {size}. Upload it again, or set on_bad_sample=skip"
            raise DataError(problem, value=fetched, path=url)
        if sha256 is not None and hashed.hexdigest() != sha256:
            problem = f"{url}: its sha256 differs from the one in its index. Upload it again, or set on_bad_sample=skip"
            raise DataError(problem, value=hashed.hexdigest(), path=url)

    def _retry(self, action: Callable[[], _T], url: str) -> _T:
        """Try again after a pause that doubles each time; a file that does not exist is not tried again."""
        for attempt in range(1, self.tries + 1):
            try:
                return action()
            except FileNotFoundError as error:
                raise DataError(f"{url}: not found. Upload it, or set on_bad_sample=skip", path=url) from error
            except Exception as error:
                if attempt == self.tries:
                    if isinstance(error, DataError):
                        raise
                    problem = f"{url}: cannot be read after {attempt} tries ({error})"
                    raise DataError(problem, value=attempt, path=url) from error
                pause = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                log.warning("%s: try %d of %d failed (%s); again in %.1f s", url, attempt, self.tries, error, pause)
                time.sleep(pause)
        raise AssertionError

    @contextmanager
    def _turn(self, path: Path) -> Iterator[Path]:
        """Be the only one to fetch a file; the lock is on the partial file, and ends with its process."""
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        while True:
            descriptor = _open_lock(partial)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_file(descriptor, partial):
                break
            _close_lock(descriptor)  # The process that held it has renamed the file meanwhile.
        try:
            yield partial
        finally:
            if _is_file(descriptor, partial):
                partial.unlink()
            _close_lock(descriptor)

    def _remove_other_versions(self, newest: Path) -> None:
        """Remove the copies of what a URL held before."""
        url = newest.name.split("-")[0]
        for path in self.folder.glob(f"{url}-*"):
            if path != newest:
                path.unlink(missing_ok=True)

    def _stay_within_budget(self, newest: Path) -> None:
        """Remove the least recently used files; processes that read them have them mapped and go on."""
        if self.max_bytes is None:
            return
        kept = []
        for path in self.folder.iterdir():
            with suppress(OSError):
                if not path.name.startswith("."):
                    known = path.stat()
                    kept.append((known.st_mtime_ns, known.st_size, path))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if total <= self.max_bytes:
                break
            if path != newest:
                path.unlink(missing_ok=True)
                total -= size


def _read_local(path: Path) -> IO[bytes] | None:
    try:
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = f"{path}: cannot be read ({error.strerror}). Restore it, or convert again"
        raise DataError(problem, path=path) from error


def _open_local(path: Path, size: int | None) -> tuple[Path, BinaryIO]:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise DataError(
            f"{path}: the shard cannot be found ({error.strerror}). Restore it, or set on_bad_sample=skip", path=path
        ) from error
    found = os.fstat(stream.fileno()).st_size
    if size is not None and found != size:
        stream.close()
        problem = f"{path}: {found} bytes, but its index says {size}. Restore it, or convert again"
        raise DataError(problem, value=found, path=path)
    return path, stream


def _open_complete(path: Path, size: int | None) -> BinaryIO | None:
    """A copy that was fetched before; None if there is none of this size. It may be removed at any time."""
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return None
    if size is None or os.fstat(stream.fileno()).st_size == size:
        return stream
    stream.close()
    return None


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_remote(url: str) -> IO[bytes] | None:
    system, remote_path = file_system(url)
    stream = SpooledTemporaryFile(MAX_IN_MEMORY)  # noqa: SIM115 - for the caller
    try:
        if (system.info(remote_path).get("size") or 0) <= MAX_IN_MEMORY:
            stream.write(system.cat_file(remote_path))
        else:
            with system.open(remote_path, "rb", block_size=CHUNK_BYTES) as remote:
                shutil.copyfileobj(remote, stream, CHUNK_BYTES)
    except FileNotFoundError:
        return None
    stream.seek(0)
    return cast(IO[bytes], stream)


# A forked worker process inherits the descriptors of fetches in threads of its parent, and with them their locks,
# which would then be held as long as the worker lives.
_locks: set[int] = set()


def _open_lock(path: Path) -> int:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
    _locks.add(descriptor)
    return descriptor


def _close_lock(descriptor: int) -> None:
    _locks.discard(descriptor)
    os.close(descriptor)


def _close_inherited_locks() -> None:
    for descriptor in list(_locks):
        _close_lock(descriptor)


os.register_at_fork(after_in_child=_close_inherited_locks)


def _is_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
