"""`ocr serve` under load on loopback: many clients at once, some of them hostile; answers, p50, p99 and memory.

python benchmarks/service.py exported/model.onnx --clients 64 --seconds 60 --data DIR

Ordinary clients send a page, wait for the answer, and send the next. Four more send garbage, image bombs, uploads that
they break off, and uploads that never end. The exit status is 1 if an ordinary request had another answer than 200 or
429, a bad one was not refused, or memory grew by more than 10 % and 64 MB between the second quarter and the last.
"""

from __future__ import annotations

import argparse
import http.client
import io
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from PIL import Image
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console, data_or_synthetic, exit_with
from ocr.errors import ConfigError
from ocr.formats.names import IMAGE_EXTENSIONS

BACK_OFF_SECONDS = 0.2
"""After a 429: shorter than the second that the service asks for, so that it stays under pressure."""


@dataclass
class Load:
    """What clients share, and what they saw."""

    port: int
    pages: list[bytes]
    end: float
    answers: Counter[str] = field(default_factory=Counter)
    bad_answers: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_over(self) -> bool:
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

    def hostile(self, name: str, body: bytes) -> None:
        while not self.is_over():
            status = self.post(body)
            with self.lock:
                self.bad_answers[f"{name} {status}"] += 1
            time.sleep(BACK_OFF_SECONDS)

    def broken_off(self, stays: bool) -> None:
        """An upload that ends early, or never."""
        while not self.is_over():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
            with suppress(OSError):  # The service has had enough.
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
            self.megabytes.append(int(kilobytes) / 1000)
            time.sleep(0.1)


def bomb() -> bytes:
    """A small PNG of a hundred million black pixels."""
    stream = io.BytesIO()
    Image.new("1", (10_000, 10_000)).save(stream, "PNG")
    return stream.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="checkpoint, or what `ocr export` wrote")
    parser.add_argument("--clients", type=int, default=64, help="ordinary clients at once (default: 64)")
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: 60)")
    parser.add_argument("--data", type=Path, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--split", default="val", help="split to read (default: val)")
    options = parser.parse_args()
    folder = data_or_synthetic(options.data, pages=8) / "images" / options.split
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_EXTENSIONS)[:32]
    if not files:
        raise ConfigError(f"--data: {folder} holds no image")
    command = [sys.executable, "-m", "ocr.cli", "serve", str(options.model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            found = re.search(r":(\d+) ", service.stdout.readline())
            if found is None:
                return 1  # The service has said why.
            load = Load(int(found[1]), [file.read_bytes() for file in files], 0)
            run(load, options.clients, options.seconds, service.pid)
        finally:
            service.terminate()
            service.communicate()  # Its last word, too: a closed pipe would be an error of its own.
    return report(load, options.seconds, service.returncode)


def run(load: Load, clients: int, seconds: float, process: int) -> None:
    """All clients at once, until the time is over."""
    work: list[Callable[[], None]] = [lambda number=number: load.ordinary(number) for number in range(clients)]
    hostile = {"garbage": b"\0garbage" * 100_000, "bomb": bomb()}
    work += [lambda name=name, body=body: load.hostile(name, body) for name, body in hostile.items()]
    work += [lambda: load.broken_off(False), lambda: load.broken_off(True), lambda: load.watch(process)]
    load.post(load.pages[0])
    load.end = time.monotonic() + seconds
    with Progress(console=console, transient=True) as progress, ThreadPoolExecutor(len(work)) as threads:
        task = progress.add_task(f"{clients} clients", total=seconds)
        running = [threads.submit(one) for one in work]
        while not load.is_over():
            time.sleep(0.1)
            progress.update(task, completed=seconds - (load.end - time.monotonic()))
        for one in running:
            one.result()


def report(load: Load, seconds: float, exit_status: int) -> int:
    """Print what was seen; 1 if something is not as it must be."""
    quarter = max(1, len(load.megabytes) // 4)
    early, late = median(load.megabytes[quarter : 2 * quarter] or [0]), median(load.megabytes[-quarter:])
    faults = [f"ordinary: {status}" for status in load.answers if status not in ("200", "429")]
    faults += [f"bad: {seen}" for seen in load.bad_answers if seen.split()[1] not in ("415", "422", "429")]
    if late > 1.1 * early and late > early + 64:
        faults.append("memory grows")
    if exit_status:
        faults.append(f"the service ended with {exit_status}")
    if len(load.seconds) > 1:
        cuts = quantiles(load.seconds, n=100)
        console.print(f"answers: p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, {len(load.seconds) / seconds:.1f} pages/s")
    else:
        faults.append("fewer than two pages were answered")
    console.print(f"ordinary requests: {dict(load.answers)}; bad ones: {dict(load.bad_answers)}")
    console.print(f"memory: {early:.0f} MB in the second quarter, {late:.0f} MB in the last")
    console.print("faults: " + ("; ".join(faults) or "none"))
    return 1 if faults else 0


if __name__ == "__main__":
    exit_with(main)
