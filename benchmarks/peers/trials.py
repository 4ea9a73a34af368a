"""What is tried once with every peer: the same pages as ours, resume in the middle, kill -9, an edited image."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from benchmarks.peers.common import Course
from benchmarks.peers.glyphfeed import open_loader
from benchmarks.peers.process import Leftovers, PeerError, PeerProcess
from benchmarks.peers.worker import arrays_of
from ocr.units import format_bytes

PAGES = 16
BATCH_SIZE = 2
SAVED_AFTER = 3
"""Batches before the state is saved, while others are being made ahead."""
MIN_PAGES = BATCH_SIZE * (SAVED_AFTER + 1)
MAX_GAP = 16.0
"""Levels of 255, mean over a page. A decoder that skips detail differs by 4 at 640 x 640, and by 12 at 96 x 96."""
MIN_SHARED_BYTES = 4096
"""Less than that are semaphores, which other programs of the machine leave too."""
Arrays = dict[str, NDArray[Any]]


def exact_pages(course: Course) -> Arrays:
    """All pages with Pillow's pixels, by our loader without a cache."""
    decode = {"annotation_frame": "upright", "scaled": "off"}
    arrays: Arrays = {}
    with TemporaryDirectory() as folder:
        loader = open_loader(replace(course, folder=folder), False, cache="off", image_loading_config=decode)
        for batch in loader:
            arrays |= arrays_of(batch)
    return arrays


class Trials:
    """The trials of one peer, on a few pages."""

    def __init__(self, peer: PeerProcess) -> None:
        self.peer, self.folder = peer, Path(peer.course.folder)
        self.file = self.folder.with_suffix(".npz")
        self.exact = exact_pages(peer.course)

    def run(self) -> dict[str, Any]:
        """All of them; a PeerError if the peer gives other pages."""
        prepare_seconds = self.peer.prepare()
        found: dict[str, Any] = {"gap": self.compare()}
        found["resumes"] = self._tried(self.resume)
        found["notices an edit"] = self._tried(self.edit)
        shutil.rmtree(self.folder)
        found["survives kill -9"] = self._tried(lambda: self.kill(prepare_seconds))
        return found

    def pages(self) -> Arrays:
        """What the peer gives now."""
        self.peer.run("write_pages", file=str(self.file))
        with np.load(self.file, allow_pickle=False) as stored:
            arrays = dict(stored)
        self.file.unlink()
        return arrays

    def compare(self) -> float:
        """By how many levels the pixels differ from Pillow's, on the mean of the worst page; maps must be equal."""
        arrays, gaps = self.pages(), [0.0]
        if missing := sorted(self.exact.keys() - arrays.keys()):
            raise PeerError(f"{len(missing)} of {len(self.exact)} arrays are missing: {', '.join(missing[:3])}")
        for key, array in self.exact.items():
            if key.endswith("/images"):
                gaps.append(gap(array, arrays[key]))
            elif not np.array_equal(array, arrays[key]):
                raise PeerError(f"{key} differs")
        if max(gaps) > MAX_GAP:
            raise PeerError(f"pixels of a page differ by {max(gaps):.1f} levels of 255")
        return max(gaps)

    def resume(self) -> str:
        """Whether a new process goes on with the batch after the saved state."""
        details = {"file": str(self.folder.with_suffix(".pt")), "after": SAVED_AFTER}
        whole = self.peer.run("write_order", resume=False, **details)
        if not whole["state"]:
            return "no: nothing to save"
        rest = self.peer.run("write_order", resume=True, **details)["batches"]
        expected = whole["batches"][SAVED_AFTER:]
        if rest == expected:
            return "yes"
        flat, wanted = ([name for batch in batches for name in batch] for batches in (rest, expected))
        lost, repeated = len(set(wanted) - set(flat)), len(flat) - len(set(flat) & set(wanted))
        return f"no: {lost} pages lost, {repeated} repeated" if lost or repeated else "no: in another order"

    def edit(self) -> str:
        """Whether a second run has the pixels of an image that was edited after the first."""
        course = self.peer.course
        path = next(course.images.iterdir())
        original = path.read_bytes()
        try:
            with Image.open(path) as opened:
                kind = opened.format
                edited = ImageOps.invert(ImageOps.exif_transpose(opened).convert("RGB"))
            edited.save(path, format=kind)
            has, wants = self.pages(), exact_pages(course)
        finally:
            path.write_bytes(original)
        key = f"{path.name}/images"
        return "yes" if gap(wants[key], has[key]) <= MAX_GAP else "no"

    def kill(self, prepare_seconds: float) -> str:
        """Whether all is well after kill -9 in the middle of preparing, and again in the middle of the first epoch."""
        left = []
        if prepare_seconds:
            left.append(self.peer.kill("prepare", "begun", prepare_seconds / 2))
            self.peer.prepare()
        left.append(self.peer.kill("one_epoch", "reading"))
        self.compare()
        return "yes" + _and_left(left)

    def _tried(self, trial: Any) -> str:
        try:
            return str(trial())
        except PeerError as error:
            return f"no: {error}"


def gap(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Mean difference of two pages, in levels of 255."""
    return float(np.abs(one.astype(np.int16) - other).mean())


def _and_left(left: Sequence[Leftovers]) -> str:
    processes, shared = sum(each.processes for each in left), sum(each.shared_bytes for each in left)
    words = [f"{processes} workers live on"] if processes else []
    words += [f"{format_bytes(shared)} stay in /dev/shm"] if shared >= MIN_SHARED_BYTES else []
    return f", but {', '.join(words)}" if words else ""
