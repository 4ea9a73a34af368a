"""Starts benchmarks/peers/worker.py in an environment that has the packages of a peer, and reads what it tells."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from threading import Timer
from typing import Any

from benchmarks.harness import ROOT
from benchmarks.peers import PEERS, Peer
from benchmarks.peers.common import Course
from benchmarks.peers.worker import MARK

ENVIRONMENT = {
    # Glibc's thresholds as `ocr.malloc` sets them, also for workers that are started anew.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "NO_ALBUMENTATIONS_UPDATE": "1",
    # Compiled modules are kept, whatever this process was started with: else each start would compile ours again.
    "PYTHONDONTWRITEBYTECODE": "",
}
ORPHAN_SECONDS = 10.0
"""Workers may take so long to notice that their process is gone; torch's look every 5 s."""


class PeerError(Exception):
    """Why a peer cannot be installed or run."""


@dataclass(frozen=True)
class PeerProcess:
    """Runs the tasks of one peer, one process at a time."""

    name: str
    python: str
    course: Course
    log: Path
    timeout: float

    def prepare(self) -> float:
        """Seconds of what is done once before the first epoch; 0 if there is nothing to do."""
        return float(self.run("prepare")["seconds"]) if PEERS[self.name].prepares else 0.0

    def run(self, task: str, **details: Any) -> dict[str, Any]:
        """The result of a task; a PeerError if there is none."""
        with self._started(task, details) as process:
            for told in _told_by(process):
                if "result" in told:
                    found: dict[str, Any] = told["result"]
                    return found
        if process.returncode == -signal.SIGKILL:
            raise PeerError(f"{task}: ended after {self.timeout:.0f} s")
        words = last_line(self.log.read_text(encoding="utf-8", errors="replace")).replace(self.course.folder, "FOLDER")
        raise PeerError(f"{task}: {words or f'code {process.returncode}'}")

    def kill(self, task: str, event: str, seconds: float = 0.0) -> tuple[int, int]:
        """Kill -9 of the process, but not of its workers, some seconds after it told of an event.

        Processes, and bytes of shared memory, that it leaves behind.
        """
        before = {path.name for path in Path("/dev/shm").glob("*")}
        with self._started(task, {}) as process:
            next((told for told in _told_by(process) if event in told), None)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.kill()
            process.wait()
            end = time.monotonic() + ORPHAN_SECONDS
            while (orphans := _session(process.pid)) and time.monotonic() < end:
                time.sleep(0.2)
        mapped, left = set[str](), 0  # What a running process uses is not left behind.
        for entry in Path("/proc").glob("[0-9]*/maps"):
            with suppress(OSError):
                mapped |= {line.split("/dev/shm/")[1].strip() for line in entry.open() if "/dev/shm/" in line}
        for path in Path("/dev/shm").glob("*"):
            with suppress(FileNotFoundError):  # Another process may remove its own at any moment.
                left += path.stat().st_size if path.name not in before | mapped else 0
        return len(orphans), left

    @contextmanager
    def _started(self, task: str, details: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
        words = {"peer": self.name, "task": task, "course": asdict(self.course), **details}
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [self.python, "-m", "benchmarks.peers.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=environment,
                # So that all its processes are found, and nothing else is.
                start_new_session=True,
            )
        clock = Timer(self.timeout, _end_session, [process.pid])
        clock.start()
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps({"started": time.monotonic(), **words}))
                process.stdin.close()
            yield process
        finally:
            clock.cancel()
            _end_session(process.pid)
            process.wait()


def last_line(text: str) -> str:
    """The last line that is no warning about the shutdown of workers."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0] and not line.startswith("File ")]
    return (errors or lines or [""])[-1][:300]


def _told_by(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(MARK):
            yield json.loads(line[len(MARK) :])
    process.wait()


def _session(leader: int) -> list[int]:
    """Processes of a session, workers whose parent has ended included; zombies are not."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            if entry.name.isdigit() and int(session) == leader and state != "Z":
                found.append(int(entry.name))
    return found


def _end_session(leader: int) -> None:
    for process in _session(leader):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def make_environment(peer: Peer, folder: Path) -> tuple[str, str]:
    """The interpreter that has the packages of a peer, and the version of the first of them.

    It is this one, or that of a virtual environment made now, which sees the packages of this one behind its own, so
    that pip installs only what is missing.
    """
    if all(_version(package, sys.path) for package in peer.packages):
        return sys.executable, _version(peer.packages[0], sys.path) if peer.packages else ""
    home = folder.resolve() / peer.module
    python, ready = home / "bin" / "python", home / "ready"
    if not ready.exists():
        _call(sys.executable, "-m", "venv", "--clear", str(home))
        (site,) = home.glob("lib/python*/site-packages")
        (site / "outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
        limits = home / "limits.txt"
        limits.write_text(f"torch=={metadata.version('torch')}\n", encoding="utf-8")
        quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--constraint", str(limits)]
        _call(str(python), "-m", "pip", "install", *quiet, *peer.packages)
        ready.touch()
    return str(python), _version(peer.packages[0], [*map(str, home.glob("lib/python*/site-packages")), *sys.path])


def _version(package: str, path: list[str]) -> str:
    """Of an installed package; empty if there is none."""
    found = next(iter(metadata.distributions(name=package, path=path)), None)
    return found.version if found else ""


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PeerError(last_line(done.stderr))
