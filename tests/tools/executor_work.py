"""Work for executors, traps that kill the workers of Ray over it, and a cluster; light, for every worker imports it."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PATIENCE_SECONDS = 600


def square(number: int) -> int:
    return number * number


def read_text(path: str) -> str:
    return Path(path).read_text()


def die(number: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Begin:
    """Leaves a file for every task, which names its process and how it ended; the first is done at once."""

    folder: Path
    seconds: float

    def __call__(self, number: int) -> int:
        file = self.folder / f"{number:04d}-{os.getpid()}.begun"
        file.touch()
        ending = ".left"
        try:
            end = time.monotonic() + (self.seconds if number else 0)
            while time.monotonic() < end:
                time.sleep(0.01)
            ending = ".done"
        finally:
            file.rename(file.with_suffix(ending))
        return number


@dataclass(frozen=True)
class FailAt:
    """As `Begin`, but for one task."""

    begin: Begin
    bad: int

    def __call__(self, number: int) -> int:
        from ocr.errors import ImageError

        if number != self.bad:
            return self.begin(number)
        try:
            return len(read_text("nowhere.jpg"))
        except OSError as error:
            raise ImageError(f"page {number}: cannot be opened") from error


@dataclass(frozen=True)
class Stay(Begin):
    """As `Begin`, but deaf to whoever asks it to leave."""

    def __call__(self, number: int) -> int:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return super().__call__(number)
        finally:
            signal.signal(signal.SIGINT, before)


def begin_until_interrupted(folder: str) -> None:
    """A command whose work Ray does."""
    from ocr.tools.executor import run_tasks

    # A shell that runs it in the background tells it to ignore this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with closing(run_tasks(Begin(Path(folder), 0.05), range(10_000), "ray", workers=2)) as results:
        for _ in results:
            pass


def begun(folder: Path) -> list[str]:
    """The files that `Begin` left."""
    return sorted(path.name for path in folder.iterdir())


def nothing_runs(folder: Path) -> bool:
    before = begun(folder)
    time.sleep(0.3)
    return begun(folder) == before


def watch(traps: str) -> None:
    """Kill this process in front of a call that a file of this folder names, such as "open a.jpg": one a file."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename") or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        name = os.path.basename(os.fsdecode(arguments[0]))
        for trap in os.listdir(traps):
            call, part = trap.split(" ", 1)
            if call == event and part in name:
                with suppress(FileNotFoundError):
                    os.remove(os.path.join(traps, trap))
                    os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


@contextmanager
def killed(traps: Path, *calls: str) -> Iterator[None]:
    """See that before the block ends a worker has died over each of these calls."""
    for call in calls:
        (traps / call).touch()
    try:
        yield
    finally:
        survived = [path.name for path in traps.iterdir()]
        for name in survived:
            (traps / name).unlink()
    assert not survived


def wait_until(condition: Callable[[], Any]) -> bool:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(met)


@contextmanager
def own_session(line: list[str], **settings: Any) -> Iterator[subprocess.Popen[str]]:
    """A process and all that it starts, none of which outlives the block."""
    process = subprocess.Popen(line, start_new_session=True, text=True, **settings)
    try:
        yield process
    finally:
        for member in members_of(process.pid):
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.wait()


def members_of(session: int) -> list[int]:
    """The processes of a session, but for those that only wait to be counted out."""
    listed = subprocess.run(["ps", "-eo", "sid=,pid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return [int(pid) for sid, pid, state in rows if sid == str(session) and not state.startswith("Z")]


@contextmanager
def ray_cluster(python_path: str) -> Iterator[dict[str, str]]:
    """A cluster as `ray start` makes one, on loopback and with a token; the environment of those who use it."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    # Not the folder of the test: the names of Ray's sockets must be short.
    with tempfile.TemporaryDirectory() as folder:
        # Ray takes 127.0.0.1 for another address of this machine.
        options = ["--head", "--block", "--node-ip-address=127.0.0.2", "--port=0", f"--ray-client-server-port={port}"]
        options += ["--num-cpus=2", f"--temp-dir={folder}", "--include-dashboard=false", "--disable-usage-stats"]
        line = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        environment = os.environ | token | {"PYTHONPATH": python_path}
        with (
            Path(folder, "said").open("w") as said,
            own_session(line, env=environment, stdout=said, stderr=said) as ray,
        ):
            address = Path(folder, "ray_current_cluster")
            assert wait_until(lambda: address.exists() or ray.poll() is not None)
            assert address.exists(), Path(folder, "said").read_text()
            yield token | {"RAY_ADDRESS": address.read_text()}
            ray.terminate()
            ray.wait(PATIENCE_SECONDS)
