"""The path of a page, one file a stage:

    source -> decode -> prefix -> | cache | -> suffix -> targets -> batch -> device

Everything up to the cut `| cache |` is fixed (same page in, same page out) and kept; the suffix is random, and all of
its randomness is `(seed, epoch, index)`. `Loader` makes the batches.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocr.pipeline.loader import Loader as Loader

STAGES = ("source", "decode", "prefix", "cache", "suffix", "targets", "batch", "device")


def __getattr__(name: str) -> Any:
    # Torch loads with the loader, not with the names of the stages.
    if name == "Loader":
        from ocr.pipeline.loader import Loader

        return Loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
