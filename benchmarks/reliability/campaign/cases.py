"""What a campaign is made of: faults and parsers, and how their cases run, are compared, killed and counted."""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from benchmarks.reliability.campaign.changes import CHANGERS, DAMAGES
from ocr.cache.store import close_store
from ocr.errors import GlyphFeedError

KINDS = ("wrong sample", "silent skip", "crash", "hang", "leak")
COUNTED = ("samples", "orders", "processes", "kills", "refused", "counted")
"""Compared bit for bit; compared; started; killed; refused by an error that names the file; skips that were counted."""
CHILD_SECONDS = 150
HANG_SECONDS = 180.0
"""Without any progress: no case takes longer on a busy machine."""
SLOW_INPUT_SECONDS, MAX_INPUT_MB = 10.0, 1024
"""Of CPU time and memory, for one input of at most 256 kB."""
SETTLE_SECONDS, MAX_DESCRIPTORS = 10.0, 16
"""Until threads and processes have ended; libraries open a few files of their own on first use."""
FAILED = 3
_CHANGES = {"os.mkdir", "os.rename", "os.truncate", "os.remove", "os.rmdir", "os.utime"}
_CHANGES |= {"fcntl.flock", "fcntl.lockf", "fcntl.fcntl"}


class FindingError(AssertionError):
    """Something that must not happen."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


@dataclass
class Case:
    """What one fault is given: random numbers of its own, an empty folder, and what its class has prepared."""

    rng: Random
    folder: Path
    prepared: Any
    counts: Counter[str] = field(default_factory=Counter)
    data: bytes | None = None
    """The input of a parser."""

    def refused(self, error: Exception, *names: str) -> None:
        """Count an error that is allowed: one of ours, which names one of the files if there are any."""
        if not isinstance(error, GlyphFeedError):
            raise error
        if names and not any(name in f"{error} {error.path}" for name in names):
            raise FindingError("crash", f"the error names none of {names}: {error}") from error
        self.counts["refused"] += 1

    def compare(self, found: Sequence[Any], expected: Sequence[Any], skipped: int = 0) -> None:
        """Every sample, bit for bit; those that are None must have been counted as skipped."""
        if len(found) != len(expected):
            raise FindingError("silent skip", f"{len(found)} samples instead of {len(expected)}")
        missing = sum(one is None and other is not None for one, other in zip(found, expected, strict=True))
        if missing != skipped:
            raise FindingError("silent skip", f"{missing} samples are missing, {skipped} were counted")
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            if one is not None and (where := difference(one, other)):
                raise FindingError("wrong sample", f"sample {number} differs at {where}")
        self.counts["counted"] += skipped
        self.counts["samples"] += len(found) - skipped

    def check_order(self, found: Sequence[str], expected: Sequence[str]) -> None:
        """The order of samples, by their names."""
        if list(found) != list(expected):
            raise FindingError("wrong sample", f"the order {list(found)} instead of {list(expected)}")
        self.counts["orders"] += 1


def difference(one: Any, other: Any, where: str = "it") -> str:
    """Where two samples differ in value, type or shape; empty if they are the same."""
    if type(one) is not type(other):
        return f"{where}: {type(one).__name__}, not {type(other).__name__}"
    if isinstance(one, torch.Tensor | np.ndarray):
        same = one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
        return "" if same else where
    if isinstance(one, list | tuple):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if not isinstance(one, dict):
        return "" if one == other else where
    if one.keys() != other.keys():
        return f"{where}: {[*one]}, not {[*other]}"
    return next(filter(None, (difference(one[key], other[key], f"{where}.{key}") for key in one)), "")


@dataclass(frozen=True)
class Fault:
    """A class of faults; `run` injects one, and raises a FindingError if anything is wrong afterwards."""

    name: str
    about: str
    run: Callable[[Case], None]
    prepare: Callable[[Path], Any]
    share: int
    needs: tuple[str, ...] = ()
    """Modules without which the class is left out."""


@dataclass(frozen=True)
class Parser:
    """A parser, its valid examples, and how one input is given to it."""

    name: str
    about: str
    examples: Callable[[], Sequence[bytes]]
    parse: Callable[[Path], Any]
    """Reads the file; False: refused without an error, as it may. Our errors must have `named` in them."""
    file: str
    kind: str = "bytes"
    share: int = 20
    tokens: tuple[bytes, ...] = ()
    named: str | None = "FILE"
    """FILE and FOLDER are its own; None: the error does not know its file."""
    needs: tuple[str, ...] = ()

    def prepare(self, folder: Path) -> Sequence[bytes]:
        return self.examples()

    def run(self, case: Case) -> None:
        """Parse a changed example: it is read to valid values, or refused as it should be."""
        examples, path = case.prepared, case.folder / self.file
        data = CHANGERS[self.kind](case.rng.choice(examples), case.rng, self.tokens)
        if case.rng.random() < 0.03:  # The start of one and the end of another.
            other = case.rng.choice(examples)
            data = data[: case.rng.randrange(len(data) + 1)] + other[case.rng.randrange(len(other) + 1) :]
        case.data = data
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        try:
            case.counts["read"] += self.parse(path) is not False
        except GlyphFeedError as error:
            names = {"FILE": path.name, "FOLDER": str(case.folder), None: ""}
            case.refused(error, names.get(self.named, self.named or ""))


CLASSES: dict[str, Fault | Parser] = {}


def fault(
    name: str, about: str, share: int, prepare: Callable[[Path], Any], *needs: str
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Register a class of faults; about `share` of a thousand faults are of this class."""

    def register(run: Callable[[Case], None]) -> Callable[[Case], None]:
        CLASSES[name] = Fault(name, about, run, prepare, share, needs)
        return run

    return register


def damages(
    prefix: str, what: str, share: int, prepare: Callable[[Path], Any]
) -> Callable[[Callable[[Case, str], None]], None]:
    """Register a class of faults for each kind of damage."""

    def register(run: Callable[[Case, str], None]) -> None:
        for name, (about, _) in DAMAGES.items():
            fault(f"{prefix}-{name}", f"{what}: {about}", share, prepare)(partial(run, name=name))

    return register


def fork(function: Callable[[], Any], trace: Path) -> int:
    """The id of a process that runs a function, forked from this one; an error of it is written to `trace`."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    status, text = FAILED, ""
    try:
        function()
        status = 0
    except BaseException:
        text = traceback.format_exc()
    finally:
        try:
            if text:
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                trace.write_text(text)
        finally:
            os._exit(status)


class Child:
    """A process of a case; what it counts is counted, and its error is a finding."""

    def __init__(self, case: Case, function: Callable[..., Any], *arguments: Any, die_at: int = 0) -> None:
        """`die_at`: it dies at so many calls that change or lock a file."""
        self._case = case
        self._told = case.folder / f"child-{os.getpid()}-{case.counts['processes']}"
        case.counts["processes"] += 1

        def run() -> None:
            signal.alarm(CHILD_SECONDS)
            case.counts.clear()
            if die_at:
                _die_at(die_at)
            function(*arguments)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            self._told.write_text(json.dumps(case.counts))

        self.pid = fork(run, self._told)

    def kill_after(self, seconds: float) -> None:
        """Unless it has ended."""
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if status not in (0, -signal.SIGKILL):
            raise FindingError("crash", self._told.read_text() if status == FAILED else f"it ended with {status}")
        self._case.counts.update({"kills": 1} if status else json.loads(self._told.read_text()))
        self._told.unlink(missing_ok=True)


def whole_lines(log: Path) -> list[str]:
    """Of a log; its writer may have been killed in the last line."""
    text = log.read_text() if log.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def _die_at(number: int) -> None:
    """Kill this process at the given of the calls that change, lock, write or sync a file."""
    calls, pwrite, fsync = 0, os.pwrite, os.fsync

    def pass_one() -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def write_in_halves(descriptor: int, data: Any, offset: int) -> int:
        pass_one()
        half = len(data) // 2
        written = pwrite(descriptor, data[:half], offset)
        pass_one()
        return written + pwrite(descriptor, data[half:], offset + half)

    def sync(descriptor: int) -> None:
        pass_one()
        fsync(descriptor)
        pass_one()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if event in _CHANGES or is_write:
            pass_one()

    os.pwrite, os.fsync = write_in_halves, sync
    sys.addaudithook(hook)


# -- blocks: cases in a process of their own, so that a crash, a hang and what is left behind are found


@dataclass
class Found:
    """What became of the cases of a class so far."""

    cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """Cases `first` to `last` of a class."""

    cls: Fault | Parser
    seed: int
    first: int
    last: int

    def finding(self, number: int, what: str, why: str, data: bytes | None = None) -> dict[str, Any]:
        """With what it takes to see it again."""
        found = {"case": f"{self.seed}:{self.cls.name}:{number}", "what": what, "why": why[-3000:]}
        return found if data is None else found | {"input": data[:20_000].hex()}

    def failed(self, number: int, error: Exception, data: bytes | None = None) -> dict[str, Any]:
        return {"finding": self.finding(number, getattr(error, "kind", "crash"), traceback.format_exc(), data)}


def run_apart(work: Work, found: Found, folder: Path, end: float) -> None:
    """Add what becomes of the cases in a fork of this process, until `end` on the clock."""
    folder.mkdir(parents=True)
    told, trace, stacks = (folder / name for name in ("told", "trace", "stacks"))
    told.touch()

    def run() -> None:
        os.setsid()
        _prepare_process(folder)
        with told.open("w", buffering=1) as stream:
            for line in run_here(work, folder):
                stream.write(json.dumps(line) + "\n")

    began = changed = time.monotonic()
    pid, size, hang, ended = fork(run, trace), 0, "", (0, 0)
    try:
        while not ended[0]:
            time.sleep(0.02)
            ended, now, new = os.waitpid(pid, os.WNOHANG), time.monotonic(), told.stat().st_size
            size, changed = (new, now) if new != size else (size, changed)
            if not ended[0] and (now > end or now - changed > HANG_SECONDS):
                if now <= end:
                    os.kill(pid, signal.SIGUSR1)  # It writes where its threads are.
                    time.sleep(1)
                    hang = f"no end after {HANG_SECONDS:.0f} s\n{stacks.read_text()}"
                os.killpg(pid, signal.SIGKILL)
                ended = os.waitpid(pid, 0)[0], 0
    except KeyboardInterrupt:
        os.killpg(pid, signal.SIGKILL)  # It has a session of its own, which Ctrl-C does not reach.
        raise
    at = work.first
    for line in told.read_text().splitlines():
        with suppress(ValueError):  # Cut off with its process.
            one = json.loads(line)
            at = one.get("at", at)
            found.findings += [one["finding"]] if "finding" in one else []
            found.counts.update(one.get("counts", {}))
    status = os.waitstatus_to_exitcode(ended[1])
    crash = status and (trace.read_text() if trace.exists() else f"the process ended with {status}")
    for what, why in (("hang", hang), ("crash", crash)):
        if why:
            found.findings.append(work.finding(at, what, why))
    until = time.monotonic() + 5
    while (left := _session(pid)) and time.monotonic() < until:
        time.sleep(0.02)
    for process in left:
        found.findings.append(work.finding(min(at, work.last - 1), "leak", f"process {process} is left"))
        os.kill(process, signal.SIGKILL)
    # What comes after a crash is worked on by the next process.
    found.cases, found.seconds = at + bool(hang or crash), found.seconds + time.monotonic() - began
    shutil.rmtree(folder, ignore_errors=True)


def run_here(work: Work, folder: Path) -> Iterator[dict[str, Any]]:
    """Run the cases one after the other; yields their numbers, findings and counts."""
    cls, is_fault, own = work.cls, isinstance(work.cls, Fault), folder / "case"
    (folder / "prepared").mkdir(exist_ok=True)
    prepared = cls.prepare(folder / "prepared")
    before, most = Belongings(), _memory_mb()
    try:
        for number in range(work.first, work.last):
            yield {"at": number}
            own.mkdir(exist_ok=True)
            case = Case(Random(f"{work.seed}:{cls.name}:{number}"), own, prepared)
            before, began = Belongings() if is_fault else before, time.process_time()
            try:
                cls.run(case)
                close_store(own / "cache")
                if is_fault:
                    before.compare(own)
                elif (seconds := time.process_time() - began) > SLOW_INPUT_SECONDS:
                    raise FindingError("hang", f"{seconds:.0f} s of CPU time")
                elif (grown := _memory_mb() - most) > MAX_INPUT_MB:
                    most += grown
                    raise FindingError("leak", f"{grown} MB of memory")
            except Exception as error:
                yield work.failed(number, error, case.data)
            if is_fault:
                close_store(own / "cache")  # The next case has another one there.
                shutil.rmtree(own, ignore_errors=True)
            yield {"counts": case.counts}
        if not is_fault:  # Looking at all that an input may leave takes longer than the input.
            try:
                before.compare(own)
            except FindingError as error:
                yield work.failed(work.last - 1, error)
    finally:
        if hasattr(prepared, "close"):
            prepared.close()
    yield {"at": work.last}


def _memory_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


class Belongings:
    """Threads, processes and descriptors before a case; `compare` raises a FindingError for what is new after it."""

    def __init__(self) -> None:
        self._threads, self._children = set(threading.enumerate()), set(_children())
        self._descriptors = len(_descriptors())

    def compare(self, folder: Path) -> None:
        """`folder` is that of the case."""
        until = time.monotonic() + SETTLE_SECONDS
        gc.collect()
        while (left := self._left(folder)) and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        if left:
            raise FindingError("leak", left)

    def _left(self, folder: Path) -> str:
        if threads := [thread.name for thread in threading.enumerate() if thread not in self._threads]:
            return f"threads: {', '.join(threads)}"
        if children := set(_children()) - self._children:
            return f"processes: {sorted(children)}"
        targets = _descriptors()
        if own := [target for target in targets if target.startswith(str(folder))]:
            return f"descriptors: {', '.join(sorted(own))}"
        if len(targets) > self._descriptors + MAX_DESCRIPTORS:
            return f"{len(targets)} descriptors instead of {self._descriptors}: {', '.join(sorted(targets)[:20])}"
        files = [str(path) for kind in ("*.partial", "*.lock") for path in folder.rglob(kind)]
        return f"files: {', '.join(files)}" if files else ""


def _children() -> Iterator[int]:
    """Children of this process that have not been waited for."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):
            yield from map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())


def _descriptors() -> list[str]:
    found = []
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
    return found


def _session(leader: int) -> list[int]:
    """Processes of a session that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            found += [int(stat.parent.name)] if int(session) == leader and state != "Z" else []
    return found


def _prepare_process(folder: Path) -> None:
    """Nothing that a case says is shown, and what it puts into the folder for temporary files is found."""
    sink = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(sink, descriptor)
    (folder / "tmp").mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.register(signal.SIGUSR1, (folder / "stacks").open("w"))
    logging.getLogger().addHandler(logging.NullHandler())
