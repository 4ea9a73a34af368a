"""What is tried once with every peer: the same pages as ours, resume in the middle, kill -9, an edited image."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from benchmarks.peers.process import PeerError, PeerProcess
from ocr.units import format_bytes

PAGES = 16
BATCH_SIZE = 2
SAVED_AFTER = 3
"""Batches before the state is saved, while others are being made ahead."""
MAX_GAP = 16.0
"""Levels of 255, mean over a page. A decoder that skips detail differs by 4 at 640 x 640, and by 12 at 96 x 96."""
MIN_SHARED_BYTES = 4096
"""Less than that are semaphores, which other programs of the machine leave too."""


def try_all(peer: PeerProcess) -> dict[str, Any]:
    """Every trial on a few pages; a PeerError if the peer gives other pages."""
    prepare_seconds = peer.prepare()
    found: dict[str, Any] = {"gap": worst_gap(peer)}
    killed = partial(kill, prepare_seconds=prepare_seconds)
    for name, trial in {"resumes": resume, "notices an edit": edit, "survives kill -9": killed}.items():
        try:
            found[name] = trial(peer)
        except PeerError as error:
            found[name] = f"no: {error}"
    return found


def worst_gap(peer: PeerProcess) -> float:
    """By how many levels the pixels differ from Pillow's, on the mean of the worst page; maps must be equal."""
    told = peer.run("compare")
    if different := told["different"]:
        raise PeerError(f"{len(different)} arrays are missing or differ: {', '.join(different[:3])}")
    worst = max(told["gaps"].values())
    if worst > MAX_GAP:
        raise PeerError(f"pixels of a page differ by {worst:.1f} levels of 255")
    return float(worst)


def resume(peer: PeerProcess) -> str:
    """Whether a new process goes on with the batch after the saved state."""
    details = {"file": f"{peer.course.folder}.pt", "after": SAVED_AFTER}
    whole = peer.run("write_order", resume=False, **details)
    if not whole["state"]:
        return "no: nothing to save"
    if len(whole["batches"]) <= SAVED_AFTER:
        return "not tried: too few pages"
    rest = peer.run("write_order", resume=True, **details)["batches"]
    expected = whole["batches"][SAVED_AFTER:]
    if rest == expected:
        return "yes"
    flat, wanted = ([name for batch in batches for name in batch] for batches in (rest, expected))
    lost, repeated = len(set(wanted) - set(flat)), len(flat) - len(set(flat) & set(wanted))
    return f"no: {lost} pages lost, {repeated} repeated" if lost or repeated else "no: in another order"


def edit(peer: PeerProcess) -> str:
    """Whether a second run has the pixels of an image that was edited after the first."""
    path: Path = next(peer.course.images.iterdir())
    original = path.read_bytes()
    try:
        with Image.open(path) as opened:
            kind = opened.format
            edited = ImageOps.invert(ImageOps.exif_transpose(opened).convert("RGB"))
        edited.save(path, format=kind)
        return "yes" if peer.run("compare")["gaps"][path.name] <= MAX_GAP else "no"
    finally:
        path.write_bytes(original)


def kill(peer: PeerProcess, prepare_seconds: float) -> str:
    """Whether all is well after kill -9 in the middle of preparing, and again in the middle of the first epoch."""
    shutil.rmtree(peer.course.folder)
    left = []
    if prepare_seconds:
        left.append(peer.kill("prepare", "begun", prepare_seconds / 2))
        peer.prepare()
    left.append(peer.kill("one_epoch", "reading"))
    worst_gap(peer)
    processes, shared = (sum(counts) for counts in zip(*left, strict=True))
    words = [f"{processes} workers live on"] if processes else []
    words += [f"{format_bytes(shared)} stay in /dev/shm"] if shared >= MIN_SHARED_BYTES else []
    return f"yes, but {', '.join(words)}" if words else "yes"
