"""Whole epochs against the plain reference: cold, cached, augmented, in a second run, in two processes.

The reference is Pillow, Albumentations, maps in NumPy and torch's DataLoader, with the same pages in the same order,
the same number of workers and the same chances. All take turns in one run, and the fastest round of each counts.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.harness import (
    Cell,
    Data,
    Figure,
    Place,
    Row,
    benchmark,
    cost,
    fastest,
    figure,
    fresh_process,
    interleave,
    times,
)
from benchmarks.loaders import (
    BATCH,
    FORMS,
    SIZE,
    WORKERS,
    Transfer,
    epoch_seconds,
    pages,
    quick_epoch,
    reference,
    reference_training,
    touch_memory,
)
from benchmarks.reference import compare_batches
from ocr.cache.store import open_store
from ocr.loader import Loader
from ocr.pipeline.targets import Targets

STEP_SECONDS = 0.02
Told = dict[str, list[float]]
EPOCHS = r"^(first v|later validation epochs, |training|waiting)"


@benchmark(
    "epochs",
    table=[
        "results#epochs",
        Place("README#epochs", EPOCHS, ("against", "float")),
        Place("preprocessing#epochs", EPOCHS, ("against", "float")),
    ],
    rounds=4,
)
def epochs(data: Data) -> Iterator[Row | str]:
    """Epochs against Pillow, Albumentations, NumPy maps and torch's DataLoader."""
    caches = data.work_folder / "caches"
    epoch_bytes = {form: fill_cache(data.receipts, form, caches) for form in FORMS}
    cache_bytes = open_store(caches).used_bytes()
    runs, growth = in_processes(data.receipts, caches, min(data.rounds, 3))
    kept, training = reference(data.receipts, keep_items=True), reference_training(data.receipts)
    # The reference comes first, so that its workers are forked before threads get busy.
    plain, transfer = reference(data.receipts), Transfer()
    contenders: dict[str, Callable[[], float]] = {
        "reference": lambda: uncached_epoch(plain, 2 * epoch_bytes["float"]),
        "reference, cached": lambda: quick_epoch(kept, transfer),
        "reference, waiting": lambda: waiting_percent(kept),
        "reference, training": lambda: epoch_seconds(training),
    }
    for form in FORMS:
        contenders |= contenders_of(form, data.receipts, caches, 2 * epoch_bytes[form], transfer)
    told = interleave(contenders, data.rounds)
    validated, trained = (len(pages(data.receipts, split)) for split in ("val", "train"))
    caption = (
        f"Epochs of {validated} pages to validate and {trained} to train on, {SIZE}x{SIZE}, batch size {BATCH}, "
        f"{WORKERS} workers, fastest of {data.rounds} rounds. float: normalised images, as the reference's; uint8: "
        "left to the device"
    )
    for name, against, cells in [*epoch_rows(told), *process_rows(runs, growth, cache_bytes)]:
        yield Row(name, {"against": against, **cells}, caption)
    exact = pages(data.receipts, form="float", image_loading_config={"scaled": "off"}, targets=Targets(min_text_size=0))
    yield f"With decode.scaled=off, {compare_batches(kept, Loader(exact, BATCH, WORKERS))}."


Line = tuple[str, str, dict[str, Cell]]


def epoch_rows(told: Told) -> Iterator[Line]:
    """Name, what it is compared with, and a figure for each form of the images."""
    best = fastest(told)

    def faster(name: str, baseline: str, contender: str, at_least: float | None = None) -> Line:
        ours = {form: times(best[baseline], best[f"{form}, {contender}"], at_least) for form in FORMS}
        return name, str(Figure(best[baseline], "s")), ours

    yield faster("first validation epoch, cold, filling the cache", "reference", "cold", 5)
    yield faster("- with the reference's pixels: decode.scaled=off", "reference", "cold, exact")
    yield faster("later validation epochs, against no cache", "reference", "cached", 40)
    yield faster("later validation epochs, against its tensor cache", "reference, cached", "cached", 4)
    yield faster("training epoch with augmentation, cache warm", "reference, training", "training", 6)
    waits = {form: figure(median(told[f"{form}, waiting"]), " %", at_most=1) for form in FORMS}
    theirs = str(Figure(median(told["reference, waiting"]), " %"))
    yield f"waiting of a consumer of {STEP_SECONDS * 1e3:.0f} ms per batch", theirs, waits


def process_rows(runs: dict[str, list[Seconds]], growth: dict[str, Growth], cache_bytes: int) -> Iterator[Line]:
    """What a second run and a second rank cost."""
    for name, more, less in (
        ("memory of two processes beyond one, of the cache", "two", "one"),
        ("memory of worker threads beyond none, of the cache", "one", "no threads"),
    ):
        alone = ", ".join(str(Figure(growth[form][less], "B")) for form in FORMS)
        beyond = {form: (growth[form][more] - growth[form][less]) / cache_bytes for form in FORMS}
        cells = {
            form: figure(100 * share, " %", Figure(growth[form][more], "B"), at_most=10)
            for form, share in beyond.items()
        }
        yield name, alone, cells
    first = {form: median(run.epochs[0] for run in runs[form]) for form in FORMS}
    later = {form: median(median(run.epochs[1:]) for run in runs[form]) for form in FORMS}
    opening = Figure(max(median(run.opening for run in runs[form]) for form in FORMS), "s")
    name = f"first epoch of a second run, against its later ones (opening: {opening})"
    against = ", ".join(str(Figure(seconds, "s")) for seconds in later.values())
    yield name, against, {form: cost(first[form], later[form], at_most=1.25) for form in FORMS}


# -- in this process


def cached(folder: Path, form: str, caches: Path, split: str = "val", **settings: Any) -> Loader:
    """Batches from a persistent cache."""
    training = {"shuffle": True, "drop_last": True} if split == "train" else {}
    dataset = pages(folder, split, form, cache="auto", cache_folder=caches, **settings)
    return Loader(dataset, min(BATCH, len(dataset)), WORKERS, **training)


def fill_cache(folder: Path, form: str, caches: Path) -> int:
    """Fill the persistent cache, which is one for all forms; returns the bytes of an epoch's tensors."""
    loader, transfer = cached(folder, form, caches), Transfer()
    return sum(transfer(batch) for batch in loader)


def contenders_of(
    form: str, folder: Path, caches: Path, memory: int, transfer: Transfer
) -> dict[str, Callable[[], float]]:
    """GlyphFeed's epochs with images of this form."""
    warm, augmented = cached(folder, form, caches), cached(folder, form, caches, "train")
    cold = partial(cold_epoch, folder, form, caches, memory)
    return {
        f"{form}, cold": cold,
        f"{form}, cold, exact": partial(cold, image_loading_config={"scaled": "off"}),
        f"{form}, cached": lambda: quick_epoch(warm, transfer),
        f"{form}, waiting": lambda: waiting_percent(warm),
        f"{form}, training": lambda: epoch_seconds(augmented),
    }


def cold_epoch(folder: Path, form: str, caches: Path, memory: int, **settings: Any) -> float:
    """An epoch that fills its own cache, with this much memory available."""
    own = Path(tempfile.mkdtemp(dir=caches.parent))
    try:
        loader = cached(folder, form, own, **settings)
        touch_memory(memory)
        seconds = epoch_seconds(loader)
        counts = loader.dataset.ledger.totals()
        assert counts["cache_misses"] == len(loader.dataset), "the cold epoch did not fill its cache"
        return seconds
    finally:
        shutil.rmtree(own)


def uncached_epoch(batches: Iterable[Any], memory: int) -> float:
    """An epoch of the reference, with the same memory available."""
    touch_memory(memory)
    return epoch_seconds(batches)


def waiting_percent(batches: Iterable[object], epochs: int = 4) -> float:
    """Share of its time that a consumer waits, including the start and end of each epoch."""
    waited, begun = 0.0, time.perf_counter()
    for _ in range(epochs):
        asked = time.perf_counter()
        iterator, batch = iter(batches), None
        while True:
            following = next(iterator, None)
            waited += time.perf_counter() - asked
            if following is None:
                break
            # As in a loop, the previous batch is released here: the consumer's time, not waiting.
            batch = following
            time.sleep(STEP_SECONDS)
            asked = time.perf_counter()
        del batch
    return 100 * waited / (time.perf_counter() - begun)


# -- in other processes

Growth = dict[str, int]
"""Bytes by which processes grow while they read a cache: one without threads, one, and two."""
_held: list[Any] = []
"""What a process holds on to until it is asked again."""


class Seconds(NamedTuple):
    """Of a second run."""

    opening: float
    epochs: list[float]


def in_processes(folder: Path, caches: Path, rounds: int) -> tuple[dict[str, list[Seconds]], dict[str, Growth]]:
    """The second runs of each form, and by how much processes grow by its cache."""
    runs: dict[str, list[Seconds]] = {form: [] for form in FORMS}
    growth: dict[str, Growth] = {}
    for turn in range(rounds):
        with fresh_process() as one, fresh_process() as two:
            pair = dict(zip(FORMS, (one, two), strict=True))
            for form, process in pair.items():
                process.submit(get_ready).result()
                runs[form].append(process.submit(second_run, folder, form, caches, WORKERS).result())
            if turn == rounds - 1:
                growth = {form: growth_of([one, two], partial(second_run, folder, form, caches)) for form in FORMS}
    return runs, growth


def growth_of(pair: list[ProcessPoolExecutor], read: Callable[[int], Seconds]) -> Growth:
    """By how much one process grows, with and without threads, and two together."""

    def grown(processes: list[ProcessPoolExecutor], workers: int) -> int:
        ask(pair, release)
        before = sum(ask(processes, pss_bytes))
        ask(processes, partial(read, workers))
        return sum(ask(processes, pss_bytes)) - before

    ask(pair, partial(read, WORKERS))  # What malloc takes the first time does not belong to the cache.
    return {"one": grown(pair[:1], WORKERS), "two": grown(pair, WORKERS), "no threads": grown(pair[:1], 0)}


def ask(processes: list[ProcessPoolExecutor], what: Callable[[], Any]) -> list[Any]:
    """All at the same time."""
    return [future.result() for future in [process.submit(what) for process in processes]]


def get_ready() -> None:
    """Allocate the memory of a batch, so that the first epoch does not include it."""
    page = torch.ones((BATCH, SIZE, SIZE, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    drawn = torch.ones((BATCH, 1, SIZE, SIZE))
    for images in (page, page.float().contiguous()):
        transfer({"images": images, "prob_maps": drawn, "thresh_maps": drawn})
    transfer({name: drawn.bool() for name in ("prob_masks", "thresh_masks")})


transfer = Transfer()


def second_run(folder: Path, form: str, caches: Path, workers: int) -> Seconds:
    """Open the cache, and read six epochs of it."""
    release()
    start = time.perf_counter()
    loader = Loader(pages(folder, form=form, cache="auto", cache_folder=caches), BATCH, workers)
    opening = time.perf_counter() - start
    _held.append(loader)
    return Seconds(opening, [epoch_seconds(loader, transfer) for _ in range(6)])


def release() -> None:
    import gc

    _held.clear()
    gc.collect()


def pss_bytes() -> int:
    """Memory of this process; shared memory is divided by the number of processes that share it."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
