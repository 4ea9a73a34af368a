"""What the processes of all blocks need is loaded once, before the first of them is forked."""

from __future__ import annotations

from collections.abc import Sequence

from tests.campaign.cases import Fault, Parser


def preload(classes: Sequence[Fault | Parser]) -> None:
    """Import libraries, and compile and read what is made on first use; no thread may stay."""
    import cv2

    cv2.setNumThreads(1)
    if not any(isinstance(cls, Fault) for cls in classes):
        return
    import cache_worker
    import torch

    torch.set_num_threads(1)
    cache_worker._warm_up()
