"""Small pages, datasets that cache them, and functions that run in children of this process."""

import json
import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image
from sameness import assert_same

from ocr.cache.store import close_store
from ocr.datasets import DBTransforms, OCRDataset
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.stage import FixedStage

PAGES = 8
NONE, ALL = (0, PAGES, 0), (PAGES, 0, 0)
"""Hits, misses and invalid ones."""
STUCK_SECONDS = 300


def write_pages(folder: Path, number_of_pages: int = PAGES, seed: int = 0) -> Path:
    """Noise of different sizes and formats with two words a page."""
    rng = np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    pages = {}
    for number in range(number_of_pages):
        height, width = rng.integers(40, 90, 2).tolist()
        name = f"{number:02d}.{('jpg', 'bmp', 'png')[number % 3]}"
        Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(folder / "images" / name)
        words = {}
        for word, (x, y) in enumerate(rng.integers(2, 20, (2, 2)).tolist()):
            points = [[x, y], [x + 15, y], [x + 15, y + 12], [x, y + 12]]
            words[f"{word:04d}"] = {"points": points, "transcription": f"{word} of {number}", "illegibility": not word}
        pages[name] = {"words": words}
    write_annotation(folder, pages)
    return folder


def write_annotation(folder: Path, pages: dict[str, Any]) -> None:
    (folder / "pages.json").write_text(json.dumps({"images": pages}))


def read_annotation(folder: Path) -> dict[str, Any]:
    pages: dict[str, Any] = json.loads((folder / "pages.json").read_text())["images"]
    return pages


def repaint(page: Path) -> None:
    """Other pixels in as many bytes (of a BMP), and the file as old as it was."""
    before, encoded = page.stat(), bytearray(page.read_bytes())
    encoded[-90:-10] = bytes(255 - value for value in encoded[-90:-10])
    page.write_bytes(encoded)
    os.utime(page, ns=(before.st_atime_ns, before.st_mtime_ns))


def fixed(*stages: FixedStage, size: int = 64, normalize: str = "host") -> DBTransforms:
    return DBTransforms([Letterbox(size), *stages, Normalize()], normalize=normalize)


def open_pages(
    folder: Path | str, root: Path | str | None = None, transform: DBTransforms | None = None, **settings: Any
) -> OCRDataset:
    """The pages of a folder, cached where a folder is given for that."""
    folder = Path(folder)
    kept = {"cache": "auto", "cache_folder": root} if root is not None else {}
    return OCRDataset(folder / "images", folder / "pages.json", transform or fixed(), **kept | settings)


def items(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


def outcomes(dataset: OCRDataset) -> tuple[int, int, int]:
    """Hits, misses and invalid ones of the epoch so far."""
    totals = dataset.ledger.totals()
    return totals["cache_hits"], totals["cache_misses"], totals["cache_invalid"]


def read_right(folder: Path | str, root: Path | str, **settings: Any) -> tuple[int, int, int]:
    """Read all pages with a store that is opened for that; each is as without a cache; returns the outcomes."""
    dataset = open_pages(folder, root, **settings)
    assert_same(items(dataset), items(open_pages(folder, **settings | {"cache": "off"})))
    close_store(Path(root))
    return outcomes(dataset)


class Child:
    """A function that runs in a child of this process, so that nothing is imported again."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        # The threads of OpenCV are here: a child would wait for them for ever.
        threads = cv2.getNumThreads()
        cv2.setNumThreads(1)
        read_end, write_end = os.pipe()
        self.process = os.fork()
        if not self.process:
            _run(function, arguments, write_end)
        cv2.setNumThreads(threads)
        os.close(write_end)
        self._answer = read_end

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)

    def wait(self) -> dict[str, Any]:
        """What it returned, what it warned of, and its status."""
        with open(self._answer) as stream:
            answer: dict[str, Any] = json.loads(stream.read() or "{}")
        _, status = os.waitpid(self.process, 0)
        return {"status": os.waitstatus_to_exitcode(status)} | answer


def in_child(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What a function in a child returned and warned of."""
    answer = Child(function, *arguments).wait()
    assert answer["status"] == 0, answer
    return answer


def _run(function: Callable[..., Any], arguments: tuple[Any, ...], write_end: int) -> None:
    signal.alarm(STUCK_SECONDS)
    logged: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("ocr").addHandler(handler)
    status, answer = 0, {"warnings": logged}
    try:
        answer |= {"result": function(*arguments)}
    except BaseException:
        status, answer = 1, answer | {"error": traceback.format_exc()}
    with open(write_end, "w") as stream:
        stream.write(json.dumps(answer, default=str))
    os._exit(status)


@contextmanager
def in_threads(function: Callable[[], Any], count: int = 2) -> Iterator[None]:
    """Call a function in threads, again and again; what it raises is raised in the end."""
    is_over, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not is_over.is_set():
                function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    for error in errors:
        raise error
