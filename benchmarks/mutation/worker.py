"""Run tests in a fork of a process that has the heavy libraries already: `import torch` costs more than most tests.

Started by `TestRunner` in the scratch copy, with the names of the libraries; reads one request per line, and writes one
answer per line.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

MIN_SECONDS_BETWEEN_LOOKS = 0.02


class Record:
    """A pytest plugin: CPU seconds and outcome of every test, and what the first failure said."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: dict[str, str] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Time on the cores, with all processes that the test has waited for: a busy machine changes little."""
        self.seconds[nodeid] = -sum(os.times()[:4])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """All three phases of the test are over."""
        self.seconds[nodeid] += sum(os.times()[:4])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the first line of what went wrong."""
        if report.failed:
            self.failed.setdefault(report.nodeid, _last_line(report.longreprtext))

    def pytest_collectreport(self, report: Any) -> None:
        """A module that cannot be imported any more fails all of its tests."""
        if report.failed:
            self.failed.setdefault(report.nodeid, _last_line(report.longreprtext))


def _last_line(text: str) -> str:
    errors = [line for line in text.splitlines() if line.startswith("E ")]
    return (errors or text.splitlines() or [""])[0].removeprefix("E ").strip()[:200]


def run_tests(arguments: list[str], answer: Path, log: Path) -> None:
    """In the fork: pytest, with what it says in a file."""
    import pytest

    with log.open("wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    ocr = importlib.import_module("ocr")
    assert Path(str(ocr.__file__)).is_relative_to(Path.cwd()), f"{ocr.__file__} is not of the scratch copy"
    record = Record()
    status = pytest.main(arguments, plugins=[record])
    told = {"status": int(status), "seconds": record.seconds, "failed": record.failed}
    answer.write_text(json.dumps(told), encoding="utf-8")


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """Fork, wait, and end all that the fork has started if it takes too long, on the cores or by the clock."""
    answer, log = Path(request["answer"]), Path(request["log"])
    answer.unlink(missing_ok=True)
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        os.setsid()
        # A shell lets its background jobs ignore Ctrl-C, and tests send it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_CPU, (request["limit_cpu_seconds"],) * 2)
        with contextlib.suppress(BaseException):
            run_tests(request["arguments"], answer, log)
        # Without the exit handlers of the parent.
        os._exit(0)
    try:
        told = _wait(child, start + request["limit_seconds"], answer)
    finally:
        # The child is not waited for yet, so that its id still names its group: workers that it left behind end too.
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return told | {"took_seconds": time.monotonic() - start}


def _wait(child: int, until: float, answer: Path) -> dict[str, Any]:
    """What the child has found, or how it ended."""
    while time.monotonic() < until:
        if ended := os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if answer.exists():
                told: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
                return told
            # The system kills what has used up its time on the cores.
            return {"status": "timeout" if ended.si_status == signal.SIGKILL else "crash"}
        time.sleep(MIN_SECONDS_BETWEEN_LOOKS)
    return {"status": "timeout"}


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for library in sys.argv[1:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(library)
    assert "ocr" not in sys.modules
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
