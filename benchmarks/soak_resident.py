"""The process that a soak watches: it trains, validates, fills caches, predicts and asks a service, in turns."""

from __future__ import annotations

import json
import os
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random

import torch
from service_client import Client

from benchmarks.soak_pages import BATCH_SIZE, OTHER_SIZES, Compared, PagesOfSoak
from ocr.deploy.detector import Detector
from ocr.loader import Loader
from ocr.models.detector import TextDetector
from ocr.models.load import save_detector
from ocr.models.loss import DBLoss
from ocr.models.settings import DetectorSettings
from tests.campaign.cases import WrongSampleError
from tests.campaign.faults.service import check_words

TINY = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}
STEPS = 3
VALIDATIONS = 5
PAGES_TO_PREDICT = 2
CLIENTS = 2
REFUSALS = (400, 408, 415, 422, 429)
Work = Callable[[Random], tuple[int, float, float]]
"""Pages, seconds and CPU seconds."""


class Stopwatch:
    """Time and CPU time since it was made: of this process and of children that have ended, or of another process."""

    def __init__(self, process: int | None = None) -> None:
        self._process, self._cpu, self._start = process, self._cpu_seconds(process), time.monotonic()

    def read(self) -> tuple[float, float]:
        """Seconds and CPU seconds."""
        return time.monotonic() - self._start, self._cpu_seconds(self._process) - self._cpu

    @staticmethod
    def _cpu_seconds(process: int | None) -> float:
        if process is None:
            used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
            return sum(each.ru_utime + each.ru_stime for each in used)
        fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


class Resident:
    """Datasets, loaders, a detector and a model that live as long as the soak."""

    def __init__(self, pages: PagesOfSoak, out: Path, model: Path | None, port: int, service: int) -> None:
        self.pages, self.client, self._service, self._out = pages, Client(port), service, out
        self._load = partial(Detector.load, model, threads=1)
        self.counts: Counter[str] = Counter()
        self.compared, self.findings = Compared(), list[str]()
        train, settings = pages.open("train", cached=True), {"shuffle": True, "seed": pages.seed}
        self._loaders = [
            Loader(train, BATCH_SIZE, 2, **settings),
            Loader(train, BATCH_SIZE, 2, "processes", multiprocessing_context="fork", **settings),
        ]
        self._feed = Loader(train, BATCH_SIZE, 2, device="cpu", **settings)
        self._validation = Loader(pages.open("val", cached=True), BATCH_SIZE, 2)
        self._detector = self._load()
        torch.manual_seed(pages.seed)
        self._model, self._loss = TextDetector(**TINY), DBLoss()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), 1e-4)
        self._epoch = 0
        self.activities: dict[str, Work] = {
            "read": self.read,
            "validate": self.validate,
            "train": self.train,
            "fill": self.fill,
            "predict": self.predict,
            "serve": self.serve,
        }

    def read(self, rng: Random) -> tuple[int, float, float]:
        """An epoch of random samples, half of the time broken off and resumed; threads, or processes now and then."""
        loader, name = self._loaders[rng.random() < 0.25], "an epoch"
        self._epoch += 1
        loader.set_epoch(self._epoch)
        found, watch = [], Stopwatch()
        if rng.random() < 0.5:
            name, stop = "an epoch that was resumed", rng.randrange(1, len(loader))
            for batch in loader:
                found.append(batch)
                if len(found) == stop:
                    state = loader.state_dict()
                    break
            loader.load_state_dict(state)
            self.counts["broken off"] += 1
        found += list(loader)
        seconds = watch.read()
        self.findings += self.compared.compare(name, found, self.pages.batches("train", self._epoch))
        return len(self.pages.files["train"]), *seconds

    def validate(self, rng: Random) -> tuple[int, float, float]:
        """Epochs without random stages, whose batches are views of the cache; one alone takes milliseconds."""
        watch = Stopwatch()
        for _ in range(VALIDATIONS):
            found = list(self._validation)
        seconds = watch.read()
        self.findings += self.compared.compare("validation", found, self.pages.batches("val"))
        return VALIDATIONS * len(self.pages.files["val"]), *seconds

    def train(self, rng: Random) -> tuple[int, float, float]:
        """A few steps of a small model, then the epoch is broken off and the weights are written."""
        self._epoch += 1
        self._feed.set_epoch(self._epoch)
        watch, pages = Stopwatch(), 0
        for number, batch in enumerate(self._feed, 1):
            loss, _ = self._loss(self._model(batch["images"]), batch)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
            pages += len(batch["images"])
            if number == STEPS:
                break
        self.counts["broken off"] += 1
        settings = DetectorSettings(TINY, letterbox={"size": self.pages.size})
        save_detector(self._out / "trained.safetensors", self._model, settings)
        return pages, *watch.read()

    def fill(self, rng: Random) -> tuple[int, float, float]:
        """A dataset that is opened, cached in another size, and closed; caches beyond the budget are removed."""
        split, share = rng.choice(("train", "val")), rng.choice(OTHER_SIZES)
        watch = Stopwatch()
        dataset = self.pages.open(split, cached=True, random=False, share=share)
        dataset.fill_cache(threads=2)
        seconds = watch.read()
        found = list(Loader(dataset, BATCH_SIZE, 2))
        self.findings += self.compared.compare("another cache", found, self.pages.batches(split, share=share))
        return len(dataset), *seconds

    def predict(self, rng: Random) -> tuple[int, float, float]:
        """Text on a few pages, in threads; now and then with a detector that is loaded anew."""
        if rng.random() < 0.1:
            self._detector = self._load()
        paths = rng.sample(self.pages.files["val"], PAGES_TO_PREDICT)
        watch = Stopwatch()
        found = [page.name for page in self._detector.stream(paths, batch_size=2)]
        if found != list(map(str, paths)):
            self.findings.append(f"predictions of {found} instead of {paths}")
        return len(found), *watch.read()

    def serve(self, rng: Random) -> tuple[int, float, float]:
        """Pages from several clients at once, one alone whose answer is compared, garbage and an upload cut off."""
        bodies = [path.read_bytes() for path in rng.sample(self.pages.files["val"], PAGES_TO_PREDICT)]
        watch = Stopwatch(self._service)
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(self.client.detect, bodies))
        alone = self.client.detect(bodies[0])
        seconds = watch.read()
        self.findings += [f"the service said {each.status}" for each in [*answers, alone] if each.status != 200]
        self._check_answer(alone.body, bodies[0])
        self._disturb(rng)
        return len(bodies) + 1, *seconds

    def _check_answer(self, answer: bytes, page: bytes) -> None:
        """Beside that of the detector here. Alone: in a batch with others, a model rounds differently."""
        expected = json.dumps({"pages": [self._detector(page).to_dict()]}).encode()
        self.compared.samples += 1
        try:
            check_words(answer, expected)
        except (WrongSampleError, LookupError, ValueError) as error:
            self.compared.wrong += 1
            self.findings.append(f"an answer of the service: {error}")

    def _disturb(self, rng: Random) -> None:
        """What a service must refuse, and a client that dies."""
        refused = self.client.detect(rng.randbytes(rng.randrange(1, 100_000)))
        if refused.status not in REFUSALS:
            self.findings.append(f"the service said {refused.status} to garbage")
        connection = self.client.begin_upload(10_000, rng.randbytes(rng.randrange(1, 9_000)))
        if rng.random() < 0.5:
            # A reset, as of a client that died, not an orderly end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        self.counts["cut uploads"] += 1
