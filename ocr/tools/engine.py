"""Who does the offline work: the threads of this machine, or the workers of Ray. One code path for both."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Protocol, TypeVar

import ocr
from ocr.errors import ConfigError, StageError, near_names
from ocr.optional import require
from ocr.system import usable_cores

Task = TypeVar("Task")
Result = TypeVar("Result")

ENGINES = ("local", "ray")
ENGINE_HELP = "local: the cores of this machine; ray: a cluster at $RAY_ADDRESS that sees the same paths, or Ray here."
CHUNKS_A_WORKER = 2
"""One that runs and one that waits: no worker waits for its next, and nothing piles up."""
LEAST_CHUNKS_A_WORKER = 4
"""Chunks get smaller than asked for where there is little to do, so that all workers end at about the same time."""
RETRIES = 3
"""How often the chunk of a Ray worker that died is done again."""
KNOCK_SECONDS = 5
STOP_SECONDS = 10
"""For Ray workers to leave what they are doing; then they are killed."""


def check_engine(engine: str, workers: int | None) -> None:
    """Refuse what cannot work, before anything is read."""
    if engine not in ENGINES:
        raise ConfigError(f"engine={engine!r} (--engine): {near_names(str(engine), list(ENGINES))}")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers={workers} (--workers) is too small: give 1 or more, or leave it out")
    if engine == "ray":
        require("ray", "engine=ray (--engine ray)")


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    engine: str = "local",
    workers: int | None = None,
    *,
    chunk: int = 1,
) -> Generator[tuple[int, Result]]:
    """Number and result of every task, as they get done.

    For Ray, `function` is a module's own or a frozen dataclass, and tasks and results are plain data. Small tasks go to
    a worker `chunk` at a time. A task may be done twice, when a worker dies over it. The first error is raised as it
    is, and nothing runs on behind it; `with closing(run_tasks(...))` sees to the same when the loop over it is left.
    """
    check_engine(engine, workers)
    return _run(function, tasks, engine, workers, chunk)


@contextmanager
def started(engine: str, workers: int | None = None) -> Iterator[None]:
    """Ray, where it is asked for and not running yet, shared by every `run_tasks` within: starting takes seconds."""
    check_engine(engine, workers)
    if engine != "ray" or _ray().is_initialized():
        yield
        return
    _start_ray(os.environ.get("RAY_ADDRESS") or "local", workers)
    try:
        yield
    finally:
        _ray().shutdown()


def _run(
    function: Callable[[Task], Result], tasks: Sequence[Task], engine: str, workers: int | None, chunk: int
) -> Generator[tuple[int, Result]]:
    with started(engine, workers), closing(_CREWS[engine](function, workers)) as crew:
        size = max(1, min(chunk, len(tasks) // (LEAST_CHUNKS_A_WORKER * crew.workers)))
        starts = iter(range(0, len(tasks), size))
        while True:
            for first in islice(starts, crew.most_chunks - len(crew.pending)):
                crew.submit(first, tasks[first : first + size])
            if not crew.pending:
                return
            for first, results in crew.collect():
                yield from enumerate(results, first)


class _Crew(Protocol):
    """Workers with a bounded number of chunks in hand."""

    workers: int
    most_chunks: int
    pending: dict[Any, int]
    """What stands for each chunk in hand, and the number of its first task."""

    def __init__(self, function: Callable[[Any], Any], workers: int | None) -> None: ...

    def submit(self, first: int, chunk: Sequence[Any]) -> None:
        """Give a chunk to whoever is free next."""

    def collect(self) -> Iterator[tuple[int, list[Any]]]:
        """Wait for a chunk; number of its first task, and the results."""

    def close(self) -> None:
        """Cancel what is in hand, and wait until nothing runs any more."""


class _Threads(_Crew):
    """Threads of this process: reading, decoding, drawing and compressing leave the interpreter free."""

    def __init__(self, function: Callable[[Any], Any], workers: int | None) -> None:
        self.function = function
        self.workers = workers or usable_cores()
        self.most_chunks = CHUNKS_A_WORKER * self.workers
        self.pending = {}
        self.stopped = False
        self.pool = ThreadPoolExecutor(self.workers)

    def submit(self, first: int, chunk: Sequence[Any]) -> None:
        self.pending[self.pool.submit(self._run, chunk)] = first

    def _run(self, chunk: Sequence[Any]) -> list[Any]:
        return [self.function(task) for task in takewhile(lambda _: not self.stopped, chunk)]

    def collect(self) -> Iterator[tuple[int, list[Any]]]:
        for future in wait(self.pending, return_when=FIRST_COMPLETED).done:
            yield self.pending.pop(future), future.result()

    def close(self) -> None:
        self.stopped = True
        self.pool.shutdown(wait=True, cancel_futures=True)


class _RayWorkers(_Crew):
    """Processes of a Ray cluster; a chunk whose worker died is done again, by another one."""

    def __init__(self, function: Callable[[Any], Any], workers: int | None) -> None:
        ray = _ray()
        self.workers = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        self.most_chunks = workers or CHUNKS_A_WORKER * self.workers
        self.pending = {}
        self.function = ray.put(function)
        self.remote = ray.remote(max_retries=RETRIES, retry_exceptions=False)(_run_on_ray)

    def submit(self, first: int, chunk: Sequence[Any]) -> None:
        self.pending[self.remote.remote(self.function, chunk, os.getcwd())] = first

    def collect(self) -> Iterator[tuple[int, list[Any]]]:
        ray = _ray()
        for reference in ray.wait(list(self.pending), num_returns=1)[0]:
            first = self.pending.pop(reference)
            try:
                results = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                # What the function raised; Ray's own error tells where, with the traceback of the worker.
                raise error.cause from error
            except ray.exceptions.RayError as error:
                raise StageError(
                    f"engine=ray: the work that begins with task {first} was lost {RETRIES + 1} times "
                    f"({type(error).__name__}: {error}). Ray's logs may tell why; engine=local does without Ray"
                ) from error
            yield first, results

    def close(self) -> None:
        ray, running = _ray(), list(self.pending)
        for force in (False, True):
            for reference in running:
                ray.cancel(reference, force=force)
            if running:
                _, running = ray.wait(running, num_returns=len(running), timeout=STOP_SECONDS)


_CREWS: dict[str, type[_Crew]] = {"local": _Threads, "ray": _RayWorkers}


def _run_on_ray(function: Callable[[Task], Result], chunk: Sequence[Task], folder: str) -> list[Result]:
    """On a Ray worker: from the folder of the command, so that relative paths mean the same."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"engine=ray: {folder} is not on {socket.gethostname()}. All machines of the cluster must see the folder "
            "of the command, and its data, under the same paths"
        ) from error
    return [function(task) for task in chunk]


def _ray() -> Any:
    return require("ray", "engine=ray (--engine ray)")


def _start_ray(address: str, workers: int | None) -> None:
    package = Path(ocr.__file__).resolve().parent
    if address == "local":
        paths = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        settings: dict[str, Any] = {"num_cpus": workers, "include_dashboard": False}
        settings["runtime_env"] = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}}
    else:
        # The other machines may have no GlyphFeed, or another one.
        settings = {"runtime_env": {"py_modules": [str(package)]}}
    try:
        _knock(address)
        _ray().init(address=address, logging_level="ERROR", **settings)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"engine=ray, RAY_ADDRESS={address}: Ray cannot be used there ({error}). Start a cluster there (one that "
            "wants a token takes RAY_AUTH_MODE=token here too), or unset RAY_ADDRESS for Ray on this machine"
        ) from error


def _knock(address: str) -> None:
    """Raise where nobody listens; Ray itself would wait for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()
