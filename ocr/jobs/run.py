"""Run a job of a config; a known error is one line and exit status 1."""

from __future__ import annotations

import logging
import os
import sys
import warnings

from omegaconf import DictConfig
from rich.console import Console
from rich.markup import escape

from ocr.errors import GlyphFeedError

# Before torch is loaded: threads that wait for work by spinning take the cores from the loader's workers.
os.environ.setdefault("GOMP_SPINCOUNT", "0")


def run(job: str, config: DictConfig) -> None:
    """`train`, `test`, `predict` or `sweep`."""
    from ocr.jobs import predict, sweep, train

    # Lightning tells of devices that are not there and advises more workers than there are cores.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for advice in (
        "many workers",
        "smaller than the logging interval",
        "on_after_batch_transfer",
        "treespec, LeafSpec",
    ):
        warnings.filterwarnings("ignore", message=f".*{advice}")
    console = Console()
    jobs = {"train": train.train, "test": train.test, "predict": predict.predict, "sweep": sweep.sweep}
    try:
        jobs[job](config, console)
    except GlyphFeedError as error:
        Console(stderr=True).print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
