"""storage: where shards are. Local files stay where they are; remote ones are fetched and kept within a budget."""

from __future__ import annotations

import hashlib
import logging
import os
import random
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from filelock import FileLock, Timeout

from ocr.atomic import partial_prefix, replacing
from ocr.errors import ConfigError, DataError, GlyphFeedError
from ocr.optional import require
from ocr.pipeline.image_listing import hash_of
from ocr.pipeline.page_index import Signature, file_signature

if TYPE_CHECKING:
    from ocr.shards.index import Shard

log = logging.getLogger(__name__)
Locations = str | os.PathLike[str] | Iterable["Locations"]
"""A path, a URL, a pattern or a list of them."""
TELLING = frozenset(
    {"etag", "contentmd5", "md5hash", "crc32c", "digest", "checksum", "sha", "generation", "versionid", "blobid"}
    | {"lastmodified", "mtime", "modified", "modificationtime", "modify", "updated", "created"}
)
"""What stores call the digests and times of a file; a size alone does not tell one content from another."""
CHUNK_BYTES = 4 << 20
MAX_IN_MEMORY = 64 << 20
FIRST_PAUSE_SECONDS = 0.5
WAIT_SECONDS = 10
"""How often the log says that another process is waited for."""
STALE_SECONDS = 60
"""Another process that fetches a file and has written nothing for so long is not waited for."""
LEFT_BEHIND_SECONDS = 3600
"""A partial file that nothing was written to for so long was left by a process that was killed."""
SHARDS_AHEAD = 2
MAX_OPEN = 128
"""Shards that are open at the same time: a process has about a thousand file descriptors."""
_T = TypeVar("_T")


def is_remote(url: str) -> bool:
    """Whether a URL is outside the file system of this machine.

    >>> is_remote("s3://bucket/train-000000.tar"), is_remote("data/train-000000.tar")
    (True, False)
    """
    return "://" in url and not url.startswith("file://")


def local_path(url: str) -> Path:
    """The path of a local file."""
    return Path(url.removeprefix("file://"))


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
        problem = f"{setting}={locations!r} matches no shard. Write some: glyphfeed shards SRC DST"
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
            system, remote_path = _file_system(pattern)
            return sorted(system.unstrip_protocol(path) for path in system.glob(remote_path))
        anchor = Path(pattern)
        return sorted(str(path) for path in anchor.parent.glob(anchor.name))
    return [pattern]


def _file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and its path there."""
    fsspec = require("fsspec", f"{url.partition('://')[0]}:// shards")
    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise ConfigError(
            f"{url}: {error}. Install the package of its protocol, for S3: pip install 'glyphfeed[s3]'", path=url
        ) from error
    return system, path


@dataclass(frozen=True, slots=True)
class Storage:
    """Where fetched files are kept, how many bytes they take at most, and how often a fetch is tried."""

    folder: Path
    max_bytes: int | None = None
    tries: int = 5

    def open(
        self, url: str, size: int | None = None, sha256: str = "", signature: Signature | None = None
    ) -> tuple[Path, BinaryIO]:
        """The content of `url` as a local file, and that file opened: it can be read even if it is removed since.

        A remote file is fetched unless its copy is here, and checked against size and sha256. Without a sha256, it is
        the file that had this signature.
        """
        if not is_remote(url):
            return _open_local(local_path(url), size)
        path = self.folder / f"{_short(url)}-{_short(sha256 or str(signature))}-{url.rpartition('/')[2]}"
        stream = _open_copy(path, size)
        if stream is not None:
            return path, stream
        with self._turn(url, path):
            stream = _open_copy(path, size)
            if stream is not None:
                return path, stream
            with replacing(path) as partial:
                self._retry(lambda: _fetch(url, partial, size, sha256), url)
                if not sha256 and signature is not None and signature.mtime_ns and self.signature(url) != signature:
                    raise DataError(f"{url}: changed since it was opened. Start again", path=url)
                # Opened before it has its name, from which on another process can remove it to make room.
                stream = open(partial.name, "rb")  # noqa: SIM115 - for the caller
        self._make_room(path)
        return path, stream

    def read(self, url: str) -> IO[bytes] | None:
        """A file such as an index, as a stream; None if it does not exist."""
        if not is_remote(url):
            return _read_local(local_path(url))
        return self._retry(lambda: _read_remote(url), url)

    def signature(self, url: str) -> Signature | None:
        """What distinguishes the content of a file from another; None without such a file.

        Of a remote file it is made of what its store says about it. A store that says nothing has a new one each time.
        """
        if not is_remote(url):
            return file_signature(local_path(url))
        return self._retry(lambda: _remote_signature(url), url)

    def _retry(self, action: Callable[[], _T], url: str) -> _T:
        """Try again after a pause that doubles each time; a file that does not exist is not tried again."""
        for attempt in range(1, self.tries + 1):
            try:
                return action()
            except ConfigError:
                raise
            except FileNotFoundError as error:
                raise DataError(f"{url}: not found. Upload it, or set on_bad_sample=skip", path=url) from error
            except Exception as error:
                if attempt == self.tries:
                    if isinstance(error, DataError):
                        raise
                    problem = f"{url}: cannot be read after {attempt} tries ({error}). Check the connection"
                    raise DataError(problem, value=attempt, path=url) from error
                pause = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                log.warning("%s: try %d of %d failed (%s); again in %.1f s", url, attempt, self.tries, error, pause)
                time.sleep(pause)
        raise AssertionError

    @contextmanager
    def _turn(self, url: str, path: Path) -> Iterator[None]:
        """Wait while another process or thread fetches a file, as long as it writes.

        The lock only saves a second fetch: each process writes a file of its own, so that two at once do no harm.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / f".{path.name}.lock")
        last_ns = time.time_ns()
        is_held = False
        while not is_held:
            try:
                lock.acquire(timeout=min(WAIT_SECONDS, STALE_SECONDS))
                is_held = True
            except Timeout:
                partials = (one for one in self.folder.iterdir() if one.name.startswith(partial_prefix(path)))
                writers = {one.name: _mtime_ns(one) for one in partials if one.suffix == ".partial"}
                last_ns = max([last_ns, *writers.values()])
                seconds = (time.time_ns() - last_ns) / 1e9
                who = ", ".join(writers) or lock.lock_file
                if seconds >= STALE_SECONDS:
                    log.warning("%s: nothing was written to %s for %.0f s; it is fetched here too", url, who, seconds)
                    break
                log.info("%s: fetched by another process or thread; waiting for %s (%.0f s)", url, who, seconds)
            except (OSError, NotImplementedError):
                break  # A file system without locks, such as some network ones.
        try:
            yield
        finally:
            if is_held:
                lock.release()
                Path(lock.lock_file).unlink(missing_ok=True)

    def _make_room(self, newest: Path) -> None:
        """Remove what is not needed, and the least recently used copies beyond the budget.

        Not needed are copies of what the URL of the newest one held before, and what killed processes left. Processes
        that read a file have it open and keep it.
        """
        kept, left_ns = [], time.time_ns() - LEFT_BEHIND_SECONDS * 10**9
        for path in self.folder.iterdir():
            with suppress(OSError):
                known = path.stat()
                if path.name.startswith("."):
                    if known.st_mtime_ns < left_ns:
                        path.unlink()
                elif path != newest and path.name.partition("-")[0] == newest.name.partition("-")[0]:
                    path.unlink()
                else:
                    kept.append((known.st_mtime_ns, known.st_size, path))
        total = sum(size for _, size, _ in kept)
        for _, size, path in sorted(kept):
            if self.max_bytes is None or total <= self.max_bytes:
                break
            if path != newest:
                path.unlink(missing_ok=True)
                total -= size


class ShardFiles:
    """The bytes of shards, by number. The shards that were used last stay open; no lock is needed to read them."""

    def __init__(
        self, urls: Sequence[str], shards: Sequence[Shard], signatures: Sequence[Signature | None], storage: Storage
    ) -> None:
        """`signatures` describe the files when they were opened; None for remote ones that have a sha256."""
        self.urls, self.shards, self.signatures, self.storage = urls, shards, signatures, storage
        self._opened: dict[int, _Opened] = {}
        self._following: dict[int, list[int]] = {}
        self._asked_for: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_opened": {}}

    def read(self, number: int, start: int, size: int) -> bytes:
        """Some bytes of a shard: fewer if it ends before."""
        opened = self._opened.get(number) or self._open(number)
        try:
            return os.pread(opened.stream.fileno(), size, start)
        except OSError as error:
            problem = f"{self.urls[number]}: cannot be read at offset {start} ({error.strerror}). Restore it"
            raise DataError(problem, value=start, path=self.urls[number]) from error

    def expect(self, numbers: Iterable[int], ahead: int) -> None:
        """These shards will be used, in this order: remote ones are fetched before they are needed."""
        order = [number for number in numbers if is_remote(self.urls[number])] if ahead else []
        self._following = {number: order[at + 1 : at + 1 + ahead] for at, number in enumerate(order)}
        self._asked_for = set()
        self._fetch_in_thread(order[: 1 + ahead])

    def _open(self, number: int) -> _Opened:
        self._fetch_in_thread(self._following.get(number, []))
        url, known = self.urls[number], self.signatures[number]
        opened = _Opened(*self._open_file(number))
        found = Signature.of(os.fstat(opened.stream.fileno()))
        # A backup that links to a file changes its ctime.
        if not is_remote(url) and known is not None and found._replace(ctime_ns=0) != known._replace(ctime_ns=0):
            problem = f"{url}: changed while it was read. Its new content is read from the start of the next epoch on"
            raise DataError(problem, path=url)
        kept = dict(list(self._opened.items())[1 - MAX_OPEN :])
        if is_remote(url):
            # A file that was removed to make room takes disk space as long as it is open.
            kept = {other: one for other, one in kept.items() if one.path.exists()}
        self._opened = kept | {number: opened}
        return opened

    def _open_file(self, number: int) -> tuple[Path, BinaryIO]:
        shard = self.shards[number]
        return self.storage.open(self.urls[number], shard.bytes or None, shard.sha256, self.signatures[number])

    def _fetch_in_thread(self, numbers: Sequence[int]) -> None:
        """Fetch shards that nothing has asked for yet; a thread that hangs does not keep the process alive."""
        new = [number for number in numbers if number not in self._asked_for]
        self._asked_for.update(new)
        if new:
            threading.Thread(target=self._fetch, args=(new,), daemon=True, name="fetch-shards").start()

    def _fetch(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            # Reading a shard that cannot be fetched reports the error.
            with suppress(GlyphFeedError):
                self._open_file(number)[1].close()


class _Opened:
    """An open shard. It is closed when nothing reads it any more."""

    __slots__ = ("path", "stream")

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path, self.stream = path, stream

    def __del__(self) -> None:
        self.stream.close()


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
            f"{path}: the shard cannot be opened ({error.strerror}). Restore it, or set on_bad_sample=skip", path=path
        ) from error
    found = os.fstat(stream.fileno()).st_size
    if size is not None and found != size:
        stream.close()
        problem = f"{path}: {found} bytes, expected {size} as in its index. Restore it, or convert again"
        raise DataError(problem, value=found, path=path)
    return path, stream


def _open_copy(path: Path, size: int | None) -> BinaryIO | None:
    """A copy that was fetched before; None if there is none of this size. It can be removed at any time."""
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        return None
    if size is None or os.fstat(stream.fileno()).st_size == size:
        with suppress(FileNotFoundError):
            os.utime(path)
        return stream
    stream.close()
    return None


def _fetch(url: str, partial: IO[bytes], size: int | None, sha256: str) -> None:
    """Write a remote file into a stream; DataError if it is not the one that its index describes."""
    system, remote_path = _file_system(url)
    hashed, fetched = hashlib.sha256(), 0
    partial.seek(0)
    partial.truncate()
    with system.open(remote_path, "rb", block_size=CHUNK_BYTES) as remote:
        while chunk := remote.read(CHUNK_BYTES):
            partial.write(chunk)
            hashed.update(chunk)
            fetched += len(chunk)
    partial.flush()
    if size is not None and fetched != size:
        problem = f"{url}: ended at offset {fetched} of {size}. Upload it again, or set on_bad_sample=skip"
        raise DataError(problem, value=fetched, path=url)
    if sha256 and hashed.hexdigest() != sha256:
        problem = f"{url}: its sha256 differs from the one in its index. Upload it again, or set on_bad_sample=skip"
        raise DataError(problem, value=hashed.hexdigest(), path=url)


def _read_remote(url: str) -> IO[bytes] | None:
    system, remote_path = _file_system(url)
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


def _remote_signature(url: str) -> Signature | None:
    """From the ETag, size and times that a store gives for a file."""
    system, path = _file_system(url)
    system.invalidate_cache(path)  # Listings are remembered: they say what was there before.
    try:
        info = system.info(path)
    except FileNotFoundError:
        return None
    said = {name.lower().replace("-", "").replace("_", ""): str(value) for name, value in info.items()}
    told = sorted((name, value) for name, value in said.items() if name in TELLING and value not in ("", "None"))
    size = int(info.get("size") or 0)
    # Without a time, it is valid only in the run that asked.
    return Signature(size, 1, 1, hash_of(repr(told)) >> 1) if told else Signature(size, 0, 0, uuid.uuid4().int >> 65)


def _mtime_ns(path: Path) -> int:
    signature = file_signature(path)
    return signature.mtime_ns if signature is not None else 0


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
