"""Check every row and every checksum of a cache; damaged samples are removed, and rebuilt when next needed."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import track

from ocr.cache.folder import cache_root
from ocr.cache.row_format import ROW_BYTES
from ocr.cache.store import Store
from ocr.cache.store_folder import DamagedStoreError, read_about, remove_store
from ocr.pipeline.image_listing import walk_with_links
from ocr.pipeline.signature import file_signature
from ocr.tools.cache.inventory import find_caches
from ocr.tools.cache.report import PLAIN, print_list

THREADS = 4
"""Reading 1.7 GB from disk takes 0.6 s instead of 1.6 s; from memory 0.17 s instead of 0.09 s."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong with one cache, if anything."""

    name: str
    checked: int = 0
    files: tuple[str, ...] = ()
    samples: dict[int, str] = field(default_factory=dict)
    """Index of each damaged sample, and what is wrong with it."""
    cure: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether something is damaged and not repaired."""
        return bool(self.files or self.samples) and self.cure != REPAIRED


REPAIRED = "repaired: rebuilt when next needed"
_ADVICE = "never used, rebuilt when next needed; `ocr cache verify --repair` removes it now"


def verify(folder: Path | None, names: Sequence[str], repair: bool) -> int:
    """Check these caches, or all, with a progress bar; exit status 1 if something is wrong and not repaired."""
    root, bar, console = cache_root(folder), Console(stderr=True), Console()
    status = 0
    caches = find_caches(root, names)
    if not caches:
        print_list(folder)  # It says that there are none, and where.
    for store_folder, name in caches.items():
        found = _verify(store_folder, name, repair, bar)
        _print_findings(found, console)
        status |= found.is_wrong
    return status


def _print_findings(found: Findings, console: Console) -> None:
    if not found.files and not found.samples:
        console.print(f"{found.name}: {found.checked} samples, none damaged", **PLAIN)
        return
    damaged = f"{len(found.samples)} of {found.checked} samples are damaged"
    console.print(f"[red]{found.name}: {'cannot be used' if found.files else damaged}[/]; {found.cure}", **PLAIN)
    for line in (*found.files, *(f"sample {index}{reason}" for index, reason in found.samples.items())):
        console.print(f"  {escape(line)}", **PLAIN)


def _verify(folder: Path, name: str, repair: bool, console: Console) -> Findings:
    try:
        store = Store(folder)
    except DamagedStoreError as error:
        if not folder.exists():  # Another process has removed it just now.
            return Findings(name)
        files = tuple(_cut_short(folder)) or (str(error),)
        if repair:
            remove_store(folder)
        return Findings(name, files=files, cure=REPAIRED if repair else _ADVICE)
    except OSError as error:  # For example a cache of another user.
        return Findings(name, files=(str(error),), cure="it cannot be opened")
    ready = store.ready().tolist()
    with closing(_check(store, ready)) as checks:
        bar = track(checks, f"checking {name}", len(ready), console=console, transient=True)
        faults = {
            index: fault for index, fault in zip(ready, bar if console.is_terminal else checks, strict=True) if fault
        }
    if not faults:
        return Findings(name, len(ready))
    pages = _page_names(store, faults)
    if repair and store.writable:
        _forget(store, faults)
    cure = _ADVICE if not repair else REPAIRED if store.writable else f"{folder} is read-only"
    return Findings(name, len(ready), (), {index: pages.get(index, "") + faults[index] for index in faults}, cure)


def _check(store: Store, indices: Sequence[int]) -> Generator[str]:
    """What is wrong with each sample; empty if nothing is."""
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            yield from pool.map(lambda index: _fault(store, index), indices)
        finally:
            pool.shutdown(cancel_futures=True)


def _fault(store: Store, index: int) -> str:
    row = store.row(index)
    if row is None:
        return ": its row is damaged"
    record = store.read(index, row)
    if record is None:
        return ": its row points to no sample"
    return "" if record.checksum() == row.checksum else ": its bytes are not those that were written"


def _forget(store: Store, indices: Iterable[int]) -> None:
    for index in indices:
        with store.claim(index):
            if _fault(store, index):  # A run may have rebuilt it just now.
                store.forget(index)


def _page_names(store: Store, indices: Iterable[int]) -> dict[int, str]:
    """The files of samples that are still in the same location and unchanged."""
    rows = {index: store.row(index) for index in indices}
    owners = {row.signature: index for index, row in rows.items() if row is not None}
    names = {}
    folder = str(store.about.get("dataset"))
    for parent, _, files in walk_with_links(folder):
        for path in (os.path.join(parent, file) for file in files):
            signature = file_signature(path)
            index = owners.get(signature) if signature else None
            if index is not None:
                names[index] = f" ({os.path.relpath(path, folder)})"
    return names


def _cut_short(folder: Path) -> Iterator[str]:
    """The files of a cache that are not as long as they must be."""
    try:
        _, layout = read_about(folder)
    except DamagedStoreError:
        return
    for name, needed in (("rows", (layout.count + 1) * ROW_BYTES), ("data", layout.end())):
        path = folder / name
        found = path.stat().st_size if path.is_file() else 0
        if found < needed:
            yield f"{path}: {found} bytes instead of {needed}"
