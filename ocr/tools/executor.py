"""Executors of offline work: threads on this machine, or Ray workers. One code path for both."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import ocr
from ocr.checks import check_choice, check_integer
from ocr.errors import ConfigError, StageError
from ocr.optional import require
from ocr.system import usable_cores

Task = TypeVar("Task")
Result = TypeVar("Result")

EXECUTORS = ("local", "ray")
EXECUTOR_HELP = (
    "local: the cores of this machine; ray: a cluster at $RAY_ADDRESS that sees the same paths, or Ray here."
)
CHUNKS_PER_WORKER = 2
"""One running and one queued: no worker is idle, and few results pile up."""
MIN_CHUNKS_PER_WORKER = 4
"""With few tasks, chunks are smaller than requested, so that all workers finish at about the same time."""
RETRIES = 3
"""How often a chunk is repeated when its Ray worker dies."""
CONNECT_SECONDS = 5
STOP_SECONDS = 10
"""How long Ray workers can take to stop; then they are killed."""


class LazyTasks(Sequence[Task]):
    """Tasks that are made when they are handed out: a million of them take no memory."""

    def __init__(self, count: int, make: Callable[[int], Task]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Task: ...

    @overload
    def __getitem__(self, number: slice) -> list[Task]: ...

    def __getitem__(self, number: int | slice) -> Task | list[Task]:
        numbers = range(self._count)[number]
        return [self._make(each) for each in numbers] if isinstance(numbers, range) else self._make(numbers)


def check_executor(executor: str, workers: int | None) -> None:
    """Raise ConfigError for values that cannot work, before anything is read."""
    check_choice("executor", executor, EXECUTORS)
    if workers is not None:
        check_integer("workers", workers, 1)
    if executor == "ray":
        require("ray", "executor=ray")


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    executor: str = "local",
    workers: int | None = None,
    *,
    chunk: int = 1,
) -> Generator[tuple[int, Result]]:
    """Yield the number and the result of every task, in the order in which they finish.

    For Ray, `function` is defined at module level or is a frozen dataclass, and tasks and results can be pickled.
    Workers get `chunk` small tasks at a time. A task can run twice if its worker dies. The first error is raised
    unchanged and stops all workers; `with closing(run_tasks(...))` also stops them when the loop is left early.
    """
    check_executor(executor, workers)
    return _run(function, tasks, executor, workers, chunk)


@contextmanager
def started(executor: str, workers: int | None = None) -> Iterator[None]:
    """Start Ray, if the executor needs it, for every `run_tasks` within the block: starting takes seconds."""
    check_executor(executor, workers)
    with _POOLS[executor](None, workers):
        yield


def _run(
    function: Callable[[Task], Result], tasks: Sequence[Task], executor: str, workers: int | None, chunk: int
) -> Generator[tuple[int, Result]]:
    with _POOLS[executor](function, workers) as pool:
        size = max(1, min(chunk, len(tasks) // (MIN_CHUNKS_PER_WORKER * pool.workers)))
        starts = iter(range(0, len(tasks), size))
        while True:
            for first in islice(starts, pool.max_chunks - len(pool.pending)):
                pool.pending[pool.submit(tasks[first : first + size])] = first
            if not pool.pending:
                return
            for first, results in pool.collect():
                yield from enumerate(results, first)


class _Pool(NamedTuple):
    """Workers with a bounded number of pending chunks; leaving its block cancels them and waits until nothing runs."""

    workers: int
    max_chunks: int
    submit: Callable[[Sequence[Any]], Any]
    """Queue a chunk for the next free worker; its handle."""
    collect: Callable[[], Iterator[tuple[int, list[Any]]]]
    """Wait for a pending chunk; the number of its first task, and its results."""
    pending: dict[Any, int]
    """The handle of each chunk, and the number of its first task."""


@contextmanager
def _threads(function: Callable[[Any], Any] | None, workers: int | None) -> Iterator[_Pool]:
    """Threads of this process: reading, decoding, drawing and compressing release the GIL."""
    count, stopped = workers or usable_cores(), threading.Event()
    pool, pending = ThreadPoolExecutor(count), dict[Any, int]()

    def run(chunk: Sequence[Any]) -> list[Any]:
        assert function is not None
        return [function(task) for task in takewhile(lambda _: not stopped.is_set(), chunk)]

    def collect() -> Iterator[tuple[int, list[Any]]]:
        for future in wait(pending, return_when=FIRST_COMPLETED).done:
            yield pending.pop(future), future.result()

    try:
        yield _Pool(count, CHUNKS_PER_WORKER * count, lambda chunk: pool.submit(run, chunk), collect, pending)
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _ray(function: Callable[[Any], Any] | None, workers: int | None) -> Iterator[_Pool]:
    """Processes of a Ray cluster; if a worker dies, another repeats its chunk. A Ray that was running keeps running."""
    ray = require("ray", "executor=ray")
    address, was_running = os.environ.get("RAY_ADDRESS") or "local", ray.is_initialized()
    package = Path(ocr.__file__).resolve().parent
    # The other machines of a cluster can lack GlyphFeed, or have another version.
    settings: dict[str, Any] = {"runtime_env": {"py_modules": [str(package)]}}
    if address == "local":
        paths = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        settings = {"num_cpus": workers, "include_dashboard": False}
        settings["runtime_env"] = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}}
    try:
        host, _, port = address.rpartition("/")[2].rpartition(":")
        if not was_running and port.isdigit():
            # Where nothing listens Ray itself would wait for minutes.
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
        if not was_running:
            ray.init(address=address, logging_level="ERROR", **settings)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"executor=ray, RAY_ADDRESS={address}: Ray cannot be used there ({error}). Start a cluster there (one that "
            "wants a token takes RAY_AUTH_MODE=token here too), or unset RAY_ADDRESS for Ray on this machine",
            setting="RAY_ADDRESS",
            value=address,
        ) from error
    count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    remote = ray.remote(max_retries=RETRIES, retry_exceptions=False)(_run_on_ray)
    stored, pending = ray.put(function), dict[Any, int]()

    def collect() -> Iterator[tuple[int, list[Any]]]:
        for reference in ray.wait(list(pending), num_returns=1)[0]:
            # Taken out first: to cancel a task that has failed can end this process (Ray 2.60).
            first = pending.pop(reference)
            try:
                results = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                # What the function raised; Ray's own error has the traceback of the worker.
                raise error.cause from error
            except ray.exceptions.RayError as error:
                raise StageError(
                    f"executor=ray: the chunk that starts with task {first} failed {RETRIES + 1} "
                    f"times ({type(error).__name__}: {error}). See Ray's logs, or use executor=local",
                    setting="executor",
                    value="ray",
                ) from error
            yield first, results

    try:
        max_chunks = workers or CHUNKS_PER_WORKER * count
        yield _Pool(count, max_chunks, lambda chunk: remote.remote(stored, chunk, os.getcwd()), collect, pending)
    finally:
        running = list(pending)
        for force in (False, True):
            for reference in running:
                ray.cancel(reference, force=force)
            if running:
                _, running = ray.wait(running, num_returns=len(running), timeout=STOP_SECONDS)
        if not was_running:
            ray.shutdown()


_POOLS = {"local": _threads, "ray": _ray}


def _run_on_ray(function: Callable[[Task], Result], chunk: Sequence[Task], folder: str) -> list[Result]:
    """Run on a Ray worker, in the working directory of the command, so that relative paths are the same."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"executor=ray: {folder} does not exist on {socket.gethostname()}. All machines of the cluster must see "
            "the working directory of the command, and its data, under the same paths",
            setting="executor",
            value="ray",
            path=folder,
        ) from error
    return [function(task) for task in chunk]
