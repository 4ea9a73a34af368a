"""A client of the service, and what it sends."""

import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

PATIENCE_SECONDS = 300


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json()["error"]["code"]


@dataclass(frozen=True)
class Client:
    """Speaks to one server."""

    port: int

    def ask(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def detect(self, body: Any, query: str = "", **headers: str) -> Answer:
        return self.ask("POST", f"/detect{query}", body, headers)

    def begin_upload(self, length: int, start: bytes = b"") -> socket.socket:
        """A connection that has announced a body, which the server is now waiting for."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)
        lines = (
            "POST /detect HTTP/1.1",
            "Host: x",
            f"Content-Length: {length}",
            "Expect: 100-continue",
            "Connection: close",
            "",
            "",
        )
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(start)
        return connection

    def metric(self, name: str) -> float:
        """The value of a line of /metrics."""
        lines = self.get("/metrics").body.decode().splitlines()
        return float(next((line.split()[-1] for line in lines if line.startswith(f"{name} ")), 0))


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something that must happen has happened."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


class Gate:
    """A runtime behind a door: shut, whoever asks the model stands before it."""

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.open, self.reached = threading.Event(), threading.Event()

    def __call__(self, pages_bhwc: np.ndarray) -> np.ndarray:
        self.reached.set()
        assert self.open.wait(PATIENCE_SECONDS)
        return self.runtime(pages_bhwc)


def encoded(page: np.ndarray, format: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(page).save(stream, format, **options)
    return stream.getvalue()


def pdf(*pages: np.ndarray) -> bytes:
    first, *others = map(Image.fromarray, pages)
    stream = io.BytesIO()
    first.save(stream, "PDF", save_all=True, append_images=others, resolution=200)
    return stream.getvalue()
