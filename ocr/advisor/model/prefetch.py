"""What making batches further ahead brings: an epoch of torch's DataLoader, batch by batch.

The queueing model knows mean times only. Batches made ahead make up for those that take longer than others, so here
each batch has a time of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SEED = 0


def uneven_batches(item_seconds: Sequence[float], items: int, batch_size: int) -> list[float]:
    """Seconds of the batches of an epoch whose items take as long as those that were measured, in random order."""
    drawn = np.random.default_rng(SEED).choice(np.asarray(item_seconds), items)
    return [float(drawn[first : first + batch_size].sum()) for first in range(0, items, batch_size)]


def epoch_seconds(batch_seconds: Sequence[float], workers: int, ahead: int, step_seconds: float) -> float:
    """An epoch of `workers` processes, each with at most `ahead` batches that nobody has taken yet.

    Batch k is made by worker k modulo `workers`, and handed out in order, as torch does.

    >>> epoch_seconds([1.0, 1.0, 1.0], workers=1, ahead=2, step_seconds=0.5)
    3.5
    """
    made: list[float] = []
    taken: list[float] = []
    for number, seconds in enumerate(batch_seconds):
        asked = taken[number - ahead * workers] if number >= ahead * workers else 0.0
        free = made[number - workers] if number >= workers else 0.0
        made.append(max(asked, free) + seconds)
        taken.append(max(made[-1], taken[-1] + step_seconds if taken else 0.0))
    return taken[-1] + step_seconds if taken else 0.0
