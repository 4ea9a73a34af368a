"""Dense caches: bytes per page and speed, against raw caches, no cache, and the reference.

python benchmarks/density.py --data DIR       # DIR/images/{train,val}, DIR/jsons/{train,val}.json
python benchmarks/density.py --data DIR --codecs    # only the table of codecs, one thread

All take turns in one run, and the fastest round of each counts. For the first epoch of a second run the files of the
cache are dropped from memory, so that they come from the disk.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import cramjam
import cv2
import numpy as np
from numpy.typing import NDArray
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.epoch_process import FORMS, Transfer, epoch_seconds, give_same_chances, split_paths, validation_dataset
from benchmarks.epochs import Course, in_seconds, quick_epoch
from benchmarks.measure import Goal, console
from ocr.loader import Loader
from ocr.pipeline.dense import DensePage

TOUCHED_BYTES = 1 << 30
Page = NDArray[np.uint8]
Codec = tuple[Callable[[Page], bytes], Callable[[bytes, Page], object]]


def _general(compress: Callable[[Any], Any], decompress: Callable[[Any, Any], Any]) -> Codec:
    """A general codec over the pixels of the page without its padding."""
    return (
        lambda page: bytes(compress(page.reshape(-1).data)),
        lambda data, out: decompress(data, out.reshape(-1).data),
    )


def _image(extension: str, *parameters: int) -> Codec:
    """A lossless image format."""
    return (
        lambda page: cv2.imencode(extension, page, parameters)[1].tobytes(),
        lambda data, out: np.copyto(out, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)),
    )


def codecs() -> dict[str, Codec]:
    """What is compared: all lossless."""
    lz4, zstd = cramjam.lz4, cramjam.zstd
    return {
        "raw": (
            lambda page: page.tobytes(),
            lambda data, out: np.copyto(out.reshape(-1), np.frombuffer(data, np.uint8)),
        ),
        "dense: row differences, LZ4": (
            lambda page: DensePage.pack(page).data.tobytes(),
            lambda data, out: DensePage(np.frombuffer(data, np.uint8)).write(out),
        ),
        "LZ4": _general(lz4.compress_block, lz4.decompress_block_into),
        "Zstandard 1": _general(lambda data: zstd.compress(data, level=1), zstd.decompress_into),
        "Zstandard 3": _general(lambda data: zstd.compress(data, level=3), zstd.decompress_into),
        "Snappy": _general(cramjam.snappy.compress_raw, cramjam.snappy.decompress_raw_into),
        "PNG": _image(".png", cv2.IMWRITE_PNG_COMPRESSION, 1),
        "WebP": _image(".webp", cv2.IMWRITE_WEBP_QUALITY, 101),
    }


def show_codecs(course: Course, rounds: int) -> None:
    """Bytes, reading and writing of each codec, on pages without their padding."""
    dataset = validation_dataset(course.data, course.split, course.size, "uint8")
    pages = [_content(dataset.page(index).image) for index in range(min(len(dataset), 40))]
    table = Table(title=f"Codecs, {len(pages)} pages without padding, one thread", title_justify="left")
    for heading in ("codec", "kB per page", "read, ms", "write, ms"):
        table.add_column(heading, justify="left" if heading == "codec" else "right")
    for name, (pack, unpack) in codecs().items():
        packed = [pack(page) for page in pages]
        out = [np.empty_like(page) for page in pages]
        reading = _milliseconds([partial(unpack, *both) for both in zip(packed, out, strict=True)], rounds)
        writing = _milliseconds([partial(pack, page) for page in pages], 2)
        assert all(np.array_equal(a, b) for a, b in zip(out, pages, strict=True)), name
        size = sum(map(len, packed)) / len(pages) / 1e3
        table.add_row(name, f"{size:.0f}", f"{reading:.2f}", f"{writing:.2f}")
    console.print(table)


def _content(image: Page) -> Page:
    """A page without its padding."""
    used = image.any(axis=2)
    rows, columns = np.flatnonzero(used.any(axis=1)), np.flatnonzero(used.any(axis=0))
    return np.ascontiguousarray(image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])


def _milliseconds(calls: Sequence[Callable[[], object]], rounds: int) -> float:
    """Mean over pages of the fastest of several rounds."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[number] = min(best[number], time.perf_counter() - start)
    return 1e3 * sum(best) / len(best)


def first_epoch(course: Course, form: str, **settings: Any) -> float:
    """The first epoch of a new loader, whose batch buffers are new too; a cache is filled by it."""
    folder = Path(tempfile.mkdtemp(dir=course.caches))
    try:
        loader = course.validation(form, folder, **settings)
        measure.touch_memory(TOUCHED_BYTES)
        return epoch_seconds(loader)
    finally:
        shutil.rmtree(folder)


def second_run(course: Course, form: str, cache_form: str) -> float:
    """Opening and the first epoch of a second run, with the files of its cache on disk only."""
    drop_from_memory(course.caches)
    start = time.perf_counter()
    copy = Transfer()
    for batch in course.validation(form, cache_form=cache_form):
        copy(batch)
    return time.perf_counter() - start


def drop_from_memory(folder: Path) -> None:
    """Write everything to the disk and have the system forget it; pages that are still mapped only root can drop."""
    measure.drop_files(folder)
    with suppress(OSError):
        Path("/proc/sys/vm/drop_caches").write_text("1", encoding="ascii")


def training(course: Course, cache_form: str) -> Loader:
    """Augmented batches, with the config's stages, from a cache of this form."""
    loader = course.training("uint8", cache_form=cache_form)
    loader.dataset.fill_cache()
    return loader


def contenders(course: Course) -> dict[str, Callable[[], float]]:
    """Everything that takes turns; the reference first, so that its workers are forked before threads get busy."""
    plain, kept = course.reference(), course.reference(keep_items=True)
    runs: dict[str, Callable[[], float]] = {
        "reference": lambda: epoch_seconds(plain),
        "reference, cached": lambda: quick_epoch(kept),
    }
    for form in FORMS:
        warm = course.validation(form, cache_form="dense")
        runs |= {
            f"{form}, uncached": lambda form=form: first_epoch(course, form, cache="off"),
            f"{form}, filling": lambda form=form: first_epoch(course, form, cache_form="dense"),
            f"{form}, warm": lambda warm=warm: quick_epoch(warm),
            f"{form}, second run, raw": lambda form=form: second_run(course, form, "raw"),
            f"{form}, second run": lambda form=form: second_run(course, form, "dense"),
        }
    augmented = {cache_form: training(course, cache_form) for cache_form in ("raw", "dense")}
    return runs | {
        f"training, {cache_form}": lambda loader=loader: epoch_seconds(loader)
        for cache_form, loader in augmented.items()
    }


def goals(course: Course, told: dict[str, list[float]]) -> list[Goal]:
    """What the docs promise."""
    best = {name: min(seconds) for name, seconds in told.items()}

    def ratio(
        name: str, over: Sequence[str], under: Sequence[str], target: float | tuple[float, ...], at_most: bool
    ) -> Goal:
        times = [in_seconds(best[one]) for one in (under if at_most else over)]
        ours = [in_seconds(best[one]) for one in (over if at_most else under)]
        figures = [best[a] / best[b] for a, b in zip(over, under, strict=True)]
        return Goal(name, "\n".join(times), ours, figures, target, at_most)

    every = [f"{form}, %s" for form in FORMS]
    warm, uncached, filling, second, raw = (
        [form % name for form in every] for name in ("warm", "uncached", "filling", "second run", "second run, raw")
    )
    train = best["training, dense"] / best["training, raw"]
    jpeg = [path.stat().st_size for path in split_paths(course.data, course.split)[0].iterdir() if path.is_file()]
    kept = [_bytes_per_page(course, form, "dense") for form in FORMS]
    against = [_bytes_per_page(course, form, "raw") for form in FORMS]
    return [
        Goal("kB per validation page, dense", "", ["", ""], [size / 1e3 for size in kept], 250, True, " kB"),
        Goal(
            "- of the files it replaces",
            f"{np.mean(jpeg) / 1e3:.0f} kB",
            ["", ""],
            [s / np.mean(jpeg) for s in kept],
            1,
            True,
        ),
        Goal("- less than raw", "", ["", ""], [a / b for a, b in zip(against, kept, strict=True)], 20),
        ratio("warm epoch, every tensor written, against no cache", ["reference"] * 2, warm, (40, 60), False),
        ratio("- against its own tensor cache", ["reference, cached"] * 2, warm, (4, 6), False),
        ratio("cold epoch that fills the cache, against an uncached one", filling, uncached, 1.15, True),
        ratio("opening and first epoch of a second run, from the disk, against raw", raw, second, 5, False),
        Goal(
            "warm training epoch, against raw",
            in_seconds(best["training, raw"]),
            [in_seconds(best["training, dense"])] * 2,
            [train] * 2,
            1.1,
            True,
        ),
    ]


def _bytes_per_page(course: Course, form: str, cache_form: str) -> float:
    cache = course.validation(form, cache_form=cache_form).dataset.cache
    return cache.store().used_bytes / len(cache.source)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_data_options(parser, rounds=3)
    parser.add_argument("--train-split", default="train", help="split to train on (default: train)")
    parser.add_argument("--codecs", action="store_true", help="only compare codecs")
    options = parser.parse_args()
    give_same_chances()
    data = measure.data_or_synthetic(options.data, train=32)
    with tempfile.TemporaryDirectory(prefix="glyphfeed-bench-") as caches:
        course = Course(data, options.split, options.train_split, 640, 16, 2, Path(caches))
        show_codecs(course, options.rounds + 3)
        if not options.codecs:
            for form in FORMS:
                for cache_form in ("raw", "dense"):
                    course.validation(form, cache_form=cache_form).dataset.fill_cache()
            told = measure.time_rounds(contenders(course), options.rounds)
            title = f"Dense caches, 640x640, batches of 16, 2 workers, fastest of {options.rounds} rounds"
            measure.show_goals(title, list(FORMS), goals(course, told))
    return 0


if __name__ == "__main__":
    measure.exit_with(main)
