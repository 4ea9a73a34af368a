"""All kernels are compiled ahead of their first use, so that nothing else waits for the compiler."""

import os
import subprocess
import sys
from pathlib import Path

from numba.core.dispatcher import Dispatcher

from ocr.geometry.kernels import boxes, crossings, dense, letters, maps, outlines, overlap, perspective, resample
from ocr.geometry.kernels.warm_up import ENTRIES

# Training; then a validation: pages through the cache, twice; maps; normalisation in both layouts; boxes; scores.
PROGRAM = """
import sys, torch
from ocr.datasets import DBTransforms, OCRDataset
from ocr.evaluation import BoxesFromMap, CLEvalMetric, HmeanIoU
from ocr.geometry.kernels.warm_up import ENTRIES, warm_up
from ocr.loader.loader import Loader
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import RandomFlip

warm_up()
for cache, normalize in (("prefix", "device"), ("prefix", "host"), ("off", "device"), ("off", "host")):
    transform = DBTransforms([Letterbox(128), RandomFlip(p=1), Normalize()], normalize=normalize)
    paths = sys.argv[1] + "/images/train", sys.argv[1] + "/jsons/train.json"
    for batch in Loader(OCRDataset(*paths, transform, cache=cache), batch_size=2):
        pass
dataset = OCRDataset(sys.argv[1] + "/images/val", sys.argv[1] + "/jsons/val.json", DBTransforms([Letterbox(128)]))
for _ in range(2):
    for batch in Loader(dataset, batch_size=2):
        for images in (batch["images"], batch["images"].contiguous(memory_format=torch.channels_last)):
            Normalize().on_device(images.to(torch.uint8))
        for use_polygon in (True, False):
            for page in batch["prob_maps"]:
                found = BoxesFromMap(use_polygon=use_polygon, min_size=1)(page)
                HmeanIoU().update(found.polygons, found.polygons)
                CLEvalMetric().update(found.polygons, found.polygons)
kernels = {kernel for kernel, _ in ENTRIES}
print(sorted(f"{k.__name__}{s}" for k in kernels for s in k.signatures if (k, s) not in ENTRIES))
print(sum(k.stats.cache_misses.total() for k in kernels))
"""


def test_training_and_validation_meet_no_kernel_that_was_not_compiled_before_it(synthetic: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, str(synthetic)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == ["[]", "0"]


def test_every_kernel_that_other_rooms_import_is_compiled_ahead() -> None:
    ahead = {kernel for kernel, _ in ENTRIES}
    own = {
        value
        for module in (boxes, crossings, dense, letters, maps, overlap, perspective, resample)
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__ and not name.startswith("_")
    }
    assert own | {outlines.binarize, outlines.trace_outlines} == ahead


def test_a_second_start_shows_nothing_and_compiles_nothing() -> None:
    program = (
        "from ocr.geometry.kernels.warm_up import ENTRIES, warm_up; warm_up(show=False); assert warm_up() == 0;"
        "print(sum(kernel.stats.cache_misses.total() for kernel, _ in ENTRIES))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_loader_loads_no_kernel_of_boxes_or_scores(synthetic: Path) -> None:
    program = (
        "import sys; from ocr import DBTransforms, Loader, OCRDataset; from ocr.pipeline.prefix import Letterbox;"
        "from ocr.geometry.kernels.warm_up import ENTRIES;"
        "paths = sys.argv[1] + '/images/val', sys.argv[1] + '/jsons/val.json';"
        "loader = Loader(OCRDataset(*paths, DBTransforms([Letterbox(64)])), batch_size=2);"
        "loaded = {k for k, s in ENTRIES if s in k.overloads}; batches = len(list(loader));"
        "print(sorted({k.__module__.rpartition('.')[2] for k in loaded}), batches,"
        " loaded == {k for k, s in ENTRIES if s in k.overloads})"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(synthetic)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    assert done.stdout == "['crossings', 'dense', 'maps', 'perspective', 'resample'] 3 True\n"
