"""Whole epochs against the plain reference: cold, cached, augmented, in a second run, in two processes.

python benchmarks/epochs.py --data DIR        # DIR/images/{train,val}, DIR/jsons/{train,val}.json

The reference is Pillow, Albumentations, maps in NumPy and torch's DataLoader, with the same pages in the same order,
the same number of workers and the same chances. All take turns in one run, and the fastest round of each counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from omegaconf import OmegaConf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.epoch_process import (
    FORMS,
    Batch,
    Growth,
    Runs,
    Transfer,
    epoch_seconds,
    give_same_chances,
    read_in_processes,
    split_paths,
    validation_dataset,
)
from benchmarks.measure import Goal, console
from benchmarks.reference import Passes, ReferenceDataset, compare_batches, random_transform, reference_loader
from ocr.datasets import OCRDataset
from ocr.datasets.build import make
from ocr.loader import Loader
from ocr.loader.order import EpochBatches
from ocr.pipeline.image_header import read_header
from ocr.pipeline.targets import Targets

TRANSFORMS = Path(__file__).resolve().parent.parent / "configs" / "transforms" / "base.yaml"
QUICK_EPOCHS = 4
STEP_SECONDS = 0.02
AS_FAST = 1.25
"""Repetitions of a cached epoch, to show their spread."""
Rounds = dict[str, list[float]]


class Sizes(NamedTuple):
    """Bytes of the tensors of an epoch and of a batch, and of the cache that holds them."""

    epoch: int
    batch: int
    cache: int


@dataclass(frozen=True)
class Course:
    """The pages, and how they are read."""

    data: Path
    split: str
    train_split: str
    size: int
    batch_size: int
    workers: int
    caches: Path

    def reference(self, **settings: Any) -> Iterable[Batch]:
        """Validation batches of the reference."""
        dataset = ReferenceDataset(*split_paths(self.data, self.split), self.size, **settings)
        return reference_loader(dataset, self.workers, batch_size=self.batch_size)

    def reference_training(self) -> Iterable[Batch]:
        """Training batches of the reference; every pass is the next epoch."""
        paths = split_paths(self.data, self.train_split)
        dataset = ReferenceDataset(*paths, transform=random_transform(self.size))
        batches = EpochBatches(len(dataset), self.batch_size, shuffle=True, drop_last=True)
        loader = reference_loader(dataset, self.workers, batch_sampler=batches)
        return Passes(loader, batches)

    def validation(self, form: str, folder: Path | None = None, **settings: Any) -> Loader:
        """Our validation batches, from the persistent cache unless another folder is given."""
        settings = {"cache": "auto", "cache_folder": folder or self.caches} | settings
        return self.load(validation_dataset(self.data, self.split, self.size, form, **settings))

    def training(self, form: str, **settings: Any) -> Loader:
        """Our training batches, with the augmentation of the config."""
        config = OmegaConf.create({"transforms": OmegaConf.load(TRANSFORMS)})
        config.transforms.size, config.transforms.normalize = self.size, FORMS[form]
        # The reference knows squares only: both make the same pixels.
        config.transforms.letterbox.shape = "square"
        transform = make(config.transforms.train_transform, "transforms.train_transform")
        paths = split_paths(self.data, self.train_split)
        settings = {"cache": "auto", "cache_folder": self.caches} | settings
        dataset = OCRDataset(*paths, transform, use_stored_maps=False, **settings)
        return self.load(dataset, shuffle=True, drop_last=True)

    def load(self, dataset: OCRDataset, **settings: Any) -> Loader:
        """Batches made by threads."""
        return Loader(dataset, self.batch_size, self.workers, **settings)


def cold_epoch(course: Course, form: str, memory: int, **decode: str) -> float:
    """An epoch that fills its own cache, with this much memory available."""
    folder = Path(tempfile.mkdtemp(dir=course.caches))
    try:
        loader = course.validation(form, folder, image_loading_config=decode)
        measure.touch_memory(memory)
        seconds = epoch_seconds(loader)
        assert loader.dataset.cache.covered == 1, "the cold epoch did not fill its cache"
        return seconds
    finally:
        shutil.rmtree(folder)


def uncached_epoch(batches: Iterable[Batch], memory: int) -> float:
    """An epoch of the reference, with the same memory available."""
    measure.touch_memory(memory)
    return epoch_seconds(batches)


def quick_epoch(batches: Iterable[Any], consume: Callable[[Batch], object] | None = None) -> float:
    """The fastest of a few very short epochs."""
    return min(epoch_seconds(batches, consume) for _ in range(QUICK_EPOCHS))


def contenders(course: Course, cached: Iterable[Batch], sizes: dict[str, Sizes]) -> dict[str, Callable[[], float]]:
    """Everything that takes turns; the reference first, so that its workers are forked before threads get busy."""
    plain, training, transfer = course.reference(), course.reference_training(), Transfer()
    runs: dict[str, Callable[[], float]] = {
        "reference": lambda: uncached_epoch(plain, 2 * sizes["float"].epoch),
        "reference, cached": lambda: quick_epoch(cached),
        "reference, cached, copied": lambda: quick_epoch(cached, transfer),
        "reference, waiting": lambda: measure.waiting_percent(cached, STEP_SECONDS, QUICK_EPOCHS),
        "reference, training": lambda: epoch_seconds(training),
    }
    for form in FORMS:
        runs |= _contenders_of(form, course, transfer, sizes[form])
    return runs


def _contenders_of(form: str, course: Course, transfer: Transfer, sizes: Sizes) -> dict[str, Callable[[], float]]:
    warm, augmented = course.validation(form), course.training(form)
    memory, target = (np.ones(size, dtype=np.uint8) for size in (sizes.epoch, sizes.batch))
    return {
        f"{form}, cold": lambda: cold_epoch(course, form, 2 * sizes.epoch),
        f"{form}, cold, exact": lambda: cold_epoch(course, form, 2 * sizes.epoch, scaled="off"),
        f"{form}, cached": lambda: quick_epoch(warm),
        f"{form}, cached, copied": lambda: quick_epoch(warm, transfer),
        f"{form}, copy": lambda: min(measure.copy_seconds(memory, target) for _ in range(QUICK_EPOCHS)),
        f"{form}, waiting": lambda: measure.waiting_percent(warm, STEP_SECONDS, QUICK_EPOCHS),
        f"{form}, training": lambda: epoch_seconds(augmented),
    }


def fill_cache(course: Course, form: str) -> Sizes:
    """Fill the persistent cache; nothing of it stays mapped here."""
    loader, transfer = course.validation(form), Transfer()
    copied = [transfer(batch) for batch in loader if batch]
    return Sizes(sum(copied), max(copied), loader.dataset.cache.store().used_bytes)


def compare_rounds(rounds: Rounds) -> list[Goal]:
    """Ratios of the contenders."""
    best = {name: min(figures) for name, figures in rounds.items()}

    def faster(name: str, baseline: str, contender: str, target: float | None = None) -> Goal:
        ours = [best[f"{form}, {contender}"] for form in FORMS]
        ratios = [best[baseline] / own for own in ours]
        return Goal(name, in_seconds(best[baseline]), list(map(in_seconds, ours)), ratios, target)

    copied, copies = ([best[f"{form}, {name}"] for form in FORMS] for name in ("cached, copied", "copy"))
    waits = [median(rounds[f"{form}, waiting"]) for form in FORMS]
    theirs = f"{median(rounds['reference, waiting']):.0f} %"
    return [
        faster("first validation epoch, cold, filling the cache", "reference", "cold", 5),
        faster("- with the reference's pixels: decode.scaled=off", "reference", "cold, exact"),
        faster("later validation epochs, against no cache", "reference", "cached", 100),
        faster("- every tensor copied out", "reference", "cached, copied"),
        faster("later validation epochs, against its tensor cache", "reference, cached", "cached", 20),
        faster("- every tensor copied out", "reference, cached, copied", "cached, copied"),
        Goal(
            "later validation epochs copied out, against copying as many bytes in memory",
            "\n".join(map(in_seconds, copies)),
            list(map(in_seconds, copied)),
            [own / copy for own, copy in zip(copied, copies, strict=True)],
            2,
            at_most=True,
        ),
        faster("training epoch with augmentation, cache warm", "reference, training", "training", 6),
        Goal("waiting of a consumer of 20 ms per batch", theirs, ["", ""], waits, 1, at_most=True, unit=" %"),
    ]


def compare_processes(runs: Runs, growth: Growth, sizes: dict[str, Sizes]) -> list[Goal]:
    """What a second run and a second rank cost."""

    def beyond(name: str, more: str, less: str) -> Goal:
        alone, grown = ([f"{growth[form][what] / 1e6:.0f} MB" for form in FORMS] for what in (less, more))
        percent = [100 * (growth[form][more] - growth[form][less]) / sizes[form].cache for form in FORMS]
        return Goal(name, "\n".join(alone), grown, percent, 10, at_most=True, unit=" %")

    first = [median(run["epochs"][0] for run in runs[form]) for form in FORMS]
    later = [median(median(run["epochs"][1:]) for run in runs[form]) for form in FORMS]
    opening = [median(run["opening"] for run in runs[form]) for form in FORMS]
    return [
        beyond("memory of two processes beyond one, of the cache", "two", "one"),
        beyond("memory of worker threads beyond none, of the cache", "one", "no threads"),
        Goal(
            f"first epoch of a second run, copied out, against its later ones (opening: {in_seconds(max(opening))})",
            "\n".join(map(in_seconds, later)),
            list(map(in_seconds, first)),
            [own / usual for own, usual in zip(first, later, strict=True)],
            AS_FAST,
            at_most=True,
        ),
    ]


def in_seconds(seconds: float) -> str:
    """Readable."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.{0 if seconds >= 0.1 else 1}f} ms"


def show_limits(course: Course, copies: dict[str, float], sizes: dict[str, Sizes]) -> None:
    """What the hardware allows, and the sizes of the pages."""
    source = validation_dataset(course.data, course.split, course.size, "float").source
    encoded = [source.read(index).encoded for index in range(len(source))]
    headers = [read_header(data, "", 10**9) for data in encoded]
    megapixels = sorted(header.raw_size[0] * header.raw_size[1] / 1e6 for header in headers)
    decoded = min(measure.decode_seconds(encoded, headers, course.size, course.workers) for _ in range(3))
    console.print(
        f"{len(encoded)} validation pages of {megapixels[0]:.1f} to {megapixels[-1]:.1f} megapixels; {course.workers} "
        f"threads that only decode them take {in_seconds(decoded)}, {len(encoded) / decoded:.0f} pages/s"
    )
    for form, size in sizes.items():
        console.print(
            f"{form}: an epoch is {size.epoch / 1e6:.0f} MB of tensors, its cache {size.cache / 1e6:.0f} MB; "
            f"memory is copied at {size.epoch / copies[form] / 1e9:.1f} GB/s"
        )


def report(course: Course, rounds: int, json_file: Path | None) -> None:
    """Measure, and show it."""
    sizes = {form: fill_cache(course, form) for form in FORMS}
    gc.collect()
    options = {name: getattr(course, name) for name in ("data", "split", "size", "batch_size", "caches")}
    runs, growth = read_in_processes(min(rounds, 3), course.workers, **options)
    cached = course.reference(keep_items=True)
    told = measure.time_rounds(contenders(course, cached, sizes), rounds)
    show_limits(course, {form: min(told[f"{form}, copy"]) for form in FORMS}, sizes)
    exact = course.validation("float", image_loading_config={"scaled": "off"}, targets=Targets(min_text_size=0))
    console.print(f"with decode.scaled=off, {compare_batches(cached, exact)}")
    goals = compare_rounds(told) + compare_processes(runs, growth, sizes)
    counts = [len(ReferenceDataset(*split_paths(course.data, split))) for split in (course.split, course.train_split)]
    title = (
        f"Epochs of {counts[0]} pages to validate and {counts[1]} to train on, {course.size}x{course.size}, batches of "
        f"{course.batch_size}, {course.workers} workers, fastest of {rounds} rounds; against Pillow, Albumentations, "
        "NumPy maps and torch's DataLoader. float: normalised images, as the reference's; uint8: left to the device"
    )
    measure.show_goals(title, list(FORMS), goals)
    if json_file is not None:
        figures: dict[str, Any] = {"title": title, "rounds": told, "runs": runs, "growth_bytes": growth}
        figures["bytes"] = {form: size._asdict() for form, size in sizes.items()}
        figures["goals"] = [asdict(goal) for goal in goals]
        json_file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_data_options(parser, rounds=4)
    parser.add_argument("--train-split", default="train", help="split to train on (default: train)")
    for name, value, what in (
        ("size", 640, "side of the letterboxed page"),
        ("batch-size", 16, "pages per batch"),
        ("workers", 2, "threads, or processes of the reference"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what} (default: {value})")
    parser.add_argument("--json", type=Path, default=None, help="file to write all figures to")
    options = parser.parse_args()
    give_same_chances()
    data = measure.data_or_synthetic(options.data, train=32)
    with tempfile.TemporaryDirectory(prefix="glyphfeed-bench-") as caches:
        course = Course(
            data, options.split, options.train_split, options.size, options.batch_size, options.workers, Path(caches)
        )
        report(course, options.rounds, options.json)
    return 0


if __name__ == "__main__":
    measure.exit_with(main)
