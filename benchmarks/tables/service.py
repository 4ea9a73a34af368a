"""`ocr serve` under load on loopback: many clients at once, some of them hostile; answers, p50, p99 and memory."""

from __future__ import annotations

import http.client
import io
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from PIL import Image

from benchmarks.commands import exported, served
from benchmarks.harness import Data, Figure, Row, Target, benchmark
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.models.packaged import packaged_detector

BACK_OFF_SECONDS = 0.2
"""After a 429: shorter than the second that the service asks for, so that it stays under pressure."""
PAGES = 32
ORDINARY, REFUSED = ("200", "429"), ("415", "422", "429")
GROWTH, GROWTH_MB = 1.1, 64


@dataclass
class Load:
    """What clients share, and what they saw."""

    port: int
    pages: list[bytes]
    end: float = 0.0
    answers: Counter[str] = field(default_factory=Counter)
    bad_answers: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_over(self) -> bool:
        """Whether clients must stop."""
        return time.monotonic() >= self.end

    def post(self, body: bytes) -> str:
        """The status of the answer, or the name of an error."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request("POST", "/detect", body)
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
        except OSError as error:
            return type(error).__name__
        finally:
            connection.close()

    def ordinary(self, number: int) -> None:
        """Sends a page, waits for the answer, and sends the next."""
        while not self.is_over():
            started = time.monotonic()
            status = self.post(self.pages[number % len(self.pages)])
            number += 1
            with self.lock:
                self.answers[status] += 1
                if status == "200":
                    self.seconds.append(time.monotonic() - started)
            if status == "429":
                time.sleep(BACK_OFF_SECONDS)

    def hostile(self, body: bytes) -> None:
        """Sends what is not a page."""
        while not self.is_over():
            status = self.post(body)
            with self.lock:
                self.bad_answers[status] += 1
            time.sleep(BACK_OFF_SECONDS)

    def unfinished(self, stays: bool) -> None:
        """An upload that ends early, or never."""
        while not self.is_over():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            with suppress(OSError):  # The service has closed it.
                connection.putrequest("POST", "/detect")
                connection.putheader("Content-Length", "1000000")
                connection.endheaders(b"\x89PNG")
                while stays and not self.is_over():
                    time.sleep(BACK_OFF_SECONDS)
                    connection.send(b"\0")
            connection.close()
            time.sleep(BACK_OFF_SECONDS)

    def watch(self, process: int) -> None:
        """Memory of the service, ten times a second."""
        while not self.is_over():
            status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
            (kilobytes,) = re.findall(r"VmRSS:\s+(\d+) kB", status)
            self.memory.append(int(kilobytes) << 10)
            time.sleep(0.1)

    def run(self, clients: int, seconds: float, process: int) -> None:
        """All clients at once, until the time is over."""
        work: list[Callable[[], None]] = [lambda number=number: self.ordinary(number) for number in range(clients)]
        work += [lambda body=body: self.hostile(body) for body in (b"\0garbage" * 100_000, bomb())]
        work += [lambda: self.unfinished(False), lambda: self.unfinished(True), lambda: self.watch(process)]
        self.post(self.pages[0])
        self.end = time.monotonic() + seconds
        with ThreadPoolExecutor(len(work)) as threads:
            for running in [threads.submit(one) for one in work]:
                running.result()


def bomb() -> bytes:
    """A small PNG of a hundred million black pixels."""
    stream = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(stream, "PNG")
    return stream.getvalue()


@benchmark("service", table="serve#service", threads=None, rounds=1)
def service(data: Data) -> Iterator[Row]:
    """`ocr serve` under load; `--set service.clients=64`, `service.seconds=60` and `service.model=FILE` change it."""
    clients, seconds = int(data.setting("service.clients", "64")), float(data.setting("service.seconds", "60"))
    files = sorted(path for path in (data.receipts / "images/val").iterdir() if path.suffix.lower() in IMAGE_EXTENSIONS)
    model = data.setting("service.model", "") or exported(data, packaged_detector(), "openvino", "int8")
    with served(str(model)) as (port, process):
        load = Load(port, [file.read_bytes() for file in files[:PAGES]])
        load.run(clients, seconds, process.pid)
    yield from rows(load, seconds, process.returncode, f"{clients} clients for {seconds:.0f} s, and four hostile ones")


def rows(load: Load, seconds: float, exit_status: int, caption: str) -> Iterator[Row]:
    """What was seen, and targets for what must not happen."""
    cuts = quantiles(load.seconds, n=100) if len(load.seconds) > 1 else [float("nan")] * 99
    quarter = max(1, len(load.memory) // 4)
    early, late = median(load.memory[quarter : 2 * quarter] or [0]), median(load.memory[-quarter:])
    wrong = sum(count for status, count in load.answers.items() if status not in ORDINARY)
    accepted = sum(count for status, count in load.bad_answers.items() if status not in REFUSED)
    limit = max(GROWTH * early, early + (GROWTH_MB << 20))
    figures = {
        "p50 of an answer": Figure(cuts[49], "s"),
        "p99 of an answer": Figure(cuts[98], "s"),
        "pages answered": Target(load.answers["200"] / seconds, " pages/s", at_least=1),
        "answers 429, busy": load.answers["429"],
        "ordinary requests with another answer": Target(wrong, at_most=0),
        "bad requests": load.bad_answers.total(),
        "bad requests that were not refused": Target(accepted, at_most=0),
        "memory in the second quarter": Figure(early, "B"),
        "memory in the last quarter": Target(late, "B", at_most=limit),
        "exit status after SIGTERM": Target(exit_status, at_most=0),
    }
    for name, value in figures.items():
        yield Row(name, {"measured": value}, caption)
