"""Epochs from tar shards, raw and ready, against the folder and against the plain `webdataset` pipeline.

All give the same batches of uint8 pages and maps, without a cache, from files that lie in the machine's memory. The
`webdataset` pipeline does the same work with the same stages: the library reads the tar, torch's DataLoader runs it in
as many worker processes as the loader has threads.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import webdataset

from benchmarks.harness import Data, Figure, Place, Row, benchmark, fastest, figure, interleave
from benchmarks.loaders import BATCH, SIZE, WORKERS, epoch_seconds, pages
from ocr.datasets import OCRWebDataset
from ocr.loader import Loader
from ocr.pipeline.batch import Item, collate, to_item
from ocr.pipeline.dense import DensePage, from_json, read_claimed_size, read_polygons
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets
from ocr.shards.index import PAGE, image_extension
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings

COUNT = 2 * WORKERS
KINDS: dict[str, dict[str, Any]] = {"raw shards": {}, "ready shards": {"ready": True}}
GOALS = (
    ("raw shards", "folder", 0.91),
    ("raw shards", "webdataset, raw", 1),
    ("ready shards", "raw shards", 5),
    ("ready shards", "webdataset, ready", 1),
)
"""A contender, what it is compared with, and how many times as fast it should be."""


@benchmark("shards", table=Place("scale#shards", caption="Epochs"), rounds=9)
def shards(data: Data) -> Iterator[Row]:
    """Epochs from shards, against the folder and `webdataset`."""
    dataset = pages(data.receipts)
    written = {name: write(dataset, data.work_folder, name) for name in KINDS}
    patterns = {name: f"{data.work_folder}/{name.replace(' ', '-')}/val-*.tar" for name in KINDS}
    raw, ready = partial(from_raw, dataset), partial(from_ready, dataset.targets)
    # Its workers are forked before threads get busy.
    loaders: dict[str, Iterable[Any]] = {
        "webdataset, raw": plain_webdataset(patterns["raw shards"], raw),
        "webdataset, ready": plain_webdataset(patterns["ready shards"], ready),
        "folder": Loader(dataset, BATCH, WORKERS),
    }
    for name, pattern in patterns.items():
        loaders[name] = Loader(OCRWebDataset(pattern, dataset.transform), BATCH, WORKERS)
    check_same(loaders)
    epochs: dict[str, Callable[[], float]] = {name: partial(epoch_seconds, loader) for name, loader in loaders.items()}
    best = fastest(interleave(epochs, data.rounds))
    caption = f"Epochs of {len(dataset)} pages, {SIZE}x{SIZE}, {WORKERS} workers, fastest of {data.rounds} rounds"
    speed = {name: Figure(len(dataset) / seconds, " pages/s") for name, seconds in best.items()}
    for name, other, goal in GOALS:
        ratio = figure(best[other] / best[name], " x", speed[name], at_least=goal)
        yield Row(f"{name} against {other}", {"against": str(speed[other]), "uint8": ratio}, caption)
    for name in best:
        stored, rate = written.get(name, (None, None))
        yield Row(name, {"read": speed[name], "a page": stored, "written": rate}, "All contenders, and their files")


def write(dataset: Any, folder: Path, kind: str) -> tuple[Figure, Figure]:
    """Shards of a kind: bytes of a page, and pages per second of writing."""
    out, per_shard = folder / kind.replace(" ", "-"), -(-len(dataset) // COUNT)
    start = time.perf_counter()
    with contextlib.redirect_stdout(StringIO()), contextlib.redirect_stderr(StringIO()):
        convert({"val": dataset}, str(out), ConvertSettings(samples_per_shard=per_shard, **KINDS[kind]))
    rate = len(dataset) / (time.perf_counter() - start)
    size = sum(path.stat().st_size for path in out.glob("*.tar")) / len(dataset)
    return Figure(size, "B"), Figure(rate, " pages/s")


def from_raw(dataset: Any, stored: dict[str, Any]) -> Item:
    """What the loader does with a raw sample, for a dictionary of `webdataset`."""
    noted = json.loads(stored["json"])
    encoded = stored[image_extension(stored) or ""]
    page = Sample(0, noted["filename"], "", read_polygons(noted), True, read_claimed_size(noted), encoded=encoded)
    return to_item(dataset.targets(dataset.path.fixed_part(page)), None, dataset.targets)


def from_ready(targets: Targets, stored: dict[str, Any]) -> Item:
    """What the loader does with a ready sample, for a dictionary of `webdataset`."""
    noted = json.loads(stored["json"])
    dense = DensePage(np.lib.format.read_array(BytesIO(stored[PAGE]), allow_pickle=False))
    page = Sample(0, noted["filename"], "", **from_json(noted), lazy=dense)
    return to_item(targets(page.unpacked()), None, targets)


def plain_webdataset(pattern: str, work: Callable[[dict[str, Any]], Item]) -> Any:
    """The library's own pipeline, as its documentation shows it."""
    urls = sorted(str(path) for path in Path(pattern).parent.glob(Path(pattern).name))
    dataset = webdataset.WebDataset(urls, shardshuffle=False).map(work)
    batches = dataset.batched(BATCH, collation_fn=lambda items: collate(items, Targets()))
    return webdataset.WebLoader(batches, batch_size=None, num_workers=WORKERS, persistent_workers=True)


def check_same(loaders: dict[str, Iterable[Any]]) -> None:
    """All contenders give all pages, and the same sums of their tensors."""
    sums = {}
    for name, batches in loaders.items():
        totals: dict[str, float] = {}
        for batch in batches:
            for key in ("images", "prob_maps", "thresh_maps"):
                totals[key] = totals.get(key, 0.0) + float(batch[key].double().sum())
            totals["pages"] = totals.get("pages", 0) + len(batch["image_filename"])
        sums[name] = {key: round(total, 1) for key, total in totals.items()}
    assert len({tuple(totals.values()) for totals in sums.values()}) == 1, sums
