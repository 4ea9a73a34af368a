"""A folder of synthetic pages: images first, each written atomically, then their annotation."""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import cv2

from ocr.atomic import replacing
from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.formats.annotation import Annotations, Page
from ocr.formats.native import write_native
from ocr.system import usable_cores
from ocr.tools.synth.kinds import UnitsOfPages, check_kind, check_units
from ocr.tools.synth.page import EXIF_SHARE, MEGAPIXELS, SPLITS, SynthPage, encode_page, render_page
from ocr.tools.terminal import progress_bar

# Left in the folder, so that only what was made here is ever overwritten.
RECIPE = "synth.json"
# Starting processes takes as long as rendering this many pages.
_SMALL_JOB = 4


@dataclass(frozen=True, slots=True)
class SynthSummary:
    """What was written, and how long it took."""

    out: Path
    pages: int
    words: int
    ignored: int
    curved: int
    turned: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Written:
    """One page on disk."""

    name: str
    page: Page
    orientation: int


def synthesize(
    out: Path | str,
    train: int = 64,
    val: int = 24,
    seed: int = 0,
    *,
    megapixels: tuple[float, float] = MEGAPIXELS,
    workers: int | None = None,
    exif_share: float = EXIF_SHARE,
    units: UnitsOfPages = "lines",
    kind: str = "receipt",
    show_progress: bool = True,
    overwrite: bool = False,
) -> SynthSummary:
    """Write `out/images/<split>/*.jpg` and `out/jsons/<split>.json`; the same arguments give the same bytes."""
    started = time.perf_counter()
    out, counts = Path(out), dict(zip(SPLITS, (train, val), strict=True))
    _check_numbers(counts, seed, megapixels, workers, exif_share)
    check_units(units)
    check_kind(kind)
    _claim(out, counts, overwrite=overwrite)
    settings: dict[str, Any] = {"megapixels": megapixels, "exif_share": exif_share, "units": units, "kind": kind}
    recipe = {"seed": seed, **counts, **settings}
    with replacing(out / RECIPE) as stream:
        stream.write((json.dumps(recipe, indent=2) + "\n").encode())
    tasks = [(split, index) for split in SPLITS for index in range(counts[split])]
    make = partial(_write_page, out, partial(render_page, seed, **settings))
    written: list[_Written] = []
    with progress_bar(show_progress) as progress:
        bar = progress.add_task("synthetic pages", total=len(tasks))
        for done in _run(make, tasks, usable_cores() if workers is None else workers):
            written.append(done)
            progress.advance(bar)
    _write_labels(out, counts, written)
    return _summary(out, written, time.perf_counter() - started)


def _write_labels(out: Path, counts: dict[str, int], written: list[_Written]) -> None:
    pages = iter(written)
    for split, count in counts.items():
        of_split = {done.name: done.page for done in islice(pages, count)}
        if of_split:
            path = out / "jsons" / f"{split}.json"
            write_native(Annotations(str(path), "native", of_split), path)


def _summary(out: Path, written: list[_Written], seconds: float) -> SynthSummary:
    words = [word for done in written for word in done.page.words]
    return SynthSummary(
        out=out,
        pages=len(written),
        words=len(words),
        ignored=sum(word.ignore for word in words),
        curved=sum(len(word.points) > 4 for word in words),
        turned=sum(done.orientation != 1 for done in written),
        seconds=seconds,
    )


def _write_page(out: Path, render: Callable[..., SynthPage], task: tuple[str, int]) -> _Written:
    split, index = task
    page = render(index, split=split)
    name = f"{index + 1:04d}.jpg"
    with replacing(out / "images" / split / name) as stream:
        stream.write(encode_page(page))
    return _Written(name, page.annotation, page.orientation)


def _run(make: Callable[[tuple[str, int]], _Written], tasks: list[tuple[str, int]], workers: int) -> Iterator[_Written]:
    """The pages in the order of the tasks, made by as many processes as are worth starting."""
    if workers <= 1 or len(tasks) <= _SMALL_JOB:
        yield from map(make, tasks)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(workers, len(tasks)), context, initializer=_start_worker)
    try:
        yield from pool.map(make, tasks)
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
    # One process per core: threads inside would only compete. The parent handles Ctrl-C.
    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _check_numbers(
    counts: dict[str, int], seed: int, megapixels: tuple[float, float], workers: int | None, exif_share: float
) -> None:
    for split, count in counts.items():
        check_integer(split, count)
    if not any(counts.values()):
        raise ConfigError(
            "train=0, val=0: nothing to make; set one of them to a number of pages", setting="train", value=0
        )
    check_integer("seed", seed)
    low, high = megapixels
    if not 0.05 <= low <= high <= 100:
        raise ConfigError(
            f"megapixels {low} to {high}. Put the smaller one first, both between 0.05 and 100",
            setting="megapixels",
            value=megapixels,
        )
    if workers is not None and workers < 0:
        raise ConfigError(
            f"--workers {workers}. Set 0 to work in this process, or a number of processes",
            setting="--workers",
            value=workers,
        )
    if not 0 <= exif_share <= 1:
        raise ConfigError(
            f"exif_share {exif_share}. Set a share between 0 and 1", setting="exif_share", value=exif_share
        )


def _claim(out: Path, counts: dict[str, int], *, overwrite: bool) -> None:
    """Make sure that nothing but an earlier result of this command is replaced."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file. Pass a folder to write to", path=out)
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / RECIPE).is_file():
        raise ConfigError(
            f"{out} holds files that were not made here (no {RECIPE} in it). Choose another folder", path=out
        )
    if not overwrite:
        raise ConfigError(
            f"{out} already holds synthetic pages. Add --overwrite, or choose another folder",
            setting="--overwrite",
            path=out,
        )
    for split in counts:
        # The annotation is removed first: until the new one exists, the images are not a dataset.
        (out / "jsons" / f"{split}.json").unlink(missing_ok=True)
        for image in (out / "images" / split).glob("[0-9]*.jpg"):
            image.unlink()
