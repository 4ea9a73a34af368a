"""Storage: copies of remote files of the version that is there now, within a budget, and fetched ahead of their use."""

import hashlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from rejection import rejects

from ocr.atomic import partial_prefix
from ocr.errors import DataError
from ocr.pipeline.page_index import file_signature
from ocr.shards import storage as shard_storage
from ocr.shards.index import Shard
from ocr.shards.storage import ShardFiles, Storage, is_remote

fsspec = pytest.importorskip("fsspec")
URL = "memory://shards/{}.tar"


def upload(name: str, data: bytes) -> str:
    fsspec.filesystem("memory").pipe(f"/shards/{name}.tar", data)
    return URL.format(name)


def read(storage: Storage, url: str) -> bytes:
    _, stream = storage.open(url, signature=storage.signature(url))
    with stream:
        return stream.read()


def open_files(urls: list[str], storage: Storage, contents: list[bytes]) -> ShardFiles:
    """Shards with these contents, as their index describes them."""
    shards = [
        Shard(Path(url).name, len(data), hashlib.sha256(data).hexdigest(), 1)
        for url, data in zip(urls, contents, strict=True)
    ]
    return ShardFiles(urls, shards, [None if is_remote(url) else file_signature(url) for url in urls], storage)


def copies(folder: Path) -> list[str]:
    return sorted(path.name.rpartition("-")[2] for path in folder.iterdir())


def test_a_remote_file_that_changed_is_fetched_again_and_its_old_copy_removed(tmp_path):
    storage = Storage(tmp_path)
    for content in (b"first", b"other", b"other"):
        assert read(storage, upload("a", content)) == content
        assert copies(tmp_path) == ["a.tar"]


def test_a_remote_file_that_is_as_it_was_is_not_fetched_again(tmp_path):
    storage, url = Storage(tmp_path), upload("a", b"first")
    known = storage.signature(url)
    (path, stream), (again, other) = storage.open(url, signature=known), storage.open(url, signature=known)
    with stream, other:
        assert (path, os.fstat(stream.fileno()).st_ino) == (again, os.fstat(other.fileno()).st_ino)


def test_an_object_that_changed_after_it_was_looked_at_is_not_taken_for_the_old_one(tmp_path):
    storage, url = Storage(tmp_path, tries=1), upload("a", b"first")
    known = storage.signature(url)
    upload("a", b"other")
    with rejects(DataError, value=None, path=url):
        storage.open(url, signature=known)
    assert copies(tmp_path) == []


def test_of_files_beyond_the_budget_the_least_recently_used_goes_first(tmp_path):
    storage = Storage(tmp_path, max_bytes=20)
    urls = {name: upload(name, name.encode() * 10) for name in "abc"}
    for age, name in ((200, "a"), (100, "b")):
        read(storage, urls[name])
        (path,) = tmp_path.glob(f"*-{name}.tar")
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    assert read(storage, urls["a"]) == b"a" * 10
    read(storage, urls["c"])
    assert copies(tmp_path) == ["a.tar", "c.tar"]


def read_while_others_make_room(folder: str, event: str) -> list[bool]:
    """Read a copy that another rank removes when it was found: before the given call of the system is made."""
    storage = Storage(Path(folder))
    url = upload("a", b"content")
    read(storage, url)
    (copy,) = Path(folder).iterdir()
    removed = False

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal removed
        if name == event and not removed and str(arguments[0]) == str(copy):
            removed = True
            copy.unlink()

    sys.addaudithook(hook)
    files = ShardFiles([url], [Shard("a.tar", 0, "", 1)], [storage.signature(url)], storage)
    return [files.read(0, 0, 7) == b"content", read(storage, url) == b"content", removed]


@pytest.mark.parametrize("event", ["open", "os.utime"])
def test_a_copy_that_is_removed_after_it_was_found_is_read_or_fetched_again(tmp_path, event):
    # In a process of its own, because an audit hook stays.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        assert pool.submit(read_while_others_make_room, str(tmp_path), event).result() == [True, True, True]


def test_no_more_shards_are_open_than_allowed_and_each_can_be_read_any_time(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_storage, "MAX_OPEN", 2)
    urls = [str(tmp_path / f"{number}.tar") for number in range(5)]
    contents = [bytes([number]) * 100 for number in range(5)]
    for url, data in zip(urls, contents, strict=True):
        Path(url).write_bytes(data)
    files = open_files(urls, Storage(tmp_path), contents)
    for _ in range(2):
        for number in range(5):
            assert files.read(number, 90, 20) == bytes([number]) * 10
            if sys.platform == "linux":
                assert sum(os.readlink(f"/proc/self/fd/{one}") in urls for one in descriptors()) <= 2


def descriptors() -> list[str]:
    """The open files of this process."""
    return [one for one in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{one}")]


def test_a_local_shard_that_is_replaced_in_an_epoch_is_never_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_storage, "MAX_OPEN", 2)
    urls = [str(tmp_path / f"{number}.tar") for number in range(3)]
    for url in urls:
        Path(url).write_bytes(b"before")
    files = open_files(urls, Storage(tmp_path), [b"before"] * 3)
    assert files.read(0, 0, 6) == b"before"
    (tmp_path / "new").write_bytes(b"AFTER!")
    os.replace(tmp_path / "new", urls[0])
    assert files.read(0, 0, 6) == b"before"
    files.read(1, 0, 6)
    files.read(2, 0, 6)
    with rejects(DataError, value=None, path=urls[0]):
        files.read(0, 0, 6)


def test_a_link_that_a_backup_makes_is_not_a_change(tmp_path):
    url = str(tmp_path / "a.tar")
    Path(url).write_bytes(b"content")
    files = open_files([url], Storage(tmp_path), [b"content"])
    os.link(url, tmp_path / "backup")
    assert files.read(0, 0, 7) == b"content"


def test_a_folder_in_place_of_an_index_is_named(tmp_path):
    index = tmp_path / "val-index.json"
    assert Storage(tmp_path).read(str(index)) is None
    index.mkdir()
    with rejects(DataError, path=index):
        Storage(tmp_path).read(str(index))


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_shards_that_follow_the_one_in_use_are_fetched_meanwhile(tmp_path):
    contents = [name.encode() * 10 for name in "abcde"]
    urls = [upload(name, data) for name, data in zip("abcde", contents, strict=True)]
    files = open_files(urls, Storage(tmp_path), contents)

    def fetched() -> str:
        return "".join(name[0] for name in copies(tmp_path) if name in ("a.tar", "b.tar", "c.tar", "d.tar", "e.tar"))

    files.expect(range(5), ahead=1)
    until(lambda: fetched() == "ab")
    files.read(2, 0, 1)
    until(lambda: fetched() == "abcd")


def test_a_shard_that_cannot_be_fetched_is_reported_when_it_is_read_and_the_next_one_follows(tmp_path):
    contents = [b"x", b"y", b"z"]
    urls = [upload("x", b"x"), URL.format("nowhere"), upload("z", b"z")]
    files = open_files(urls, Storage(tmp_path, tries=1), contents)
    files.expect(range(3), ahead=2)
    until(lambda: {"x.tar", "z.tar"} <= set(copies(tmp_path)))
    with rejects(DataError, path=urls[1]):
        files.read(1, 0, 1)


def test_a_fetch_that_hangs_does_not_keep_the_process_alive(tmp_path, monkeypatch):
    hanging, begun = threading.Event(), threading.Event()

    class Hanging(Storage):
        """A store that does not answer."""

        __slots__ = ()

        def open(self, *_: Any, **__: Any) -> Any:
            begun.set()
            hanging.wait(60)
            raise DataError("too late")

    files = open_files([URL.format("a")], Hanging(tmp_path), [b"a"])
    files.expect([0], ahead=1)
    assert begun.wait(60)
    (thread,) = (one for one in threading.enumerate() if one.name == "fetch-shards")
    assert thread.daemon
    hanging.set()
    thread.join(60)


HOLD = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def impatient(monkeypatch, caplog) -> None:
    monkeypatch.setattr(shard_storage, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(shard_storage, "STALE_SECONDS", 0.5)
    caplog.set_level("INFO", "ocr.shards")


def lock_of(storage: Storage, url: str) -> Path:
    """The lock that is held while a file is fetched."""
    read(storage, url)
    (copy,) = storage.folder.iterdir()
    copy.unlink()
    return storage.folder / f".{copy.name}.lock"


@pytest.mark.usefixtures("impatient")
def test_a_process_that_is_stuck_while_it_fetches_is_named_and_not_waited_for(tmp_path, caplog):
    storage, url = Storage(tmp_path), upload("a", b"content")
    lock = lock_of(storage, url)
    with subprocess.Popen([sys.executable, "-c", HOLD, lock], stdout=subprocess.PIPE) as peer:
        assert peer.stdout is not None
        peer.stdout.readline()
        try:
            assert read(storage, url) == b"content"
        finally:
            peer.kill()
    waited = [record.levelname for record in caplog.records if lock.name in record.getMessage()]
    assert (waited[0], waited[-1]) == ("INFO", "WARNING")


@pytest.mark.usefixtures("impatient")
def test_a_process_that_still_writes_is_waited_for(tmp_path, caplog):
    storage, url = Storage(tmp_path), upload("a", b"content")
    lock = lock_of(storage, url)
    copy = tmp_path / lock.name.removeprefix(".").removesuffix(".lock")
    partial = tmp_path / f"{partial_prefix(copy)}123-456.partial"
    found: list[bytes] = []
    with FileLock(lock):
        reader = threading.Thread(target=lambda: found.append(read(storage, url)))
        reader.start()
        for _ in range(10):  # For longer than it waits for a process that does not write.
            partial.write_bytes(b"half")
            time.sleep(0.1)
        assert not found
        partial.write_bytes(b"CONTENT")
        os.replace(partial, copy)
    reader.join(60)
    assert found == [b"CONTENT"]
    assert partial.name in caplog.text


def test_what_a_killed_process_left_is_removed_after_an_hour(tmp_path):
    old, new = tmp_path / ".x.tar.1-2.partial", tmp_path / ".y.tar.1-2.partial"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 3601,) * 2)
    read(Storage(tmp_path), upload("a", b"content"))
    assert [path.exists() for path in (old, new)] == [False, True]


def test_what_fails_each_time_is_tried_as_often_as_was_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_storage, "FIRST_PAUSE_SECONDS", 0)
    calls = []

    def fails():
        calls.append(1)
        raise OSError("cut")

    with rejects(DataError, value=3, path="s3://a"):
        Storage(tmp_path, tries=3)._retry(fails, "s3://a")
    assert len(calls) == 3
