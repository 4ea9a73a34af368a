"""A conversion that is killed anywhere, interrupted or out of room, and begun again, ends with the same bytes."""

import ctypes
import errno
import hashlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import pytest
from convert_pages import NAMES, convert, files, open_pages, verify, write_pages
from in_process import interrupted_at
from rejection import rejects

from ocr import cli
from ocr.errors import OutputError
from ocr.tools.convert.convert import convert_split
from ocr.tools.convert.plan import make_plan
from ocr.tools.convert.settings import ConvertSettings

RANDOM_KILLS = 12
STUCK_SECONDS = 600
CHANGES_OF_FILES = {"os.mkdir", "os.rename", "os.remove", "fcntl.flock"}
NO_ROOM = 7
PARENT = "PARENT_OF_CONVERTERS"


@lru_cache(maxsize=1)
def children() -> Any:
    """Processes that have imported everything already."""
    context = multiprocessing.get_context("forkserver")
    # One that other tests have started would not load this module ahead, and every child would, for seconds.
    forkserver._forkserver._stop()
    context.set_forkserver_preload([__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv(PARENT, "1")
        process = context.Process(target=os.getpid)
        process.start()
        process.join()
    return context


def warm_up() -> None:
    """Load kernels and read the code of stages, so that no child has to."""
    cv2.setNumThreads(1)
    with TemporaryDirectory() as folder:
        convert(write_pages(Path(folder) / "pages", NAMES[:1]), Path(folder) / "out", ready=True)


if PARENT in os.environ:
    warm_up()


@contextmanager
def child(function: Callable[..., None], *arguments: Any) -> Iterator[BaseProcess]:
    """A process that has begun with a function."""
    here, there = children().Pipe()
    process = children().Process(target=_begin, args=(there, function, *arguments))
    process.start()
    assert here.poll(STUCK_SECONDS)
    yield process
    process.join()


def _begin(pipe: Any, function: Callable[..., None], *arguments: Any) -> None:
    signal.alarm(STUCK_SECONDS)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sink = os.open(os.devnull, os.O_RDWR)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    pipe.send("begun")
    function(*arguments)


def end_of(function: Callable[..., None], *arguments: Any) -> int | None:
    with child(function, *arguments) as process:
        pass
    return process.exitcode


def convert_and_die(data: Path, out: Path, settings: dict[str, Any], die_at: int, log: Path) -> None:
    """Die before the given of the calls that change or lock a file, or else log how many there were."""
    calls = 0

    def pass_one() -> None:
        nonlocal calls
        calls += 1
        if calls == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES_OF_FILES or (event == "open" and str(arguments[0]).startswith(str(out))):
            pass_one()

    def count_sync(descriptor: int) -> None:
        pass_one()
        sync(descriptor)
        pass_one()

    sync, os.fsync = os.fsync, count_sync
    sys.addaudithook(hook)
    convert(data, out, workers=1, **settings)
    log.write_text(str(calls))


def assert_no_lie(out: Path) -> None:
    """What an index vouches for is there, and no shard is half there."""
    vouched = []
    for path in out.iterdir():
        if path.name.endswith("-index.json"):
            vouched += json.loads(path.read_text())["shards"]
    for shard in vouched:
        data = (out / shard["name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == shard["sha256"]
    for path in out.glob("val-*.tar"):
        assert path.read_bytes().endswith(b"\0" * 1024)


def prepare_nothing(data: Path, out: Path) -> dict[str, Any]:
    """An empty folder."""
    return {}


def prepare_edit(data: Path, out: Path) -> dict[str, Any]:
    """A finished conversion, and a page that is no longer the same."""
    convert(data, out, samples_per_shard=1)
    (data / "images/val" / NAMES[1]).write_bytes((data / "images/val" / NAMES[0]).read_bytes())
    return {}


def prepare_more(data: Path, out: Path) -> dict[str, Any]:
    """A finished conversion of other samples with more shards than are wanted now."""
    convert(data, out, samples_per_shard=1, ready=True)
    return {"samples_per_shard": 2, "overwrite": True}


@pytest.mark.parametrize(
    ("prepare", "step"),
    [
        (prepare_nothing, 7),
        *(
            pytest.param(prepare, 1, marks=pytest.mark.slow)
            for prepare in (prepare_nothing, prepare_edit, prepare_more)
        ),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_converter_killed_at_any_of_its_calls_ends_with_the_same_bytes(tmp_path, prepare, step):
    data, ready, out, log = write_pages(tmp_path / "pages", NAMES[:3]), *(tmp_path / name for name in ("a", "out", "l"))
    ready.mkdir()
    settings = {"samples_per_shard": 1} | prepare(data, ready)
    convert(data, tmp_path / "expected", **settings)
    expected = files(tmp_path / "expected")
    shutil.copytree(ready, out)
    assert end_of(convert_and_die, data, out, settings, -1, log) == 0
    assert files(out) == expected
    calls = int(log.read_text())
    assert calls > 15
    for die_at in range(step, calls + 1, step):
        shutil.rmtree(out)
        shutil.copytree(ready, out)
        assert end_of(convert_and_die, data, out, settings, die_at, log) == -signal.SIGKILL
        assert_no_lie(out)
        convert(data, out, **settings)
        assert files(out) == expected


def convert_with_limit(data: Path, out: Path, limit_bytes: int, deadly: bool) -> None:
    """Die in the middle of writing, or be told that a file must not grow."""
    settings = ConvertSettings(samples_per_shard=3, workers=2)
    plan = make_plan(open_pages(data), "val", out, settings)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
    with rejects(OutputError, setting=None):
        convert_split(plan, settings, show_progress=False)
    assert not list(out.glob(".*.partial"))
    os._exit(NO_ROOM)


@pytest.mark.slow
@pytest.mark.parametrize("deadly", [True, False], ids=["killed", "reported"])
def test_a_write_that_ends_in_the_middle_leaves_nothing_that_counts(tmp_path, deadly):
    data, out = write_pages(tmp_path / "pages"), tmp_path / "out"
    convert(data, tmp_path / "expected", samples_per_shard=3)
    expected = files(tmp_path / "expected")
    largest = max(map(len, expected.values()))
    for limit in (1, 512, 3000, largest // 2, largest - 1):
        shutil.rmtree(out, ignore_errors=True)
        assert end_of(convert_with_limit, data, out, limit, deadly) == (-signal.SIGXFSZ if deadly else NO_ROOM)
        assert_no_lie(out)
        convert(data, out, samples_per_shard=3)
        assert files(out) == expected


def convert_on_a_small_disk(data: Path, out: Path, expected: Path) -> None:
    """On a real file system that is full, and then has room again."""
    library, owner = ctypes.CDLL(None), os.getuid()
    new_mounts, new_user, private, remount = 0x20000, 0x10000000, 0x44000, 0x20
    if library.unshare(new_mounts | (new_user if owner else 0)):
        os._exit(NO_ROOM)
    if owner:
        Path("/proc/self/uid_map").write_text(f"0 {owner} 1")
    library.mount(b"none", b"/", None, private, None)
    if library.mount(b"tmpfs", os.fsencode(out), b"tmpfs", 0, b"size=40k"):
        os._exit(NO_ROOM)
    # Which file no longer fits varies from run to run: a shard, or now and then the small receipt beside it.
    with pytest.raises(OutputError) as caught:
        convert(data, out, samples_per_shard=2, workers=1)
    assert re.search(r"val-00000\d\.tar(\.done\.json)? ", str(caught.value))
    assert os.strerror(errno.ENOSPC) in str(caught.value)
    assert list(out.glob("val-*.tar"))
    assert not list(out.glob(".*.partial"))
    assert library.mount(b"tmpfs", os.fsencode(out), b"tmpfs", remount, b"size=10m") == 0
    assert convert(data, out, samples_per_shard=2).kept > 0
    assert files(out) == files(expected)


@pytest.mark.slow
def test_a_disk_that_gets_full_and_has_room_again_holds_the_same_bytes(tmp_path):
    data, out = write_pages(tmp_path / "pages"), tmp_path / "out"
    out.mkdir()
    convert(data, tmp_path / "expected", samples_per_shard=2)
    status = end_of(convert_on_a_small_disk, data, out, tmp_path / "expected")
    if status == NO_ROOM:
        pytest.skip("this user may not mount a file system")
    assert status == 0


def convert_ready(data: Path, out: Path) -> None:
    convert(data, out, ready=True, samples_per_shard=2, workers=2)


@pytest.mark.slow
def test_converters_killed_at_random_moments_end_with_the_same_bytes(tmp_path):
    names = tuple(f"{number:02d}.jpg" for number in range(40))
    data, out = write_pages(tmp_path / "pages", names), tmp_path / "out"
    convert_ready(data, tmp_path / "expected")
    expected = files(tmp_path / "expected")
    with child(convert_ready, data, out) as process:
        began = time.monotonic()
        process.join()
        whole_seconds = time.monotonic() - began
    assert files(out) == expected
    kills, in_the_middle, moments = 0, 0, random.Random(0)
    while kills < RANDOM_KILLS:
        # Every third one begins anew; the others go on with what those before them left.
        if kills % 3 == 0:
            shutil.rmtree(out, ignore_errors=True)
        with child(convert_ready, data, out) as process:
            time.sleep(moments.uniform(0, whole_seconds))
            process.kill()
        kills += process.exitcode == -signal.SIGKILL
        if out.exists():
            assert_no_lie(out)
            in_the_middle += 0 < len(list(out.glob("val-*.tar"))) < 20
        if kills % 3 == 2:
            convert_ready(data, out)
            assert files(out) == expected
    assert in_the_middle


def test_ctrl_c_leaves_whole_shards_and_the_same_command_continues(tmp_path, monkeypatch, capsys):
    names = tuple(f"{number:03d}.jpg" for number in range(40))
    data, out = write_pages(tmp_path / "pages", names), tmp_path / "out"
    words = ["shards", str(data), str(out), "--samples-per-shard", "1", "--workers", "2"]
    monkeypatch.setattr(sys, "argv", ["ocr", *words])
    with interrupted_at(20, data / "images"), pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert "Traceback" not in capsys.readouterr().err
    assert_no_lie(out)
    begun = set(files(out))
    assert len(begun) < 80
    assert not [name for name in begun if name.endswith((".partial", "-index.json"))]
    done = convert(data, out, samples_per_shard=1)
    assert done.kept == len([name for name in begun if name.endswith(".done.json")]) >= 1
    assert not verify(data, out).problems
