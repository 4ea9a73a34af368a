"""Cases in a process of their own: what ends it by a signal, never ends or leaves something behind is found."""

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
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

from benchmarks.reliability.campaign.cases import Case, Fault, FindingError, Parser, fork
from benchmarks.reliability.campaign.changes import CHANGERS

HANG_SECONDS = 180.0
"""Without any progress: no case takes longer on a busy machine."""
SLOW_INPUT_SECONDS, MAX_INPUT_MB = 10.0, 1024
"""Of CPU time and memory, for one input of at most 256 kB."""
SETTLE_SECONDS, MAX_DESCRIPTORS = 10.0, 16
"""Until threads and processes have ended; libraries open a few files of their own on first use."""
CORPUS_INPUTS, TRACED, MAX_CORPUS, MAX_KEPT_BYTES = 5000, 16, 400, 1 << 15
"""Inputs that share a corpus, so that one can be made again; one of 16 is traced, which takes ten times as long."""


@dataclass
class Found:
    """What became of the cases of a class so far."""

    cases: int = 0
    lines: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)
    ended_at: set[int] = field(default_factory=set)
    """Cases that ended their process: they are not run again to guide those after them."""


@dataclass(frozen=True)
class Work:
    """Cases `first` to `last` of a class."""

    cls: Fault | Parser
    seed: int
    first: int
    last: int
    left_out: Set[int] = frozenset()

    def finding(self, number: int, what: str, why: str, data: bytes | None = None) -> dict[str, Any]:
        """With what it takes to see it again."""
        found = {"case": f"{self.seed}:{self.cls.name}:{number}", "what": what, "why": why[-3000:]}
        return {"finding": found if data is None else found | {"input": data[:20_000].hex()}}

    def failed(self, number: int, error: Exception, data: bytes | None = None) -> dict[str, Any]:
        return self.finding(number, getattr(error, "kind", "crash"), traceback.format_exc(), data)


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
            at, found.lines = one.get("at", at), max(found.lines, one.get("lines", 0))
            found.findings += [one["finding"]] if "finding" in one else []
            found.counts.update(one.get("counts", {}))
    status = os.waitstatus_to_exitcode(ended[1])
    crash = status and (trace.read_text() if trace.exists() else f"the process ended with {status}")
    for what, why in (("hang", hang), ("crash", crash)):
        if why:
            found.findings.append(work.finding(at, what, why)["finding"])
            found.ended_at.add(at)
    until = time.monotonic() + 5
    while (left := _session(pid)) and time.monotonic() < until:
        time.sleep(0.02)
    for process in left:
        found.findings.append(work.finding(at, "leak", f"process {process} is left")["finding"])
        os.kill(process, signal.SIGKILL)
    # What comes after a crash is worked on by the next process.
    found.cases, found.seconds = at + (at in found.ended_at), found.seconds + time.monotonic() - began
    shutil.rmtree(folder, ignore_errors=True)


def run_here(work: Work, folder: Path) -> Iterator[dict[str, Any]]:
    """Run the cases one after the other; yields their numbers, findings and counts."""
    yield from (_fuzz if isinstance(work.cls, Parser) else _inject)(work, work.cls, folder)  # type: ignore[operator]
    yield {"at": work.last}


def _inject(work: Work, fault: Fault, folder: Path) -> Iterator[dict[str, Any]]:
    (folder / "prepared").mkdir(exist_ok=True)
    prepared, own = fault.prepare(folder / "prepared"), folder / "case"
    try:
        for number in range(work.first, work.last):
            yield {"at": number}
            own.mkdir()
            case, before = Case(Random(f"{work.seed}:{fault.name}:{number}"), own, prepared), Belongings()
            try:
                fault.run(case)
                before.compare(own)
            except Exception as error:
                yield work.failed(number, error)
            shutil.rmtree(own, ignore_errors=True)
            yield {"counts": case.counts}
    finally:
        if hasattr(prepared, "close"):
            prepared.close()


def _fuzz(work: Work, parser: Parser, folder: Path) -> Iterator[dict[str, Any]]:
    inputs, read, before = Inputs(parser, work.seed, work.first - work.first % CORPUS_INPUTS), 0, Belongings()
    own = folder / "inputs"
    own.mkdir()
    most = _memory_mb()
    for number, data, traced in inputs:
        if number == work.last:
            break
        if number < work.first:  # In a block that a crash has cut in two.
            if traced and number not in work.left_out:
                inputs.trace(data, own)
            continue
        yield {"at": number}
        try:
            began = time.process_time()
            read += inputs.read(data, own) if traced else parser.read(data, own)
            if time.process_time() - began > SLOW_INPUT_SECONDS * (10 if traced else 1):
                yield work.finding(number, "hang", "slow", data)
            if (now := _memory_mb()) - most > MAX_INPUT_MB:
                yield work.finding(number, "leak", f"{now - most} MB of memory", data)
                most = now
        except Exception as error:
            yield work.failed(number, error, data)
    try:
        before.compare(own)
    except FindingError as error:
        yield work.failed(work.last - 1, error)
    yield {"counts": {"read": read}, "lines": len(inputs.seen)}


def _memory_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


class Inputs:
    """The inputs of a parser from `first` on: changed copies of examples, guided by the lines that they reach."""

    def __init__(self, parser: Parser, seed: int, first: int) -> None:
        self.parser, self.number, self._wanted = parser, first, dict[CodeType, bool]()
        self._rng, self._corpus = Random(f"{seed}:{parser.name}:{first}"), list(parser.examples())
        self.seen: set[tuple[CodeType, int]] = set()
        self._found_new = False

    def __iter__(self) -> Iterator[tuple[int, bytes, bool]]:
        """Number, bytes, and whether it is to be traced before the next one is asked for."""
        while True:
            data, self._found_new = self._choose(self._rng), False
            yield self.number, data, self.number % TRACED == 0
            if self._found_new and len(data) <= MAX_KEPT_BYTES and len(self._corpus) < MAX_CORPUS:
                self._corpus.append(data)
            self.number += 1

    def _choose(self, rng: Random) -> bytes:
        data = CHANGERS[self.parser.kind](rng.choice(self._corpus), rng, self.parser.tokens)
        if rng.random() < 0.03:  # The start of one and the end of another.
            other = rng.choice(self._corpus)
            data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
        return data

    def read(self, data: bytes, folder: Path) -> bool:
        """Traced."""
        before, tracer = len(self.seen), sys.gettrace()
        sys.settrace(self._enter)
        try:
            return self.parser.read(data, folder)
        finally:
            sys.settrace(tracer)
            self._found_new = len(self.seen) > before

    def trace(self, data: bytes, folder: Path) -> None:
        """Only for its lines: a finding has been reported when it was found."""
        with suppress(Exception):
            self.read(data, folder)

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code not in self._wanted:
            self._wanted[code] = any(part in code.co_filename for part in self.parser.traced)
        return self._line if self._wanted[code] else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.seen.add((frame.f_code, frame.f_lineno))
        return self._line


def input_at(parser: Parser, seed: int, number: int, folder: Path) -> bytes:
    """The bytes of one input; the traced ones before it are tried again, because they guided it."""
    inputs = Inputs(parser, seed, number - number % CORPUS_INPUTS)
    for at, data, traced in inputs:
        if at == number:
            return data
        if traced:
            inputs.trace(data, folder)
    raise AssertionError


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
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            state, _, _, session = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:4]
            found += [int(entry)] if int(session) == leader and state != "Z" else []
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
