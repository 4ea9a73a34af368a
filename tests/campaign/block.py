"""A block of cases in a process of its own: what ends it by a signal, or never ends, is found from outside."""

from __future__ import annotations

import faulthandler
import gc
import json
import logging
import mmap
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.cases import Case, Fault, LeakError, Parser, Tally, random_for
from tests.campaign.fuzzing import BLOCK, Block
from tests.campaign.leaks import Belongings, session_processes

HANG_SECONDS = 180.0
"""Without any progress: no case takes longer on a busy machine."""
SLOW_INPUT_SECONDS = 10.0
"""Of CPU time, for one input of at most 256 kB."""
MAX_INPUT_MEMORY = 1 << 30
STACKS = "stacks.txt"
_PROGRESS = struct.Struct("<qq")


@dataclass
class Found:
    """What a block came to."""

    cases: int = 0
    read: int = 0
    lines: int = 0
    tally: Tally = field(default_factory=Tally)
    findings: list[dict[str, Any]] = field(default_factory=list)
    ended_at: set[int] = field(default_factory=set)
    """Cases that ended their process: they are not run again to guide those after them."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Work:
    """Cases `first` to `last` of a class."""

    cls: Fault | Parser
    seed: int
    first: int
    last: int
    left_out: frozenset[int] = frozenset()


class BlockProcess:
    """A fork of this process that works on a block."""

    def __init__(self, work: Work, folder: Path) -> None:
        self.work, self.folder, self.found = work, folder, Found()
        folder.mkdir(parents=True)
        self._progress = mmap.mmap(-1, mmap.PAGESIZE)
        _PROGRESS.pack_into(self._progress, 0, work.first, 0)
        self._began = self._changed = time.monotonic()
        self._seen = work.first
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._text = b""
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self._work(writer)
        os.close(writer)

    @property
    def number(self) -> int:
        """The case that is being worked on."""
        return int(_PROGRESS.unpack_from(self._progress)[0])

    def poll(self) -> bool:
        """Read what is told; whether the process has ended. One that makes no progress is ended."""
        self._read()
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if self.number != self._seen:
            self._seen, self._changed = self.number, time.monotonic()
        if pid == 0 and time.monotonic() - self._changed > HANG_SECONDS:
            self._add(self.number, "hang", f"no end after {HANG_SECONDS:.0f} s\n{self._stacks()}")
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.found.ended_at.add(self.number)
            self._end(0)
            return True
        if pid:
            self._end(os.waitstatus_to_exitcode(status))
        return bool(pid)

    def _stacks(self) -> str:
        """Where the threads of the process are."""
        file = self.folder / STACKS
        if not file.exists():
            return ""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(1)
        return file.read_text()

    def kill(self) -> None:
        """End it at once."""
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._end(0)

    def _end(self, status: int) -> None:
        self._read()
        os.close(self._reader)
        if status:
            broken = self.folder.parent / "broken.txt"
            why = broken.read_text() if broken.exists() else f"the process ended with {status}"
            broken.unlink(missing_ok=True)
            self._add(self.number, "crash", why)
            self.found.ended_at.add(self.number)
        until = time.monotonic() + 5
        while (left := session_processes(self.pid)) and time.monotonic() < until:
            time.sleep(0.02)
        for process in left:
            self._add(self.number, "leak", f"process {process} is left")
            os.kill(process, signal.SIGKILL)
        # What comes after a crash is worked on by the next process.
        self.found.cases = self.number - self.work.first + len(self.found.ended_at)
        self.found.seconds = time.monotonic() - self._began
        for left in (self.folder, *Path(_memory_folder() or tempfile.gettempdir()).glob(f"campaign-{self.pid}-*")):
            shutil.rmtree(left, ignore_errors=True)

    def _read(self) -> None:
        try:
            while data := os.read(self._reader, 1 << 16):
                self._text += data
        except BlockingIOError:
            pass
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "finding" in told:
                self.found.findings.append(told["finding"])
            self.found.tally.add(told.get("tally", {}))
            self.found.read += told.get("read", 0)
            self.found.lines = max(self.found.lines, told.get("lines", 0))

    def _add(self, number: int, what: str, why: str) -> None:
        self.found.findings.append(describe(self.work, number, what, why))

    def _work(self, writer: int) -> None:
        """In the child: never returns."""
        status = 1
        try:
            os.setsid()
            _prepare_process(self.folder)
            with open(writer, "w", buffering=1) as stream:
                for told in run_block(self.work, self.folder, self._progress):
                    stream.write(json.dumps(told) + "\n")
            status = 0
        except BaseException:
            (self.folder.parent / "broken.txt").write_text(traceback.format_exc())
        finally:
            os._exit(status)


def describe(work: Work, number: int, what: str, why: str, data: bytes | None = None) -> dict[str, Any]:
    """A finding, with what it takes to see it again."""
    found = {"case": f"{work.seed}:{work.cls.name}:{number}", "what": what, "why": why[-3000:]}
    return found if data is None else found | {"input": data[:20_000].hex()}


def run_block(work: Work, folder: Path, progress: Any = None) -> Iterator[dict[str, Any]]:
    """Run the cases one after the other; yields findings and counts."""
    progress = bytearray(_PROGRESS.size) if progress is None else progress
    if isinstance(work.cls, Parser):
        yield from _fuzz(work, work.cls, folder, progress)
    else:
        yield from _inject(work, work.cls, folder, progress)
    _PROGRESS.pack_into(progress, 0, work.last, 0)


def _inject(work: Work, fault: Fault, folder: Path, progress: Any) -> Iterator[dict[str, Any]]:
    (folder / "prepared").mkdir(exist_ok=True)
    prepared = fault.prepare(folder / "prepared")
    try:
        yield from _cases(work, fault, folder, prepared, progress)
    finally:
        if hasattr(prepared, "close"):
            prepared.close()


def _cases(work: Work, fault: Fault, folder: Path, prepared: Any, progress: Any) -> Iterator[dict[str, Any]]:
    for number in range(work.first, work.last):
        _PROGRESS.pack_into(progress, 0, number, 0)
        own = folder / "case"
        own.mkdir()
        case, before = Case(random_for(work.seed, fault.name, number), own, prepared), Belongings()
        try:
            fault.run(case)
            gc.collect()
            before.compare(own)
        except Exception as error:
            yield {"finding": describe(work, number, name_of(error), traceback.format_exc())}
        shutil.rmtree(own, ignore_errors=True)
        yield {"tally": case.tally.to_dict()}


def _fuzz(work: Work, parser: Parser, folder: Path, progress: Any) -> Iterator[dict[str, Any]]:
    block, read, before = Block(parser, work.seed, work.first - work.first % BLOCK), 0, Belongings()
    with tempfile.TemporaryDirectory(dir=_memory_folder(), prefix=f"campaign-{os.getpid()}-") as fast:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number, data, traced in block.inputs():
            if number == work.last:
                break
            if number < work.first:  # In a block that a crash has cut in two.
                if traced and number not in work.left_out:
                    with block.lines, suppress(Exception):
                        parser.parse(data, Path(fast))
                continue
            _PROGRESS.pack_into(progress, 0, number, 0)
            try:
                began = time.process_time()
                read += _try(parser, data, Path(fast), block if traced else None)
                if time.process_time() - began > SLOW_INPUT_SECONDS * (10 if traced else 1):
                    yield {"finding": describe(work, number, "hang", "slow", data)}
                now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                if now - most > MAX_INPUT_MEMORY >> 10:
                    yield {"finding": describe(work, number, "leak", f"{(now - most) >> 10} MB of memory", data)}
                    most = now
            except Exception as error:
                yield {"finding": describe(work, number, name_of(error), traceback.format_exc(), data)}
        try:
            gc.collect()
            before.compare(Path(fast))
        except LeakError as error:
            yield {"finding": describe(work, number, "leak", str(error))}
    yield {"read": read, "lines": len(block.lines.seen)}


def _try(parser: Parser, data: bytes, folder: Path, traced: Block | None) -> bool:
    if traced is None:
        return parser.parse(data, folder)
    with traced.lines:
        return parser.parse(data, folder)


def name_of(error: Exception) -> str:
    """What a finding is called in the table."""
    # The helpers of the suites compare samples with plain assertions.
    return getattr(error, "kind", "wrong sample" if isinstance(error, AssertionError) else "crash")


def _memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _prepare_process(folder: Path) -> None:
    """Nothing that a case says is shown, and what it puts into the folder for temporary files is found."""
    sink = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(sink, descriptor)
    (folder / "tmp").mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.register(signal.SIGUSR1, (folder / STACKS).open("w"))
    logging.getLogger().addHandler(logging.NullHandler())
