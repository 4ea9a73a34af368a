"""What a campaign is made of: faults, parsers, what is compared and counted, and processes that are killed."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from ocr.errors import GlyphFeedError

KINDS = ("wrong sample", "silent skip", "crash", "hang", "leak")
COUNTED = ("samples", "orders", "processes", "kills", "refused", "counted")
"""Compared bit for bit; compared; started; killed; refused by an error that names the file; skips that were counted."""
CHILD_SECONDS = 150
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

    def refused(self, error: Exception, *names: str) -> None:
        """Count an error that is allowed."""
        check_refusal(error, *names)
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


def check_refusal(error: Exception, *names: str) -> None:
    """An error must be one of ours, and name one of the files if there are any."""
    if not isinstance(error, GlyphFeedError):
        raise error
    if names and not any(name in f"{error} {error.path}" for name in names):
        raise FindingError("crash", f"the error names none of {names}: {error}") from error


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
    traced: tuple[str, ...]
    """Parts of the names of modules whose lines guide the fuzzing."""
    kind: str = "bytes"
    share: int = 20
    tokens: tuple[bytes, ...] = ()
    named: str | None = "FILE"
    """FILE and FOLDER are its own; None: the error does not know its file."""
    needs: tuple[str, ...] = ()

    def read(self, data: bytes, folder: Path) -> bool:
        """True if the input was read to valid values, False if it was refused as it should be."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        try:
            return self.parse(path) is not False
        except GlyphFeedError as error:
            names = {"FILE": path.name, "FOLDER": str(folder), None: ""}
            check_refusal(error, names.get(self.named, self.named or ""))
            return False


CLASSES: dict[str, Fault | Parser] = {}


def fault(
    name: str, about: str, share: int, prepare: Callable[[Path], Any], *needs: str
) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Register a class of faults; about `share` of a thousand faults are of this class."""

    def register(run: Callable[[Case], None]) -> Callable[[Case], None]:
        CLASSES[name] = Fault(name, about, run, prepare, share, needs)
        return run

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
