"""One detector in a process of its own, for benchmarks/deploy.py: reads a task as JSON, prints what it measured.

echo '{"paths": ["a.jpg"], "cores": 1}' | python benchmarks/deploy_worker.py best.ckpt
echo '{"paths": ["a.jpg"], "cores": 1}' | python benchmarks/deploy_worker.py rapidocr     # needs nothing but rapidocr
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
    find, files = (open_rapidocr if sys.argv[1] == "rapidocr" else open_detector)(sys.argv[1], task["cores"])
    first = task["paths"][0]
    find(first)
    start_seconds = time.perf_counter() - started
    milliseconds, polygons = [], []
    for path in task["paths"]:
        begin = time.perf_counter()
        found = find(path)
        milliseconds.append(1000 * (time.perf_counter() - begin))
        polygons.append(found)
    result = {
        "start_seconds": start_seconds,
        "milliseconds": milliseconds,
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
    """A checkpoint or what `ocr export` wrote, and the files that it is made of."""
    from ocr import Detector

    detector = Detector.load(path, device="cpu", threads=cores)

    def find(file: str) -> list[Any]:
        return [polygon.tolist() for polygon in detector(file).polygons]

    files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    return find, files


def open_rapidocr(_: str, cores: int) -> tuple[Find, list[str]]:
    """RapidOCR's detector with the settings that it has by default: PP-OCRv6 small on ONNX Runtime."""
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
