"""Small pages, and children of this process that cache them at the same time, or are killed while they do."""

import gc
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image
from sameness import assert_same

from ocr.datasets import DBTransforms, OCRDataset
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import FixedStage

SIDE = 64
STUCK_SECONDS = 600
_opened = count(1)
form = "auto"
"""The form of the caches that tests open; here and in children."""


def write_pages(folder: Path, number_of_pages: int = 8, seed: int = 0) -> Path:
    """Noise of different sizes and formats with two words a page; the last has metadata beyond its slot."""
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    pages = {}
    for number in range(number_of_pages):
        height, width = rng.integers(40, 90, 2).tolist()
        name = f"{number:02d}.{('jpg', 'bmp', 'png')[number % 3]}"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / "images" / name)
        words = {}
        for word, (x, y) in enumerate(rng.integers(2, 20, (2, 2)).tolist()):
            box = [[x, y], [x + 15, y], [x + 15, y + 12], [x, y + 12]]
            words[f"{word:04d}"] = {
                "points": box,
                "transcription": f"word {word} of {number}",
                "illegibility": not word,
            }
        pages[name] = {"words": words}
    words["0001"]["transcription"] = "long " * 14_000
    write_annotation(folder, pages)
    return folder


def write_annotation(folder: Path, pages: dict[str, Any]) -> None:
    (folder / "pages.json").write_text(json.dumps({"images": pages}))


def read_annotation(folder: Path) -> dict[str, Any]:
    pages: dict[str, Any] = json.loads((folder / "pages.json").read_text())["images"]
    return pages


def rename_a_page(pages: Path) -> Path:
    """Another name for one page, which so becomes the last."""
    annotation = read_annotation(pages)
    annotation["another.png"] = annotation.pop("02.png")
    write_annotation(pages, annotation)
    (pages / "images" / "02.png").rename(pages / "images" / "another.png")
    return pages


def repaint(page: Path) -> None:
    """Other pixels in as many bytes (of a BMP), and the file as old as it was."""
    before, encoded = page.stat(), bytearray(page.read_bytes())
    encoded[-90:-10] = bytes(255 - value for value in encoded[-90:-10])
    page.write_bytes(encoded)
    os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns))


def fixed(*stages: FixedStage, normalize: str = "host", size: int = SIDE) -> DBTransforms:
    return DBTransforms([Letterbox(size), *stages, Normalize()], normalize=normalize)


def open_pages(
    folder: Path | str, kept_in: Path | str | None = None, transform: DBTransforms | None = None, **settings: Any
) -> OCRDataset:
    """The pages of a folder, with everything cached where a folder is given for that."""
    if next(_opened) % 50 == 0:
        gc.collect()  # A dataset has files open, and a cycle of references in it.
    folder = Path(folder)
    if kept_in is not None:
        settings = {"cache": "auto", "cache_folder": kept_in, "cache_form": form} | settings
    return OCRDataset(folder / "images", folder / "pages.json", transform or fixed(), **settings)


def items(dataset: OCRDataset) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


def outcomes(dataset: OCRDataset) -> tuple[int, int, int]:
    """Hits, misses and invalid ones of the epoch so far."""
    totals = dataset.ledger.totals()
    return totals["cache_hits"], totals["cache_misses"], totals["cache_invalid"]


def read_right(folder: Path | str, kept_in: Path | str, expected: list[Any] | None = None, **settings: Any) -> Any:
    """Open anew, compare every sample with the uncached one, and tell hits, misses and invalid ones."""
    dataset = open_pages(folder, kept_in, **settings)
    uncached = {name: value for name, value in settings.items() if not name.startswith("cache")}
    assert_same(items(dataset), expected if expected is not None else items(open_pages(folder, **uncached)))
    return outcomes(dataset)


@dataclass(frozen=True)
class Counted(FixedStage):
    """Leaves the page as it is, and a line in a file for each time that it was made."""

    log: str
    seconds: float = 0.0

    def __call__(self, sample: Sample) -> Sample:
        descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{sample.filename}\n".encode())
        os.close(descriptor)
        time.sleep(self.seconds)
        return sample


class Worker:
    """Runs functions in children of this process, so that nothing is imported again."""

    def run(self, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
        """Run jobs at the same time; what they returned, warned of or failed with, and how they ended."""
        # Here, where its threads are: a child would wait for them for ever.
        threads = cv2.getNumThreads()
        cv2.setNumThreads(1)
        began = time.monotonic()
        children = [_fork(wanted) for wanted in jobs]
        cv2.setNumThreads(threads)
        kills = [(w["kill_after_seconds"], pid) for w, (pid, _) in zip(jobs, children, strict=True)]
        for seconds, pid in sorted(kill for kill in kills if kill[0] is not None):
            time.sleep(max(0.0, began + seconds - time.monotonic()))
            os.kill(pid, signal.SIGKILL)
        return [_outcome(*child) for child in children]

    def call(self, function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
        """Run one job that must come to its end."""
        (answer,) = self.run(job(function, **arguments))
        assert answer["status"] == 0, answer
        return answer


def worker() -> Worker:
    return Worker()


def job(function: Callable[..., Any], kill_after_seconds: float | None = None, **arguments: Any) -> dict[str, Any]:
    """A call in a child, where paths are texts."""
    texts = {name: str(value) if isinstance(value, Path) else value for name, value in arguments.items()}
    return {"function": function, "kill_after_seconds": kill_after_seconds, "arguments": texts}


def _fork(wanted: dict[str, Any]) -> tuple[int, int]:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    signal.alarm(STUCK_SECONDS)
    answer = _answer(wanted)
    with open(write_end, "w") as stream:
        stream.write(json.dumps(answer, default=str))
    os._exit(1 if "error" in answer else 0)


def _answer(wanted: dict[str, Any]) -> dict[str, Any]:
    sink = os.open(os.devnull, os.O_RDWR)
    os.dup2(sink, 0)
    os.dup2(sink, 1)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    logged: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("ocr").addHandler(handler)
    try:
        result = wanted["function"](**wanted["arguments"])
    except BaseException:
        return {"error": traceback.format_exc(), "warnings": logged}
    return {"result": result, "warnings": logged}


def _outcome(pid: int, read_end: int) -> dict[str, Any]:
    with open(read_end) as stream:
        answer: dict[str, Any] = json.loads(stream.read() or "{}")
    _, status = os.waitpid(pid, 0)
    return {"status": os.waitstatus_to_exitcode(status)} | answer
