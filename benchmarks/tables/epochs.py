"""Whole epochs against the plain reference: cold, cached, augmented, and while a consumer works.

The reference is Pillow, Albumentations, maps in NumPy and torch's DataLoader, with the same pages in the same order,
the same number of workers and the same chances. All take turns in one run, and the fastest round of each counts.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Cell, Data, Figure, Place, Row, benchmark, fastest, figure, interleave, times
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
from ocr.loader import Loader
from ocr.pipeline.targets import Targets

STEP_SECONDS = 0.02
SHORT = r"^(first v|later validation epochs, |training|waiting)"
# Name, the contender of the reference, GlyphFeed's, and at least how many times as fast it should be.
COMPARED = (
    ("first validation epoch, cold, filling the cache", "cold", "cold", 5),
    ("- with the reference's pixels: decode.scaled=off", "cold", "cold, exact", None),
    ("later validation epochs, against no cache", "cold", "cached", 40),
    ("later validation epochs, against its tensor cache", "cached", "cached", 4),
    ("training epoch with augmentation, cache warm", "training", "training", 6),
)


@benchmark(
    "epochs",
    table=[
        "results#epochs",
        Place("README#epochs", SHORT, ("against", "float")),
        Place("preprocessing#epochs", SHORT, ("against", "float")),
    ],
    rounds=4,
)
def epochs(data: Data) -> Iterator[Row | str]:
    """Epochs against Pillow, Albumentations, NumPy maps and torch's DataLoader."""
    # The reference comes first, so that its workers are forked before threads get busy.
    plain, kept = reference(data.receipts), reference(data.receipts, keep_items=True)
    training, transfer, caches = reference_training(data.receipts), Transfer(), data.work_folder / "caches"
    memory = 2 * sum(transfer(batch) for batch in plain)
    contenders: dict[str, Callable[[], float]] = {
        "reference, cold": lambda: uncached_epoch(plain, memory),
        "reference, cached": lambda: quick_epoch(kept, transfer),
        "reference, waiting": lambda: waiting_percent(kept),
        "reference, training": lambda: epoch_seconds(training),
    }
    for form in FORMS:
        contenders |= contenders_of(form, data.receipts, caches, memory, transfer)
    told = interleave(contenders, data.rounds)
    best, counts = fastest(told), [len(pages(data.receipts, split)) for split in ("val", "train")]
    caption = (
        f"Epochs of {counts[0]} pages to validate and {counts[1]} to train on, {SIZE}x{SIZE}, batch size {BATCH}, "
        f"{WORKERS} workers, fastest of {data.rounds} rounds. float: normalised images, as the reference's; uint8: "
        "left to the device"
    )
    for name, theirs, ours, goal in COMPARED:
        usual = best[f"reference, {theirs}"]
        cells: dict[str, Cell] = {"against": str(Figure(usual, "s"))}
        yield Row(name, cells | {form: times(usual, best[f"{form}, {ours}"], goal) for form in FORMS}, caption)
    waits: dict[str, Cell] = {"against": str(Figure(median(told["reference, waiting"]), " %"))}
    waits |= {form: figure(median(told[f"{form}, waiting"]), " %", at_most=1) for form in FORMS}
    yield Row(f"waiting of a consumer of {STEP_SECONDS * 1e3:.0f} ms per batch", waits, caption)
    exact = pages(data.receipts, form="float", image_loading_config={"scaled": "off"}, targets=Targets(min_text_size=0))
    yield f"With decode.scaled=off, {compare_batches(kept, Loader(exact, BATCH, WORKERS))}."


def cached(folder: Path, form: str, caches: Path, split: str = "val", **settings: Any) -> Loader:
    """Batches from a cache."""
    training = {"shuffle": True, "drop_last": True} if split == "train" else {}
    dataset = pages(folder, split, form, cache="auto", cache_folder=caches, **settings)
    return Loader(dataset, min(BATCH, len(dataset)), WORKERS, **training)


def contenders_of(
    form: str, folder: Path, caches: Path, memory: int, transfer: Transfer
) -> dict[str, Callable[[], float]]:
    """GlyphFeed's epochs with images of this form; the first round, which is not measured, fills the cache."""
    warm, augmented = cached(folder, form, caches), cached(folder, form, caches, "train")

    def cold(**settings: Any) -> float:
        """An epoch that fills its own cache, with this much memory available."""
        own = Path(tempfile.mkdtemp(dir=caches.parent))
        try:
            loader = cached(folder, form, own, **settings)
            seconds = uncached_epoch(loader, memory)
            misses = loader.dataset.ledger.totals()["cache_misses"]
            assert misses == len(loader.dataset), "the cold epoch did not fill its cache"
            return seconds
        finally:
            shutil.rmtree(own)

    return {
        f"{form}, cold": cold,
        f"{form}, cold, exact": lambda: cold(image_loading_config={"scaled": "off"}),
        f"{form}, cached": lambda: quick_epoch(warm, transfer),
        f"{form}, waiting": lambda: waiting_percent(warm),
        f"{form}, training": lambda: epoch_seconds(augmented),
    }


def uncached_epoch(batches: Iterable[Any], memory: int) -> float:
    """An epoch with this much memory available."""
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
