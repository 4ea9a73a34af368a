"""All kernels are compiled ahead of their first use, so that nothing else waits for the compiler."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.dispatcher import Dispatcher

from ocr.geometry.kernels import boxes, crossings, dense, letters, maps, outlines, overlap, resample
from ocr.geometry.kernels.warm_up import ENTRIES, warm_up

# A loader; a second start; training; then a validation: pages through the cache, twice; maps; normalisation in both
# layouts; boxes; scores. One process for all of it: importing the package takes longer than the rest.
PROGRAM = """
import json, sys, torch
from ocr.datasets import DBTransforms, OCRDataset
from ocr.evaluation import BoxesFromMap, CLEvalMetric, HmeanIoU
from ocr.geometry.kernels.warm_up import ENTRIES, warm_up
from ocr.loader.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import RandomFlip

training, validation = (
    (f"{sys.argv[1]}/images/{split}", f"{sys.argv[1]}/jsons/{split}.json") for split in ("train", "val")
)
kernels = {kernel for kernel, _ in ENTRIES}


def loaded():
    return {kernel for kernel, signature in ENTRIES if signature in kernel.overloads}


def misses():
    return sum(kernel.stats.cache_misses.total() for kernel in kernels)


loader = Loader(OCRDataset(*validation, DBTransforms([Letterbox(64)])), batch_size=2)
before = loaded()
found = {
    "batches": len(list(loader)),
    "loaded by a loader": sorted({kernel.__module__.rpartition(".")[2] for kernel in before}),
    "loaded by its batches": sorted(map(str, loaded() - before)),
}
warm_up(show=False)
found |= {"compiled by a second start": warm_up(), "misses of a second start": misses()}
for cache, normalize in (("auto", "device"), ("auto", "host"), ("off", "device"), ("off", "host")):
    transform = DBTransforms([Letterbox(128), RandomFlip(p=1), Normalize()], normalize=normalize)
    for batch in Loader(OCRDataset(*training, transform, cache=cache), batch_size=2):
        pass
dataset = OCRDataset(*validation, DBTransforms([Letterbox(128)]))
for _ in range(2):
    for batch in Loader(dataset, batch_size=2):
        for images in (batch["images"], batch["images"].contiguous(memory_format=torch.channels_last)):
            Normalize().on_device(images.to(torch.uint8))
        for use_polygon in (True, False):
            for page in batch["prob_maps"]:
                boxes = BoxesFromMap(use_polygon=use_polygon, min_size=1)(page)
                HmeanIoU().update(boxes.polygons, boxes.polygons)
                CLEvalMetric().update(boxes.polygons, boxes.polygons)
found["compiled late"] = sorted(f"{k.__name__}{s}" for k in kernels for s in k.signatures if (k, s) not in ENTRIES)
found["misses"] = misses()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def started(synthetic: Path) -> subprocess.CompletedProcess[str]:
    """A new process, in which no other test has used a kernel; all are on disk."""
    warm_up(show=False)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(synthetic)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=True)


def test_training_and_validation_meet_no_kernel_that_was_not_compiled_before_it(
    started: subprocess.CompletedProcess[str],
) -> None:
    found = json.loads(started.stdout)
    assert (found["compiled late"], found["misses"]) == ([], 0)


def test_a_second_start_shows_nothing_and_compiles_nothing(started: subprocess.CompletedProcess[str]) -> None:
    found = json.loads(started.stdout)
    assert started.stderr == ""
    assert (found["compiled by a second start"], found["misses of a second start"]) == (0, 0)


def test_a_loader_loads_no_kernel_of_boxes_or_scores(started: subprocess.CompletedProcess[str]) -> None:
    found = json.loads(started.stdout)
    assert found["loaded by a loader"] == ["crossings", "dense", "maps", "resample"]
    assert (found["loaded by its batches"], found["batches"]) == ([], 3)


def test_every_kernel_that_other_rooms_import_is_compiled_ahead() -> None:
    ahead = {kernel for kernel, _ in ENTRIES}
    own = {
        value
        for module in (boxes, crossings, dense, letters, maps, overlap, resample)
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__ and not name.startswith("_")
    }
    assert own | {outlines.binarize, outlines.trace_outlines} == ahead
