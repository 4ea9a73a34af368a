"""Samples beside those of an undisturbed run, and functions in processes of their own."""

from __future__ import annotations

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sameness import assert_same

from tests.campaign.cases import Case, CrashError, SilentSkipError, WrongSampleError

CHILD_SECONDS = 150.0
_FAILED = 3


def without_path(item: Any) -> Any:
    """A sample without the place of its file, which differs between a folder and its shards."""
    return {name: value for name, value in item.items() if name != "image_path"} if isinstance(item, dict) else item


def compare(case: Case, found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Every sample, bit for bit."""
    if len(found) != len(expected):
        raise SilentSkipError(f"{len(found)} samples instead of {len(expected)}")
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        try:
            assert_same(one, other)
        except AssertionError as error:
            raise WrongSampleError(f"sample {number} differs at {error}") from error
    case.tally.samples += len(found)


def compare_unless_skipped(case: Case, found: Sequence[Any], expected: Sequence[Any], skipped: int) -> None:
    """Samples that are None must have been counted as skipped."""
    missing = sum(each is None for each in found)
    if missing != skipped:
        raise SilentSkipError(f"{missing} samples are missing, {skipped} were counted")
    case.tally.counted += skipped
    pairs = [(one, other) for one, other in zip(found, expected, strict=True) if one is not None]
    compare(case, [one for one, _ in pairs], [other for _, other in pairs])


def check_order(case: Case, found: Sequence[Any], expected: Sequence[Any]) -> None:
    """The order of samples, by their names."""
    if list(found) != list(expected):
        raise WrongSampleError(f"the order {list(found)} instead of {list(expected)}")
    case.tally.orders += 1


class Child:
    """A process that runs a function, forked from this one: everything is imported."""

    def __init__(self, case: Case, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        self._case, self._trace = case, case.folder / f"child-{case.tally.processes}.txt"
        case.tally.processes += 1
        self.pid = os.fork()
        if self.pid == 0:
            status = _FAILED
            try:
                signal.alarm(int(CHILD_SECONDS))
                function(*arguments, **named)
                status = 0
            except BaseException:
                trace = traceback.format_exc()
                # A fault may be a limit of what can be written.
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                self._trace.write_text(trace)
            finally:
                os._exit(status)

    def kill(self) -> int:
        """End it now, unless it has ended."""
        os.kill(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Its exit status, minus the signal that ended it; a function that failed is a finding."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if status == _FAILED:
            raise CrashError(self._trace.read_text())
        if status not in (0, -signal.SIGKILL):
            raise CrashError(f"the process ended with {status}")
        self._trace.unlink(missing_ok=True)
        self._case.tally.kills += status == -signal.SIGKILL
        return status


def killed_after(case: Case, seconds: float, function: Callable[..., Any], *arguments: Any, **named: Any) -> int:
    """Run a function in a process, and kill it after so many seconds; its status."""
    child = Child(case, function, *arguments, **named)
    time.sleep(seconds)
    return child.kill()


def write_result(path: Path, function: Callable[..., Any], *arguments: Any) -> None:
    """For a process: what a function returns, as text in a file."""
    path.write_text(repr(function(*arguments)))
