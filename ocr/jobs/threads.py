"""The cores are shared once, here: torch and OpenCV would each take all of them."""

from __future__ import annotations

import os

from omegaconf import DictConfig

from ocr.system import usable_cores


def share_cores(config: DictConfig) -> None:
    """Set the threads of the model and those of OpenCV in each worker of the loader for this process."""
    threads = config.get("threads")
    if threads is None:
        return  # A job without a model.
    import cv2

    count = _share_of_a_rank(config) if threads.model == "auto" else threads.model
    if count is not None:
        import torch

        torch.set_num_threads(count)
    cv2.setNumThreads(threads.opencv)


def _share_of_a_rank(config: DictConfig) -> int | None:
    """Threads of each of several ranks on this machine, which would otherwise all take every core; else None."""
    ranks = config.get("trainer", {}).get("devices")
    if not isinstance(ranks, int) or ranks < 2 or "OMP_NUM_THREADS" in os.environ:
        return None
    return max(1, usable_cores() // ranks)
