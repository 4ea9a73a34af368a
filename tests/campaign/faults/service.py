"""The service: damaged uploads, connections that are cut, more requests than it takes. It answers, and goes on."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from service_client import Client, Gate, encoded, eventually, pdf

from ocr.deploy.detector import Detector
from tests.campaign.cases import Case, CrashError, LeakError, WrongSampleError, fault
from tests.campaign.mutate import change_bytes
from tests.campaign.pages import images, noise

NEEDS = ("fastapi", "uvicorn", "pypdfium2", "prometheus_client")
ALLOWED = {200, 408, 413, 415, 422, 429, 504}
REQUESTS, BATCH = 3, 2
THREADS = {"image": BATCH + 2, "pdf": 2}
"""Of the service, all that it may have for each kind of page."""


class Served:
    """A server in this process, and the answer to a sound page."""

    def __init__(self, folder: Path) -> None:
        import uvicorn

        from ocr.deploy.service.app import build_app
        from ocr.deploy.service.command import listen
        from ocr.deploy.service.limits import Limits
        from tests.campaign.faults.model_files import save_tiny

        detector = copy(Detector.load(save_tiny(folder / "tiny.safetensors"), threads=1, max_pixels=1_000_000))
        self.gate = Gate(detector.runtime)
        self.gate.open.set()
        detector.runtime = self.gate
        limits = Limits(bytes=300_000, pixels=1_000_000, pages=3, seconds=60, requests=REQUESTS)
        listener = listen("127.0.0.1", 0)
        app = build_app(detector, limits, batch_size=BATCH)
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
        self._thread = threading.Thread(target=self._server.run, args=([listener],))
        self._thread.start()
        self.client, self.page = Client(listener.getsockname()[1]), encoded(noise(80, 60))
        self.examples = [data for _, examples in images() for data in examples] + [pdf(noise(40, 50))]
        self.expected = self.client.detect(self.page).body
        self._start_threads()

    def _start_threads(self) -> None:
        """Those of the service are started when they are needed, and stay: here all of them, or a case would."""
        page = noise(40, 50)
        two = encoded(page, "TIFF", save_all=True, append_images=[Image.fromarray(page)])
        for kind, bodies in (("image", [two] * (THREADS["image"] // 2)), ("pdf", [pdf(page, page)])):
            self.gate.open.clear()
            with ThreadPoolExecutor(REQUESTS) as threads:
                waiting = [threads.submit(self.client.detect, body) for body in bodies]
                eventually(lambda kind=kind: started(kind) >= THREADS[kind])
                self.gate.open.set()
                for one in waiting:
                    one.result()
        for example in self.examples:
            self.client.detect(example)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()


def started(kind: str) -> int:
    """Threads of the service for one kind of page."""
    return sum(thread.name.startswith(f"{kind}_") for thread in threading.enumerate())


def check(case: Case) -> None:
    """Nothing is at work any more, and a sound page has its right answer."""
    client = case.prepared.client
    eventually(lambda: client.metric("glyphfeed_requests_at_work") == 0)
    if client.get("/health").status != 200:
        raise CrashError("the service is not healthy")
    check_words(client.detect(case.prepared.page).body, case.prepared.expected)
    case.tally.samples += 1


def check_words(found: bytes, expected: bytes) -> None:
    """The same boxes; in a batch with others, a model rounds differently."""
    pairs = [list(json.loads(body)["pages"][0]["words"].values()) for body in (found, expected)]
    if len(pairs[0]) != len(pairs[1]):
        raise WrongSampleError(f"{len(pairs[0])} words instead of {len(pairs[1])}")
    for word, other in zip(*pairs, strict=True):
        close = np.allclose(word["points"], other["points"], atol=0.5) and abs(word["score"] - other["score"]) < 1e-3
        if not close:
            raise WrongSampleError(f"{word} instead of {other}")


def judge(case: Case, answer: Any) -> None:
    if answer.status not in ALLOWED:
        raise CrashError(f"status {answer.status}: {answer.body[:500]!r}")
    if answer.status != 200 and not answer.json()["error"]["message"]:
        raise CrashError("an answer without a reason")
    case.tally.refused += answer.status != 200


@fault("upload-damage", "an upload to the service: any damage", share=60, prepare=Served, needs=NEEDS)
def damaged_upload(case: Case) -> None:
    data = change_bytes(case.rng.choice(case.prepared.examples), case.rng)
    query = case.rng.choice(
        ("", "", "?pictures=true", "?box_thresh=0", f"?box_thresh={case.rng.choice(('2', 'nan', 'x'))}")
    )
    judge(case, case.prepared.client.detect(data, query))
    check(case)


@fault("upload-cut", "a connection to the service is cut", share=30, prepare=Served, needs=NEEDS)
def cut_upload(case: Case) -> None:
    page, sent = case.prepared.page, case.rng.randrange(len(case.prepared.page))
    whole = case.rng.random() < 0.3
    connection = case.prepared.client.begin_upload(len(page), page if whole else page[:sent])
    if case.rng.random() < 0.5:
        import socket
        import struct

        # A reset, as of a client that died, not an orderly end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    check(case)


@fault("queue-full", "more requests than the service takes at once", share=20, prepare=Served, needs=NEEDS)
def full_queue(case: Case) -> None:
    served, extra = case.prepared, case.rng.choice((1, 3))
    served.gate.open.clear()
    served.gate.reached.clear()
    try:
        with ThreadPoolExecutor(REQUESTS + extra) as threads:
            waiting = [threads.submit(served.client.detect, served.page) for _ in range(REQUESTS)]
            eventually(lambda: served.client.metric("glyphfeed_requests_at_work") == REQUESTS)
            refused = list(threads.map(served.client.detect, [served.page] * extra))
            served.gate.open.set()
            answers = [one.result() for one in waiting]
    finally:
        served.gate.open.set()
    if {answer.status for answer in refused} != {429} or {answer.status for answer in answers} != {200}:
        raise LeakError(f"{[answer.status for answer in (*refused, *answers)]}")
    for answer in answers:
        check_words(answer.body, served.expected)
    case.tally.samples += len(answers)
    case.tally.refused += extra
    check(case)
