"""Models: damaged files and those of other programs, a service with damaged uploads, a training that is killed."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.reliability.campaign.cases import Case, Child, FindingError, difference, fault, whole_lines
from benchmarks.reliability.campaign.changes import change_bytes, damage
from benchmarks.reliability.campaign.pages import MAX_PIXELS, SETTINGS, encoded, images, noise
from ocr.deploy.detector import Detector
from ocr.deploy.model_file import NAMES, ModelInfo
from ocr.deploy.runtimes import open_model
from ocr.errors import GlyphFeedError
from ocr.models.detector import TextDetector
from ocr.models.load import load_detector, save_detector
from ocr.pipeline.device import Normalize

RUNTIMES = ("onnx", "onnxscript", "onnxruntime", "openvino")
SERVER = ("fastapi", "uvicorn", "pypdfium2", "prometheus_client")
PAGE = np.random.default_rng(0).integers(0, 256, (1, 64, 64, 3), dtype=np.uint8)
ALLOWED = {200, 408, 413, 415, 422, 429, 504}
REQUESTS, BATCH, PATIENCE_SECONDS = 3, 2, 300
EPOCHS = 3


def save_tiny(path: Path) -> Path:
    """A detector that was never trained."""
    save_detector(path, TextDetector(**SETTINGS.architecture).eval(), SETTINGS)
    return path


def every_format(folder: Path) -> Path:
    """The same detector in every format."""
    import torch

    from ocr.deploy import formats
    from ocr.deploy.graph import exportable
    from ocr.deploy.runtimes.tensorrt_runtime import pack

    detector, settings = load_detector(save_tiny(folder / "model.safetensors"))
    weights = {f"model.{name}": value for name, value in detector.state_dict().items()}
    stored = {"state_dict": weights, "architecture": settings.architecture, "detector": settings.to_dict()}
    torch.save(stored, folder / "model.ckpt")
    graph = exportable(detector, Normalize())
    onnx = formats.onnx_model(graph)
    formats.torchscript_saver(graph)(folder, ModelInfo(settings, "torchscript"))
    formats.onnx_saver(onnx)(folder, ModelInfo(settings, "onnx"))
    formats.openvino_saver(onnx, "fp32")(folder, ModelInfo(settings, "openvino"))
    (folder / NAMES["tensorrt"]).write_bytes(pack(ModelInfo(settings, "tensorrt"), b"an engine"))
    return folder


def try_model(case: Case, file: Path) -> None:
    """It is opened and runs a page, or an error names it."""
    try:
        maps = open_model(file, "cpu").runtime(PAGE)
    except GlyphFeedError as error:
        case.refused(error, file.name, file.stem)
        return
    if maps.shape != PAGE.shape[:3]:
        raise FindingError("crash", f"a map of {maps.shape}")


@fault("model-damage", "a model file: any damage", 60, every_format, *RUNTIMES)
def damaged(case: Case) -> None:
    models = Path(shutil.copytree(case.prepared, case.folder / "models"))
    file = case.rng.choice(sorted(models.iterdir()))
    damage(file, case.rng)
    try_model(case, file.with_suffix(".xml") if file.suffix == ".bin" else file)


# -- the service


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes


@dataclass(frozen=True)
class Client:
    """Speaks to one server."""

    port: int

    def ask(self, method: str, path: str, body: Any = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read())
        finally:
            connection.close()

    def detect(self, page: bytes, query: str = "") -> Answer:
        return self.ask("POST", f"/detect{query}", page)

    def at_work(self) -> float:
        """Requests that the service has not answered yet."""
        lines = self.ask("GET", "/metrics").body.decode().splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith("glyphfeed_requests_at_work ")))

    def cut_upload(self, length: int, sent: bytes, rng: Random) -> None:
        """Announce a body of some length, send another, and hang up: in order, or as a client that died."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)
        head = f"POST /detect HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n"
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
        if not connection.recv(100).startswith(b"HTTP/1.1 100 "):
            raise FindingError("crash", "the service does not wait for the body")
        connection.sendall(sent)
        if rng.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something that must happen has happened."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise FindingError("hang", "the service does not come to rest")
        time.sleep(0.005)


def check_words(found: bytes, expected: bytes) -> None:
    """The same boxes; in a batch with others, a model rounds differently."""
    pairs = [list(json.loads(body)["pages"][0]["words"].values()) for body in (found, expected)]
    if len(pairs[0]) != len(pairs[1]):
        raise FindingError("wrong sample", f"{len(pairs[0])} words instead of {len(pairs[1])}")
    for word, other in zip(*pairs, strict=True):
        if not np.allclose(word["points"], other["points"], atol=0.5) or abs(word["score"] - other["score"]) > 1e-3:
            raise FindingError("wrong sample", f"{word} instead of {other}")


class Served:
    """A server in this process, and the answer to a sound page."""

    def __init__(self, folder: Path) -> None:
        import uvicorn

        from ocr.deploy.service.app import build_app
        from ocr.deploy.service.command import listen
        from ocr.deploy.service.limits import Limits

        detector = Detector.load(save_tiny(folder / "tiny.safetensors"), threads=1, max_pixels=MAX_PIXELS)
        limits = Limits(bytes=300_000, pixels=MAX_PIXELS, pages=3, seconds=60, requests=REQUESTS)
        listener = listen("127.0.0.1", 0)
        app = build_app(detector, limits, batch_size=BATCH)
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False))
        self._thread = threading.Thread(target=self._server.run, args=([listener],))
        self._thread.start()
        self.client, self.page = Client(listener.getsockname()[1]), encoded("PNG", noise(80, 60))
        self.examples = [data for examples in images().values() for data in examples] + [encoded("PDF")]
        self.expected = self.client.detect(self.page).body

    def check(self, case: Case) -> None:
        """Nothing is at work any more, and a sound page has its right answer."""
        eventually(lambda: self.client.at_work() == 0)
        if self.client.ask("GET", "/health").status != 200:
            raise FindingError("crash", "the service is not healthy")
        check_words(self.client.detect(self.page).body, self.expected)
        case.counts["samples"] += 1

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()


@fault("upload-damage", "an upload to the service: any damage", 60, Served, *SERVER)
def damaged_upload(case: Case) -> None:
    data = change_bytes(case.rng.choice(case.prepared.examples), case.rng)
    queries = ("", "", "?pictures=true", "?box_thresh=0", "?box_thresh=2", "?box_thresh=nan", "?box_thresh=x")
    answer = case.prepared.client.detect(data, case.rng.choice(queries))
    if answer.status not in ALLOWED:
        raise FindingError("crash", f"status {answer.status}: {answer.body[:500]!r}")
    if answer.status != 200 and not json.loads(answer.body)["error"]["message"]:
        raise FindingError("crash", "an answer without a reason")
    case.counts["refused"] += answer.status != 200
    case.prepared.check(case)


@fault("upload-cut", "a connection to the service is cut", 30, Served, *SERVER)
def cut_upload(case: Case) -> None:
    page = case.prepared.page
    sent = page if case.rng.random() < 0.3 else page[: case.rng.randrange(len(page))]
    case.prepared.client.cut_upload(len(page), sent, case.rng)
    case.prepared.check(case)


# -- training


def train(data: Path, out: Path, log: Path, resume: Path | None = None) -> None:
    """A tiny training; every loss is logged at once."""
    import lightning
    from hydra import compose, initialize_config_dir

    from ocr.datasets.data_module import OCRDataModule
    from ocr.jobs.train import build_module, build_trainer

    class Logged(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            with log.open("a") as stream:
                told = [trainer.global_step, float(outputs["loss"]), list(batch["image_filename"])]
                stream.write(json.dumps(told) + "\n")

    loaders = [f"dataloaders.{name}_dataloader.num_workers=0" for name in ("train", "val", "test")]
    quiet = ["+trainer.enable_progress_bar=false", "callbacks.progress=null", "logger.tensorboard=null"]
    small = ["model=lite", "model.channels=32", "transforms.size=64", "dataloaders.train_dataloader.batch_size=2"]
    where = [f"dataset_base_path={data}", f"output_dir={out}", f"cache.folder={out}/cache"]
    device = ["trainer.accelerator=cpu", "trainer.devices=1", f"trainer.max_epochs={EPOCHS}"]
    with initialize_config_dir(str(Path(__file__).resolve().parents[3] / "configs"), version_base="1.3"):
        config = compose("train", [*where, *loaders, *quiet, *small, *device])
    lightning.seed_everything(config.seed, verbose=False)
    trainer = build_trainer(config)
    trainer.callbacks.append(Logged())
    trainer.fit(build_module(config), datamodule=OCRDataModule(config), ckpt_path=resume, weights_only=True)


def read_log(log: Path) -> dict[int, Any]:
    """Loss and pages of each step; a step that was repeated counts by its last line, half a line does not."""
    return {step: (loss, names) for step, loss, names in map(json.loads, whole_lines(log))}


def whole_training(folder: Path) -> dict[str, Any]:
    from ocr.tools.synth import synthesize

    synthesize(folder / "data", train=6, val=2, seed=3, megapixels=(0.1, 0.2), workers=1, show_progress=False)
    Child(Case(Random(), folder, None), train, folder / "data", folder / "whole", folder / "log").wait()
    return {"data": folder / "data", "losses": read_log(folder / "log")}


@fault("kill-train", "a training is killed, and resumed", 8, whole_training)
def kill_train(case: Case) -> None:
    """The resumed run has the losses of one without the break."""
    out, log, data, expected = case.folder / "out", case.folder / "log", *case.prepared.values()
    Child(case, train, data, out, log).kill_after(case.rng.uniform(0.5, 6.0))
    last = out / "checkpoints" / "last.ckpt"
    log.unlink(missing_ok=True)
    Child(case, train, data, out, log, last if last.exists() else None).wait()
    resumed = read_log(log)
    # Nothing is left to do where the last step was done before the kill.
    last_steps = {step: expected[step] for step in expected if step >= min(resumed, default=max(expected) + 1)}
    if where := difference(resumed, last_steps):
        raise FindingError("wrong sample", f"step and loss of the resumed run: {where}")
    case.counts.update(orders=1, samples=sum(len(names) for _, names in resumed.values()))
