"""Compile all kernels ahead of their first use, once per machine and with a progress bar."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from typing import Any

from filelock import FileLock, SoftFileLock
from numba import config, types
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ocr.geometry.kernels import boxes, crossings, dense, letters, maps, outlines, overlap, resample
from ocr.geometry.kernels.compiled import KernelCache
from ocr.system import usable_cores

Entry = tuple[Any, tuple[Any, ...]]
"""A kernel that is called from Python, and the types of its arguments."""


def warm_up(show: bool = True, *, only_loading: bool = False) -> int:
    """Load all kernels, or only the kernels of loading. Return how many this machine had not compiled yet:
    they are compiled first, in parallel."""
    entries = [entry for entry in ENTRIES if _is_for_loading(entry)] if only_loading else ENTRIES
    if config.DISABLE_JIT or all(signature in kernel.overloads for kernel, signature in entries):
        return 0
    missing = compile_missing(show, entries)
    for kernel, signature in entries:
        kernel.compile(signature)
    return missing


def compile_missing(show: bool = True, entries: list[Entry] | None = None) -> int:
    """Compile what this machine has not compiled yet, and load nothing: each kernel is loaded when it is called.

    To load all of them takes 0.5 s of CPU; finding boxes needs three.
    """
    entries = ENTRIES if entries is None else entries
    if config.DISABLE_JIT:
        return 0
    with _one_process_at_a_time():
        missing = [entry for entry in entries if not _is_kept(entry)]
        _compile(missing, show)
    return len(missing)


def _is_for_loading(entry: Entry) -> bool:
    return entry[0].__module__ in {module.__name__ for module in OF_LOADING}


def _compile(missing: list[Entry], show: bool) -> None:
    if not missing:
        return
    kept_on_disk = isinstance(missing[0][0]._cache, KernelCache)
    text = f"compiling {len(missing)} kernels, " + (
        "once per machine" if kept_on_disk else "at every start (no writable cache folder). Set NUMBA_CACHE_DIR"
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not show) as progress:
        task = progress.add_task(text, total=len(missing))
        for _ in _in_processes(missing) if kept_on_disk else _here(missing):
            progress.advance(task)


def _in_processes(missing: list[Entry]) -> Iterator[None]:
    """One step per kernel. Numba compiles under a global lock, so threads would not help."""
    # Half of the time goes into the boxes, whose kernels share their callees: they stay in one process.
    shares = [[entry for entry in missing if (entry[0] in BOXES) == in_boxes] for in_boxes in (True, False)]
    if usable_cores() == 1:
        shares = [missing]
    read_end, write_end = os.pipe()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = []
    for share in filter(None, shares):
        command = [sys.executable, "-m", __name__, *(str(ENTRIES.index(entry)) for entry in share)]
        # Whatever a child cannot compile is compiled by this process when it loads the kernels.
        with suppress(OSError):
            processes.append(subprocess.Popen(command, stdout=write_end, stderr=subprocess.DEVNULL, env=environment))
    os.close(write_end)
    with open(read_end, encoding="ascii") as finished:
        for _ in finished:
            yield
    for process in processes:
        process.wait()


def _here(entries: Sequence[Entry]) -> Iterator[None]:
    for kernel, signature in entries:
        kernel.compile(signature)
        yield


def _is_kept(entry: Entry) -> bool:
    kernel, signature = entry
    return isinstance(kernel._cache, KernelCache) and kernel._cache.holds(signature, kernel.targetctx.codegen())


@contextmanager
def _one_process_at_a_time() -> Iterator[None]:
    """Ranks that start together compile once: the others wait, and load."""
    folder = ENTRIES[0][0]._cache.cache_path
    if folder is None or FileLock is SoftFileLock:  # A soft lock outlives a process that is killed.
        yield
        return
    lock = FileLock(os.path.join(folder, "compile.lock"))
    # Not every file system has locks. Without one, kernels are compiled twice, and kept correctly.
    with suppress(OSError, NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _array(dtype: Any, dimensions: int, layout: str = "C", readonly: bool = False) -> Any:
    return types.Array(dtype, dimensions, layout, readonly=readonly)


def _entries() -> list[Entry]:
    f4, f8, i4, i8 = types.float32, types.float64, types.int32, types.int64
    page, points, rings, starts = _array(f4, 2), _array(i4, 2), _array(f8, 2), _array(i8, 1)
    pairs, areas, three = _array(i8, 2), _array(f8, 1), _array(f4, 1)
    mask, flags, marks = _array(types.boolean, 2), _array(types.boolean, 1), _array(types.int8, 2)
    text = _array(types.uint32, 1, readonly=True)
    entries: list[Entry] = [
        (boxes.polygons_from_outlines, (page, points, starts, f8, f8, f8, f8)),
        (boxes.quads_from_outlines, (page, points, starts, f8, f8, f8, f8)),
        (outlines.binarize, (page, f8, marks)),
        (outlines.trace_outlines, (marks,)),
        (crossings.self_crossings, (rings, starts)),
        (overlap.touching_pairs, (rings, rings)),
        (overlap.ring_areas, (rings, starts)),
        (overlap.shared_areas, (rings, starts, rings, starts, pairs, starts, starts)),
        (overlap.covered_points, (rings, starts, rings, starts, pairs, starts)),
        (letters.common_indices, (text, text)),
    ]
    # Pages and polygons from a cache are read-only; pages of a batch in CHW order are seen as strided HWC.
    for layout, readonly in product("CA", (False, True)):
        image = _array(types.uint8, 3, layout, readonly)
        normalize = maps.normalize_interleaved_to_chw if layout == "C" else maps.normalize_to_chw
        entries.append((normalize, (image, three, three, _array(f4, 3))))
    planes, colour = _array(types.uint8, 3), _array(types.uint8, 1)
    entries += [
        (dense.from_differences, (planes, i8, i8, colour, planes)),
        (dense.normalized_from_differences, (planes, i8, i8, colour, three, three, _array(f4, 3))),
    ]
    for readonly in (False, True):
        page_of_bytes = _array(types.uint8, 3, readonly=readonly)
        entries.append((dense.content_window, (page_of_bytes, colour)))
        entries.append((dense.to_differences, (page_of_bytes, i8, i8, planes)))
    # Pages that are sampled are passed as read-only: half as many kernels.
    sampled = (page_of_bytes, types.UniTuple(i8, 4), rings, types.UniTuple(i8, 2), i8, page)
    entries.append((resample.sample_page, (*sampled, planes)))
    entries.append((resample.sample_normalized_page, (*sampled, three, three, _array(f4, 3))))
    polygons = _array(f4, 2, readonly=True), _array(i4, 1, readonly=True)
    entries += [
        (maps.measure_outlines, polygons),
        (maps.find_upright_boxes, (points, polygons[1], areas, flags)),
        (maps.draw_maps, (*polygons, areas, pairs, f8, f8, types.boolean, page, page, mask, mask)),
    ]
    return entries


ENTRIES = _entries()
OF_LOADING = (crossings, dense, maps, resample)
"""Their kernels load in half the time of all: kernels of boxes and scores are as many."""
BOXES = (boxes.polygons_from_outlines, boxes.quads_from_outlines)

if __name__ == "__main__":
    for index in sys.argv[1:]:
        kernel, signature = ENTRIES[int(index)]
        kernel.compile(signature)
        print(index, flush=True)
