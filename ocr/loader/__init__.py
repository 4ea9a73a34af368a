"""Batches of a dataset in the order of `(seed, epoch)`, made ahead by threads or processes."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ocr.loader.loader import Loader as Loader


def __getattr__(name: str) -> Any:
    # Torch is imported with the loader, not with the package.
    if name == "Loader":
        from ocr.loader.loader import Loader

        return Loader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
