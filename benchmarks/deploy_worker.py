"""One detector in a process of its own, for benchmarks/tables/deploy.py: reads a task as JSON, prints what it measured.

echo '{"model": "best.ckpt", "paths": ["a.jpg"], "cores": 1}' | python benchmarks/deploy_worker.py

With "rapidocr" for a model it needs that package alone, so that nothing of GlyphFeed counts as its memory or start.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Find = Callable[[str], list[Any]]
"""The polygons on the page of a file, in its pixels."""


def main() -> None:
    """Start-up is from here to the end of the first page; the other pages are timed one by one."""
    started = time.perf_counter()
    task = json.load(sys.stdin)
    # Before any library counts the cores.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: task["cores"]])
    os.environ["OMP_NUM_THREADS"] = str(task["cores"])
    open_model = open_rapidocr if task["model"] == "rapidocr" else open_detector
    find, files = open_model(task["model"], task["cores"])
    find(task["paths"][0])
    start_seconds = time.perf_counter() - started
    seconds, polygons = [], []
    for path in task["paths"]:
        begin = time.perf_counter()
        found = find(path)
        seconds.append(time.perf_counter() - begin)
        polygons.append(found)
    result = {
        "start_seconds": start_seconds,
        "seconds": seconds,
        "polygons": polygons,
        "peak_bytes": peak_bytes(),
        "file_bytes": sum(os.path.getsize(file) for file in files),
    }
    # Libraries print too: the result is the last line.
    print("\n" + json.dumps(result))


def peak_bytes() -> int:
    """The most memory that this program had at a time; getrusage also counts the process that started it."""
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def open_detector(path: str, cores: int) -> tuple[Find, list[str]]:
    """A checkpoint or what `glyphfeed export` wrote, and the files that it is made of."""
    from ocr import Detector

    detector = Detector.load(path, device="cpu", threads=cores)

    def find(file: str) -> list[Any]:
        return [polygon.tolist() for polygon in detector(file).polygons]

    files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    return find, files


def open_rapidocr(_: str, cores: int) -> tuple[Find, list[str]]:
    """RapidOCR's detector with its default settings: PP-OCRv6 small on ONNX Runtime."""
    import rapidocr

    threads = {f"EngineConfig.onnxruntime.{name}_op_num_threads": cores for name in ("intra", "inter")}
    engine = rapidocr.RapidOCR(params={"Global.log_level": "error", **threads})

    def find(file: str) -> list[Any]:
        boxes = engine(file, use_cls=False, use_rec=False).boxes
        return [] if boxes is None else [box.tolist() for box in boxes]

    models = os.path.join(os.path.dirname(rapidocr.__file__), "models")
    return find, [os.path.join(models, name) for name in os.listdir(models) if "_det_" in name]


if __name__ == "__main__":
    main()
