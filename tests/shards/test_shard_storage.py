"""Storage: copies of remote files of the version that is there now, within a budget, and fetched in their order."""

import hashlib
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rejection import rejects

from ocr.errors import DataError
from ocr.shards.files import ShardFiles
from ocr.shards.index import Shard
from ocr.shards.prefetch import Prefetcher
from ocr.shards.storage import Storage

fsspec = pytest.importorskip("fsspec")
URL = "memory://shards/{}.tar"


def upload(name: str, data: bytes) -> str:
    fsspec.filesystem("memory").pipe(f"/shards/{name}.tar", data)
    return URL.format(name)


def read(storage: Storage, url: str, **known: Any) -> bytes:
    _, stream = storage.open(url, **known)
    with stream:
        return stream.read()


def copies(folder: Path) -> list[str]:
    return sorted(path.name.rpartition("-")[2] for path in folder.iterdir())


def test_a_remote_file_that_changed_is_fetched_again_and_its_old_copy_removed(tmp_path):
    storage = Storage(tmp_path)
    for content in (b"first", b"other", b"other"):
        assert read(storage, upload("a", content)) == content
        assert copies(tmp_path) == ["a.tar"]


def test_a_remote_file_that_is_as_it_was_is_not_fetched_again(tmp_path):
    storage, url = Storage(tmp_path), upload("a", b"first")
    (path, stream), (again, other) = storage.open(url), storage.open(url)
    with stream, other:
        assert (path, os.fstat(stream.fileno()).st_ino) == (again, os.fstat(other.fileno()).st_ino)


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
        if name == event and not removed and str(arguments[0]) in (str(copy), *_descriptors_of(copy)):
            removed = True
            copy.unlink()

    sys.addaudithook(hook)
    files = ShardFiles([url], [Shard("a.tar", 0, "", 1)], storage)
    return [files.read(0).tobytes() == b"content", read(storage, url) == b"content", removed]


def _descriptors_of(path: Path) -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if os.path.samestat(os.stat(int(descriptor)), path.stat()):
                found.append(descriptor)
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("event", ["open", "os.utime"])
def test_a_copy_that_is_removed_after_it_was_found_is_read_or_fetched_again(tmp_path, event):
    # In a process of its own, because an audit hook stays.
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        assert pool.submit(read_while_others_make_room, str(tmp_path), event).result() == [True, True, True]


def test_a_local_shard_that_is_replaced_in_an_epoch_is_never_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("ocr.shards.files.MAX_MAPPED", 2)
    urls = [str(tmp_path / f"{number}.tar") for number in range(3)]
    for url in urls:
        Path(url).write_bytes(b"before")
    files = ShardFiles(urls, [Shard(url, 0, "", 1) for url in urls], Storage(tmp_path))
    assert files.read(0).tobytes() == b"before"
    (tmp_path / "new").write_bytes(b"AFTER!")
    os.replace(tmp_path / "new", urls[0])
    assert files.window(0, 0, 6) is None
    assert files.read(0).tobytes() == b"before"
    files.read(1)
    files.read(2)
    with rejects(DataError, value=None, path=urls[0]):
        files.read(0)


def test_a_folder_in_place_of_an_index_is_named(tmp_path):
    index = tmp_path / "val-index.json"
    assert Storage(tmp_path).read(str(index)) is None
    index.mkdir()
    with rejects(DataError, path=index):
        Storage(tmp_path).read(str(index))


def test_shards_behind_the_one_in_use_are_fetched_meanwhile(tmp_path):
    urls = [upload(name, name.encode() * 10) for name in "abcde"]
    shards = [Shard(f"{name}.tar", 10, hashlib.sha256(name.encode() * 10).hexdigest(), 1) for name in "abcde"]
    files = ShardFiles(urls, shards, Storage(tmp_path))
    files.prefetch(range(5), ahead=1)
    for number, expected in ((None, "ab"), (2, "abcd")):
        if number is not None:
            files.read(number)
        until = time.monotonic() + 60
        while copies(tmp_path) != [f"{name}.tar" for name in expected]:
            assert time.monotonic() < until, copies(tmp_path)
            time.sleep(0.01)


class Fetched:
    """Shards in the order in which they came; `wanted` of them can be waited for."""

    def __init__(self) -> None:
        self.shards: list[int] = []
        self._change = threading.Condition()

    def __call__(self, shard: int) -> None:
        with self._change:
            self.shards.append(shard)
            self._change.notify_all()
        if shard == 7:
            raise DataError("shard 7 is gone")

    def until(self, wanted: int) -> list[int]:
        with self._change:
            assert self._change.wait_for(lambda: len(self.shards) >= wanted, timeout=60)
            return list(self.shards)


def test_shards_are_fetched_in_order_no_further_ahead_than_allowed_and_those_that_were_passed_are_left_out():
    fetched = Fetched()
    prefetcher = Prefetcher([5, 7, 3, 1, 9, 2], fetched, ahead=1)
    # One that cannot be fetched is reported by whoever reads it; the next one follows.
    assert fetched.until(2) == [5, 7]
    prefetcher.reach(1)
    assert fetched.until(4) == [5, 7, 1, 9]
    prefetcher.reach(1)
    prefetcher.stop()
    assert fetched.shards == [5, 7, 1, 9]


def test_a_fetch_that_hangs_does_not_keep_the_process_alive():
    hanging, begun = threading.Event(), threading.Event()

    def fetch(shard: int) -> None:
        begun.set()
        hanging.wait(60)

    prefetcher = Prefetcher([0], fetch)
    assert begun.wait(60)
    (thread,) = (one for one in threading.enumerate() if one.name == "prefetch-shards")
    assert thread.daemon
    prefetcher.stop()
    hanging.set()
    thread.join(60)
    assert not thread.is_alive()
