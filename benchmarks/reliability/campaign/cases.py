"""What a campaign is made of: faults and parsers, and how their cases run, are compared, killed and counted."""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import os
import re
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
CHILD_SECONDS, HANG_SECONDS = 150, 180.0
"""No case takes longer on a busy machine."""
SLOW_INPUT_SECONDS, MAX_INPUT_MB = 10.0, 1024
"""Of CPU time and memory, for one input of at most 256 kB."""
SETTLE_SECONDS, FAILED = 10.0, 3
"""Until threads and processes have ended; the status of a fork that raised an error."""
POOLS = re.compile(r"(image|pdf)_\d")
"""Threads of the service, which are started when they are needed, and stay."""


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


# -- forks


def fork(function: Callable[[], Any], trace: Path) -> int:
    """The id of a process that runs a function, forked from this one; an error of it is written to `trace`."""
    sys.stdout.flush()
    if pid := os.fork():
        return pid
    status = FAILED
    try:
        function()
        status = 0
    except BaseException:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        trace.write_text(traceback.format_exc())
    finally:
        os._exit(status)


class Child:
    """A process of a case; what it counts is counted, and its error is a finding."""

    def __init__(self, case: Case, function: Callable[..., Any], *arguments: Any) -> None:
        self._case = case
        self._told = case.folder / f"child-{os.getpid()}-{case.counts['processes']}"
        case.counts["processes"] += 1

        def run() -> None:
            signal.alarm(CHILD_SECONDS)
            case.counts.clear()
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


# -- blocks: cases in a process of their own, so that a crash, a hang and what is left behind are found


@dataclass
class Line:
    """One class, how many cases are wanted, and what became of them so far."""

    cls: Fault | Parser
    wanted: int
    missing: str = ""
    cases: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)


def finding(cls: Fault | Parser, seed: int, number: int, what: str, why: str, **more: str) -> dict[str, Any]:
    """With what it takes to see it again."""
    why = why if len(why) <= 4000 else f"{why[:2000]}\n...\n{why[-2000:]}"
    return {"case": f"{seed}:{cls.name}:{number}", "what": what, "why": why, **more}


def run_apart(line: Line, seed: int, last: int, folder: Path, end: float) -> None:
    """Add what becomes of the cases up to `last` in a fork of this process, until `end` on the clock."""
    folder.mkdir(parents=True)
    told, trace, stacks = (folder / name for name in ("told", "trace", "stacks"))
    told.touch()

    def run() -> None:
        os.setsid()
        _prepare_process(folder)
        with told.open("w", buffering=1) as stream, stacks.open("w") as hung:
            for one in run_here(line.cls, seed, line.cases, last, folder):
                # A case that does not end ends the process, which tells where its threads are.
                faulthandler.dump_traceback_later(HANG_SECONDS, exit=True, file=hung)
                stream.write(json.dumps(one) + "\n")
                if time.monotonic() > end:
                    os.killpg(0, signal.SIGKILL)

    began, pid = time.monotonic(), fork(run, trace)
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except KeyboardInterrupt:
        os.killpg(pid, signal.SIGKILL)  # It has a session of its own, which Ctrl-C does not reach.
        raise
    at = line.cases
    for text in whole_lines(told):
        one = json.loads(text)
        at = one.get("at", at)
        line.findings += [one["finding"]] if "finding" in one else []
        line.counts.update(one.get("counts", {}))
    hang, is_over = stacks.exists() and stacks.read_text(), status == -signal.SIGKILL and time.monotonic() > end
    failed = bool(status) and not is_over
    if failed:
        why = hang or (trace.read_text() if trace.exists() else f"the process ended with {status}")
        line.findings.append(finding(line.cls, seed, at, "hang" if hang else "crash", why))
    until = time.monotonic() + 5
    while (left := _session(pid)) and time.monotonic() < until and not is_over:
        time.sleep(0.02)
    for process in left:
        if not is_over:
            line.findings.append(finding(line.cls, seed, min(at, last - 1), "leak", f"process {process} is left"))
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    # What comes after a crash is worked on by the next process.
    line.cases, line.seconds = at + failed, line.seconds + time.monotonic() - began
    shutil.rmtree(folder, ignore_errors=True)


def run_here(cls: Fault | Parser, seed: int, first: int, last: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Run the cases one after the other; yields their numbers, findings and counts."""
    is_fault, own = isinstance(cls, Fault), folder / "case"
    (folder / "prepared").mkdir(exist_ok=True)
    prepared = cls.prepare(folder / "prepared")
    before, most = Belongings(), _memory_mb()

    def failed(number: int, error: Exception, data: bytes | None = None) -> dict[str, Any]:
        more = {} if data is None else {"input": data[:20_000].hex()}
        return {"finding": finding(cls, seed, number, getattr(error, "kind", "crash"), traceback.format_exc(), **more)}

    try:
        for number in range(first, last):
            yield {"at": number}
            own.mkdir(exist_ok=True)
            case = Case(Random(f"{seed}:{cls.name}:{number}"), own, prepared)
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
                yield failed(number, error, case.data)
            if is_fault:
                close_store(own / "cache")  # The next case has another one there.
                shutil.rmtree(own, ignore_errors=True)
            yield {"counts": case.counts}
        if not is_fault:  # Looking at all that an input may leave takes longer than the input.
            try:
                before.compare(own)
            except FindingError as error:
                yield failed(last - 1, error)
    finally:
        if hasattr(prepared, "close"):
            prepared.close()
    yield {"at": last}


def _memory_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


class Belongings:
    """Threads and children before a case; `compare` raises a FindingError for what is new after it."""

    def __init__(self) -> None:
        self._threads, self._children = set(threading.enumerate()), set(_children())

    def compare(self, folder: Path) -> None:
        """Open files and locks in `folder`, which is that of the case, count too."""
        until = time.monotonic() + SETTLE_SECONDS
        gc.collect()
        while (left := self._left(folder)) and time.monotonic() < until:
            gc.collect()
            time.sleep(0.01)
        if left:
            raise FindingError("leak", f"left: {', '.join(left)}")

    def _left(self, folder: Path) -> list[str]:
        found = [f"thread {one.name}" for one in {*threading.enumerate()} - self._threads if not POOLS.match(one.name)]
        found += [f"process {child}" for child in {*_children()} - self._children]
        for descriptor in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/self/fd/{descriptor}")
                found += [f"open {target}"] if target.startswith(str(folder)) else []
        return found + [str(path) for kind in ("*.partial", "*.lock") for path in folder.rglob(kind)]


def _children() -> Iterator[int]:
    """Children of this process that have not been waited for."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):
            yield from map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())


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
    logging.getLogger().addHandler(logging.NullHandler())
