"""The cores are shared once, here: torch and OpenCV would each take all of them."""

from __future__ import annotations

from contextlib import suppress

from omegaconf import DictConfig

from ocr.checks import check_integer


def share_cores(config: DictConfig) -> None:
    """Set the threads of the model and those of OpenCV in each worker of the loader for this process."""
    threads = config.get("threads")
    if threads is None:
        return  # A job without a model.
    import cv2

    if threads.model != "auto":
        check_integer("threads.model", threads.model, minimum=1)
        with suppress(ModuleNotFoundError):  # Exported models run without it.
            import torch

            torch.set_num_threads(threads.model)
    check_integer("threads.opencv", threads.opencv, minimum=1)
    cv2.setNumThreads(threads.opencv)
