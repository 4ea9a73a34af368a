"""A real S3 server on loopback, through a line that a test can cut."""

import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Line:
    """A TCP line to a server; `cut(after)` ends it once, after so many bytes came back."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cuts = 0
        self._cut_after: int | None = None
        self._carried: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, after: int) -> None:
        self._cut_after = after

    def close(self) -> None:
        """Also ends the connections, and with them the threads that carry them."""
        for one in (self._listener, *self._carried):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._carried.append(client)
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server_port)) as server, suppress(OSError):
            chosen = selectors.DefaultSelector()
            chosen.register(client, selectors.EVENT_READ, server)
            chosen.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in chosen.select():
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if not data or (key.fileobj is server and self._is_cut(len(data))):
                        return
                    key.data.sendall(self.changed(data) if key.fileobj is server else data)

    def changed(self, data: bytes) -> bytes:
        """What arrives of what the server sent."""
        return data

    def _is_cut(self, count: int) -> bool:
        if self._cut_after is None:
            return False
        self._cut_after -= count
        if self._cut_after > 0:
            return False
        self._cut_after = None
        self.cuts += 1
        return True


@contextmanager
def s3_server() -> Iterator[int]:
    """The port of moto's server, a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-c", f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(120)
