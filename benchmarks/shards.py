"""Epochs from tar shards, raw, ready and dense, against the folder and against the plain `webdataset` pipeline.

python benchmarks/shards.py --data DIR        # DIR/images/val, DIR/jsons/val.json

All give the same batches of uint8 pages and maps, without a cache, from files that lie in the machine's memory. Ready
batches are handed out as they lie, so they are also timed with every tensor copied once. The `webdataset` pipeline does
the same work with the same stages: the library reads the tar, torch's DataLoader runs it in as many worker processes as
the loader has threads. All take turns in one run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.epoch_process import Transfer, epoch_seconds, give_same_chances, validation_dataset
from benchmarks.measure import Goal, console
from ocr.datasets import OCRWebDataset
from ocr.loader import Loader
from ocr.pipeline.batch import Item, collate, to_item
from ocr.pipeline.metadata import read_polygons
from ocr.pipeline.sample import Maps, Sample
from ocr.pipeline.targets import Targets
from ocr.shards.index import image_extension
from ocr.tools.convert.report import convert
from ocr.tools.convert.settings import ConvertSettings

WITHIN = 0.91
"""Within 10 %."""
KINDS: dict[str, dict[str, Any]] = {
    "raw shards": {},
    "ready shards": {"ready": True, "form": "raw"},
    "dense ready shards": {"ready": True, "form": "dense"},
    "ready batches": {"ready_batches": 0},
}


def write_shards(dataset: Any, folder: Path, shards: int, batch_size: int) -> dict[str, str]:
    """One pattern per kind of shards. The files themselves are shown, too."""
    patterns = {}
    table = Table("", "MB per page", "written, pages/s", title="Files of shards", title_justify="left")
    for name, options in KINDS.items():
        out = folder / name.replace(" ", "-")
        per_shard = -(-len(dataset) // shards)
        form: dict[str, Any] = {key: value or batch_size for key, value in options.items()}
        if "ready_batches" in form:
            per_shard = -(-per_shard // batch_size) * batch_size
        start = time.perf_counter()
        with contextlib.redirect_stdout(StringIO()), contextlib.redirect_stderr(StringIO()):
            convert({"val": dataset}, str(out), ConvertSettings(samples_per_shard=per_shard, **form))
        rate = len(dataset) / (time.perf_counter() - start)
        patterns[name] = str(out / "val-*.tar")
        stored = sum(path.stat().st_size for path in out.glob("*.tar"))
        table.add_row(name, f"{stored / len(dataset) / 1e6:.2f}", f"{rate:.0f}")
    console.print(table)
    return patterns


class RawWork:
    """What the loader does with a raw sample, for a dictionary of `webdataset`."""

    def __init__(self, dataset: Any) -> None:
        self.fixed, self.targets = replace(dataset.fixed_part, draw_maps=dataset.targets), dataset.targets

    def __call__(self, stored: dict[str, Any]) -> Item:
        members = {name: data for name, data in stored.items() if not name.startswith("__")}
        noted = json.loads(members["json"])
        size = noted["size"] and tuple(noted["size"])
        encoded = members[image_extension(members) or ""]
        page = Sample(0, noted["filename"], "", read_polygons(noted), claimed_size=size, encoded=encoded)
        return to_item(self.fixed(page), None, self.targets)


class ReadyWork:
    """What the loader does with a ready sample, for a dictionary of `webdataset`."""

    def __init__(self, targets: Targets) -> None:
        self.targets = targets

    def __call__(self, stored: dict[str, Any]) -> Item:
        noted = json.loads(stored["json"])
        arrays = {
            name: np.lib.format.read_array(BytesIO(stored[f"{name}.npy"]), allow_pickle=False)
            for name in ("image", *Maps._fields)
        }
        page = Sample(0, noted["filename"], "", read_polygons(noted), image=arrays.pop("image"), maps=Maps(**arrays))
        return to_item(page, None, self.targets)


def plain_webdataset(pattern: str, work: Callable[[dict[str, Any]], Item], batch_size: int, workers: int) -> Any:
    """The library's own pipeline, as its documentation shows it."""
    import webdataset

    urls = sorted(str(path) for path in Path(pattern).parent.glob(Path(pattern).name))
    dataset = webdataset.WebDataset(urls, shardshuffle=False).map(work)
    batches = dataset.batched(batch_size, collation_fn=lambda items: collate(items, Targets()))
    return webdataset.WebLoader(batches, batch_size=None, num_workers=workers, persistent_workers=workers > 0)


def goals(best: dict[str, float], pages: int) -> list[Goal]:
    """The ratios that shards are judged by."""
    show = lambda name: f"{pages / best[name]:.0f} pages/s"  # noqa: E731

    def against(text: str, name: str, other: str, target: float) -> Goal:
        return Goal(text, show(other), [show(name)], [best[other] / best[name]], target)

    return [
        against("raw shards against the folder", "raw shards", "folder", WITHIN),
        against("raw shards against plain webdataset", "raw shards", "webdataset, raw", 1),
        against("ready shards against raw ones", "ready shards", "raw shards", 5),
        against("dense ready shards against raw ones", "dense ready shards", "raw shards", 5),
        against("ready shards against plain webdataset", "ready shards", "webdataset, ready", 1),
        against("ready batches, copied, against raw shards", "ready batches, copied", "raw shards", 5),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_data_options(parser, rounds=7)
    parser.add_argument("--size", type=int, default=640, help="side of the letterboxed page (default: 640)")
    parser.add_argument("--batch-size", type=int, default=16, help="pages per batch (default: 16)")
    parser.add_argument("--workers", type=int, default=2, help="threads, or processes of webdataset (default: 2)")
    parser.add_argument("--json", type=Path, default=None, help="write the figures here too")
    options = parser.parse_args()
    give_same_chances()
    data = measure.data_or_synthetic(options.data)
    dataset = validation_dataset(data, options.split, options.size, "uint8")
    with tempfile.TemporaryDirectory(prefix="glyphfeed-bench-") as folder:
        best = race(dataset, Path(folder), options)
    pages = len(dataset)
    measure.show(f"epochs of {pages} pages at {options.size}", best, pages, "folder")
    reached = goals(best, pages)
    measure.show_goals("shards", ["uint8"], reached)
    if options.json:
        options.json.write_text(json.dumps({"pages": pages, "seconds": best}, indent=1) + "\n")
    return 0 if all(goal.is_met(0) for goal in reached) else 1


def race(dataset: Any, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of the fastest epoch of each contender."""
    batch_size, workers = options.batch_size, options.workers
    with console.status("writing shards"):
        patterns = write_shards(dataset, folder, 2 * max(1, workers), batch_size)
    loaders: dict[str, Iterable[Any]] = {"folder": Loader(dataset, batch_size, workers)}
    for name, pattern in patterns.items():
        loaders[name] = Loader(OCRWebDataset(pattern, dataset.transform), batch_size, workers)
    raw, ready = RawWork(dataset), ReadyWork(dataset.targets)
    loaders["webdataset, raw"] = plain_webdataset(patterns["raw shards"], raw, batch_size, workers)
    loaders["webdataset, ready"] = plain_webdataset(patterns["ready shards"], ready, batch_size, workers)
    check_same(loaders)
    epochs: dict[str, Callable[[], object]] = {name: partial(epoch_seconds, loader) for name, loader in loaders.items()}
    epochs["ready batches, copied"] = partial(epoch_seconds, loaders["ready batches"], Transfer())
    return measure.take_turns(epochs, options.rounds)


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


if __name__ == "__main__":
    measure.exit_with(main)
