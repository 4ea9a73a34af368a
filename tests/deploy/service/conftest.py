"""A real server on a free port of loopback."""

import threading
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from service_client import PATIENCE_SECONDS, Client, Gate

from ocr import Detector
from ocr.deploy.service.limits import Limits


@pytest.fixture(scope="session")
def detector(checkpoint: Path) -> Detector:
    return Detector.load(checkpoint, threads=1, max_pixels=1_000_000)


@pytest.fixture
def gated(detector: Detector) -> Iterator[tuple[Detector, Gate]]:
    """A detector whose model waits for `gate.open`."""
    other = copy(detector)
    gate = Gate(detector.runtime)
    other.runtime = gate
    yield other, gate
    gate.open.set()


@pytest.fixture(scope="session")
def start_server() -> Iterator[Callable[..., Client]]:
    """Starts servers that end with the session."""
    pytest.importorskip("fastapi")
    pytest.importorskip("pypdfium2")
    uvicorn = pytest.importorskip("uvicorn")
    from ocr.deploy.service.app import build_app
    from ocr.deploy.service.command import listen
    from ocr.deploy.service.connections import server_config

    started = []

    def start(detector: Detector, wait_seconds: float = 0.005, **limits: Any) -> Client:
        allowed = Limits(**({"pixels": 1_000_000, "seconds": PATIENCE_SECONDS} | limits))
        app = build_app(detector, allowed, batch_size=2, wait_seconds=wait_seconds)
        listener = listen("127.0.0.1", 0)
        server = uvicorn.Server(server_config(app, allowed, log_level="critical"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        started.append((server, thread))
        return Client(listener.getsockname()[1])

    yield start
    for server, _ in started:
        server.should_exit = True
    for _, thread in started:
        thread.join()


@pytest.fixture(scope="session")
def client(start_server: Callable[..., Client], detector: Detector) -> Client:
    """Of a server with ordinary limits, but at most 3 pages and 2 MB."""
    return start_server(detector, pages=3, bytes=2_000_000)
