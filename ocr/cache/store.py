"""store: one LMDB environment per folder, shared by all threads and processes of a machine.

LMDB brings what a cache needs: readers that wait for nobody, one writer at a time, locks that end with their process,
and files that a killed writer leaves whole. Whatever goes wrong is a warning: work continues without the store.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import lmdb
import xxhash

from ocr.cache.budget import Budget
from ocr.units import format_bytes

log = logging.getLogger(__name__)
TABLES = {"pages": b"p", "used": b"u", "files": b"f", "about": b"a"}
"""Values; the day of each value's last use; the content of files by path and signature; what values are of.

Each table has a letter in front of its keys. LMDB's own tables are opened by a write, which can wait for others."""
PREFIX_BYTES = 8
"""The beginning of a key: what was made by the same stages."""
AT_ONCE = 32
"""Values per transaction: each waits for the disk once."""
DELETED_AT_ONCE = 4096
MAX_WAITING = 4 * AT_ONCE
MAX_DELAY_SECONDS = 1.0
SUSPEND_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
"""For the writer: another process that is stopped while it writes keeps the others from writing."""
MIN_MAP_BYTES = 1 << 26
MAX_REMEMBERED = 100_000
"""Keys and files that a process remembers, of which the files need not be asked again."""
OWN_DAYS = 7
"""Values of the stages at work stay so long: a set larger than its budget would replace itself page by page."""
SPARE_SHARE = 0.05
"""Of the limit, freed when something must go, so that it need not be looked for with every value."""
STUCK = f"a write took more than {PATIENCE_SECONDS:.0f} s: another process may be stopped while it writes"
DAMAGE = (
    *(lmdb.CorruptedError, lmdb.InvalidError, lmdb.PageNotFoundError, lmdb.PanicError, lmdb.VersionMismatchError),
    *(lmdb.PageFullError, lmdb.CursorFullError),
)
"""The last two are internal errors of LMDB, which a sound file cannot cause."""


def cache_root(folder: str | os.PathLike[str] | None = None) -> Path:
    """`folder`, or else $GLYPHFEED_CACHE, or else glyphfeed in the user's folder for caches."""
    given = folder or os.environ.get("GLYPHFEED_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "glyphfeed"


def open_store(root: Path, max_bytes: int | str = "auto", readonly: bool = False) -> Store:
    """The store of a folder, opened once per process, and again after a fork."""
    given = os.fspath(root)
    if (known := _by_path.get(given)) is not None:  # Every page asks, and resolving a path takes 40 us.
        return known
    with _opening:
        folder = os.path.realpath(root)  # LMDB permits no process to open files twice, whatever their path.
        known = _stores.get(folder)
        if known is None:
            known = _stores[folder] = Store(root, max_bytes, readonly)
        _by_path[given] = known
        return known


class Store:
    """Values by their keys. Nothing raises: without its files, nothing is found and nothing is kept."""

    def __init__(self, root: Path, max_bytes: int | str = "auto", readonly: bool = False) -> None:
        self.folder = root / "store"
        self.stopped = ""
        """Why nothing more is kept; empty as long as values are."""
        self._max_bytes = max_bytes
        self._waiting: dict[str, dict[bytes, bytes]] = {table: {} for table in TABLES}
        self._change = threading.Condition()
        self._has_writer = False
        self._begun = self._ended = 0
        """Batches of waiting values that the writer began, and ended, to write."""
        self._flushes = 0
        self._env: lmdb.Environment | None = None
        self._active = 0
        """Transactions of this process."""
        self._is_suspended = False
        self._readonly = readonly
        self._inode = 0
        self._budget: Budget | None = None
        self._used: dict[bytes, bytes] = {}
        """The day that was noted for values, so that it is not looked up with each."""
        self._open()
        Finalize(self, Store.flush, args=(self,), exitpriority=10)  # In worker processes, too.

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of a key; of a page, noting the day."""
        found, today = None, _today()
        noted: bytes | None = today
        with self._transaction() as transaction:
            if transaction is not None:
                found = transaction.get(TABLES[table] + key)
                if table == "pages" and found is not None and self._used.get(key) != today:
                    noted = transaction.get(TABLES["used"] + key)
                    if len(self._used) < MAX_REMEMBERED:
                        self._used[key] = today
        if noted != today:
            self.put("used", key, today)
        return found

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Keep a value; a thread writes it with others."""
        with self._change:
            if self.stopped or self._is_closed:
                return
            self._waiting[table][key] = value
            if table == "pages":
                self._waiting["used"][key] = _today()
            if not self._has_writer:
                self._has_writer = True
                threading.Thread(target=self._write, name="cache writer", daemon=True).start()
            if len(self._waiting["pages"]) >= AT_ONCE:
                self._change.notify_all()
            has_room = lambda: bool(self.stopped) or len(self._waiting["pages"]) < MAX_WAITING  # noqa: E731
            if not self._change.wait_for(has_room, PATIENCE_SECONDS):
                self._stop(STUCK)

    def flush(self) -> None:
        """Wait until everything is written that was put so far."""
        with self._change:
            last = self._begun + any(self._waiting.values())
            self._flushes += 1
            self._change.notify_all()
            if not self._change.wait_for(lambda: self._ended >= last, PATIENCE_SECONDS):
                self._stop(STUCK)
            self._flushes -= 1

    def delete(self, keys: Sequence[bytes]) -> None:
        """Remove values, some at a time: others can write in between."""
        for start in range(0, len(keys), DELETED_AT_ONCE):
            with self._transaction(write=True) as transaction:
                if transaction is None:
                    return
                for key in keys[start : start + DELETED_AT_ONCE]:
                    for table in ("pages", "used"):
                        transaction.delete(TABLES[table] + key)

    def delete_all(self, prefix: bytes) -> None:
        """Remove everything that was made by the same stages."""
        self.flush()
        self.delete([key for key, _ in self.items("pages", prefix)])

    def items(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes | memoryview]]:
        """Keys with this prefix and their values, in order; a value is valid until the next one is asked for."""
        with self._transaction(buffers=True) as transaction:
            if transaction is None:
                return
            yield from _items(transaction, TABLES[table], prefix)

    def used_bytes(self) -> int:
        """What all values take; the file can be larger, and its free space is used again."""
        with self._transaction() as transaction:
            return 0 if transaction is None else _used(transaction, self._main)

    def file_bytes(self) -> int:
        """What the file takes."""
        file = self.folder / "data.mdb"
        return file.stat().st_size if file.exists() else 0

    @property
    def limit(self) -> tuple[int, str]:
        """How many bytes the store can take, and the setting that says so."""
        return (0, self.stopped) if self._budget is None else (self._budget.limit, self._budget.setting)

    def suspend(self) -> None:
        """Close the files while this process forks: LMDB permits no child to have them."""
        with self._change:
            self._is_suspended = True
            if self._change.wait_for(lambda: not self._active, SUSPEND_SECONDS) and self._env is not None:
                self._env.close()
                self._env = None

    def resume(self) -> None:
        """Open the files again after a fork."""
        with self._change:
            if self._env is None and self._inode:
                self._open()
            self._is_suspended = False
            self._change.notify_all()

    def close(self) -> None:
        """Write what waits, and close the files."""
        self.flush()
        self.suspend()
        self._inode = 0
        self.resume()

    def compact(self) -> bool:
        """Give the room of deleted values back to the disk; False if another process has the files open.

        For the time being the disk has both files. lmdb.Error if it has no room for them.
        """
        new = self.folder.with_name("store.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        try:
            if self._env is not None:
                self._env.copy(str(new), compact=True)
                return self._replace(new)
            return False
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def remove(self) -> bool:
        """Delete the files; False if another process has them open."""
        self.flush()
        return self._replace(None)

    def _replace(self, new: Path | None) -> bool:
        """Put another folder, or none, in the place of this one, unless another process has its files open."""
        old = self.folder.with_name("store.old")
        shutil.rmtree(old, ignore_errors=True)
        self.suspend()
        try:
            with _alone(self.folder / "lock.mdb") as is_alone:
                if self._env is not None or not is_alone:
                    return False
                self.folder.rename(old)
                if new is not None:
                    new.rename(self.folder)
            self._inode = 0 if new is None else self._inode
        finally:
            self.resume()
            shutil.rmtree(old, ignore_errors=True)
        return True

    @property
    def _is_closed(self) -> bool:
        return self._env is None and not self._is_suspended

    def _open(self) -> None:
        try:
            self._env = self._opened(self._readonly)
        except DAMAGE as error:
            self._set_aside(None, error)
        except (OSError, lmdb.Error) as error:
            self._stop(f"it cannot be opened ({_reason(error)})")

    def _opened(self, readonly: bool) -> lmdb.Environment | None:
        exists = (self.folder / "data.mdb").exists()
        if not readonly:
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                readonly = not os.access(self.folder, os.W_OK)
            except OSError as error:
                self._stop(f"it cannot be created ({_reason(error)})")
                return None
        if readonly and not exists:
            self._stop("it cannot be written, and nothing is in it")
            return None
        before = os.stat(self.folder).st_ino
        env = self._with_map(readonly)
        if os.stat(self.folder).st_ino != before:  # Replaced just now: locks and data would be of two folders.
            env.close()
            return self._opened(readonly)
        if _missing(env, self.folder):
            env.close()
            raise lmdb.CorruptedError("the file was cut short")
        self._inode, self._main = _inode(self.folder), env.open_db()
        env.reader_check()  # Readers that were killed would keep what is deleted from being used again.
        if readonly:
            self._stop("it cannot be written", named=False)
        else:
            with env.begin() as transaction:
                self._budget = Budget(self.folder, self._max_bytes, _used(transaction, self._main))
        return env

    def _with_map(self, readonly: bool) -> lmdb.Environment:
        """The environment with a map as large as the disk, or as the system permits: addresses cost nothing."""
        size = max(MIN_MAP_BYTES, shutil.disk_usage(self.folder).total)
        while True:
            try:
                return lmdb.open(
                    str(self.folder),
                    map_size=size,
                    readonly=readonly,
                    lock=not readonly or os.access(self.folder / "lock.mdb", os.W_OK),
                    # The system would read 8 MB around each page of a store that is larger than memory.
                    readahead=False,
                    meminit=False,
                    metasync=False,
                    mode=0o600,
                    max_readers=1024,
                )
            except lmdb.MemoryError:
                if size <= MIN_MAP_BYTES:
                    raise
                size = max(MIN_MAP_BYTES, size // 4)

    @contextmanager
    def _transaction(self, write: bool = False, buffers: bool = False) -> Iterator[lmdb.Transaction[Any] | None]:
        """A transaction; None if there is no store. Errors of the files end in a warning."""
        with self._change:
            while self._is_suspended:
                self._change.wait()
            env = self._env
            self._active += 1
        try:
            if env is None or (write and self.stopped):
                yield None
                return
            with env.begin(write=write, buffers=buffers) as transaction:  # type: ignore[call-overload]
                yield transaction
            if write and _inode(self.folder) == self._inode and _missing(env, self.folder):
                # LMDB does not write pages at the end that are free again: as if the file had been cut short.
                with env.begin(write=True):
                    os.truncate(self.folder / "data.mdb", self.file_bytes() + _missing(env, self.folder))
        except DAMAGE as error:
            self._set_aside(env, error)
        except OSError as error:
            self._stop(_reason(error))
        except (lmdb.MapFullError, lmdb.DiskError) as error:
            self._stop(f"the disk is full ({_reason(error)})")
        except lmdb.Error as error:
            self._stop(_reason(error))
        finally:
            with self._change:
                self._active -= 1
                self._change.notify_all()

    def _write(self) -> None:
        """The writer: values in transactions of many, until nothing comes for a while."""
        while True:
            with self._change:
                self._change.wait_for(
                    lambda: self._flushes or self._is_closed or len(self._waiting["pages"]) >= AT_ONCE,
                    MAX_DELAY_SECONDS,
                )
                waiting, self._waiting = self._waiting, {table: {} for table in TABLES}
                self._has_writer = any(waiting.values())
                self._begun += self._has_writer
                self._change.notify_all()
                if not self._has_writer:
                    return
            if _inode(self.folder) != self._inode:  # Somebody removed or replaced the folder.
                self.suspend()
                self.resume()
            try:
                with self._transaction(write=True) as transaction:
                    if transaction is not None and self._has_room(transaction, waiting):
                        for table, values in waiting.items():
                            for key, value in values.items():
                                transaction.put(TABLES[table] + key, value)
            finally:
                with self._change:
                    self._ended = self._begun
                    self._change.notify_all()

    def _has_room(self, transaction: lmdb.Transaction[Any], waiting: dict[str, dict[bytes, bytes]]) -> bool:
        """Whether the budget has room for more values, after what was not used for longest is removed."""
        assert self._budget is not None
        more = sum(len(key) + len(value) for values in waiting.values() for key, value in values.items())
        if shortage := self._budget.shortage(more):
            self._stop(shortage)
            return False
        limit, used = self._budget.limit, _used(transaction, self._main)
        if used + more > limit and waiting["pages"]:
            own = {key[:PREFIX_BYTES] for key in waiting["pages"]}
            self._evict(transaction, used + more - limit + int(SPARE_SHARE * limit), own)
            room = limit - _used(transaction, self._main)
            if more > room:
                self._stop(f"it is full: {format_bytes(limit)} ({self._budget.setting})")
                ends = accumulate(map(len, waiting["pages"].values()))
                waiting["pages"] = {
                    key: waiting["pages"][key] for key, end in zip(waiting["pages"], ends, strict=True) if end < room
                }
                waiting["used"] = {key: day for key, day in waiting["used"].items() if key in waiting["pages"]}
        return True

    def _evict(self, transaction: lmdb.Transaction[Any], wanted: int, own: set[bytes]) -> None:
        """Remove what was not used for longest: nothing of today, of our own stages nothing of this week."""
        today = int.from_bytes(_today(), "big")
        days = [(int.from_bytes(day, "big"), key) for key, day in _items(transaction, TABLES["used"])]
        freed = 0
        for day, key in sorted(days):
            if freed >= wanted or day >= today:
                break
            if key[:PREFIX_BYTES] not in own or day <= today - OWN_DAYS:
                freed += len(transaction.pop(TABLES["pages"] + key) or b"")
                transaction.delete(TABLES["used"] + key)
        if freed:
            log.info("%s: removed %s that were not used for longest", self.folder, format_bytes(freed))
            # It names the content of pages that are gone; the others are read once more.
            for key in [key for key, _ in _items(transaction, TABLES["files"])]:
                transaction.delete(TABLES["files"] + key)

    def _set_aside(self, env: lmdb.Environment | None, error: Exception) -> None:
        """Rename a damaged store, so that a new one can be made; what others have open stays theirs."""
        aside = self.folder.with_name("store.damaged")
        with self._change:
            if self._env is not env:
                return  # Another thread has done so already.
            self._env = None
            try:
                # Another process can have done so, too.
                if self._inode in (0, _inode(self.folder)):
                    log.warning("%s is damaged (%s): it is now %s, and rebuilt", self.folder, _reason(error), aside)
                    shutil.rmtree(aside, ignore_errors=True)
                    self.folder.rename(aside)
                self._env = self._opened(readonly=False)
            except (OSError, lmdb.Error) as again:
                self._stop(f"it cannot be rebuilt ({_reason(again)})")

    def _stop(self, reason: str, named: bool = True) -> None:
        if named and not self.stopped:
            log.warning("%s: nothing more is kept, %s. Work continues without it", self.folder, reason)
        self.stopped = self.stopped or reason


def _items(
    transaction: lmdb.Transaction[Any], table: bytes, prefix: bytes = b""
) -> Iterator[tuple[bytes, bytes | memoryview]]:
    start = table + prefix
    cursor = transaction.cursor()
    if cursor.set_range(start):
        for key, value in cursor:
            if bytes(key[: len(start)]) != start:
                return
            yield bytes(key[1:]), value


def _used(transaction: lmdb.Transaction[Any], main: Any) -> int:
    stat = transaction.stat(main)
    return int((stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) * stat["psize"])


def _missing(env: lmdb.Environment, folder: Path) -> int:
    """By how many bytes the file is shorter than its last page says."""
    needed = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    return int(max(0, needed - (folder / "data.mdb").stat().st_size))


@contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Whether no process has the environment open; as long as this takes, none can open it."""
    try:
        import fcntl
    except ImportError:  # Windows does not rename a folder with open files.
        yield True
        return
    with open(lock, "r+b") as stream:
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)  # LMDB holds a shared lock of this byte.
        except OSError:
            yield False
        else:
            yield True


def _today() -> bytes:
    return int(time.time() // 86400).to_bytes(4, "big")


def _inode(folder: Path) -> int:
    try:
        return (folder / "data.mdb").stat().st_ino
    except OSError:
        return 0


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


_stores: dict[str, Store] = {}
_by_path: dict[str, Store] = {}
_opening = threading.RLock()


def close_store(root: Path) -> None:
    """Close the store of a folder, if this process has it open."""
    with _opening:
        store = _stores.pop(os.path.realpath(root), None)
        _by_path.clear()
    if store is not None:
        store.close()


def _before_fork() -> None:
    _opening.acquire()
    for store in _stores.values():
        store.suspend()


def _after_fork_in_parent() -> None:
    for store in _stores.values():
        store.resume()
    _opening.release()


def _after_fork_in_child() -> None:
    global _opening
    _stores.clear()
    _by_path.clear()
    _opening = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def checked(value: bytes) -> bytes:
    """A value with its checksum in front."""
    return xxhash.xxh3_64_digest(value) + value


def unchecked(value: bytes) -> memoryview | None:
    """The value, without a copy; None if its bytes are not those that were written."""
    written = memoryview(value)[8:]
    return written if xxhash.xxh3_64_digest(written) == value[:8] else None
