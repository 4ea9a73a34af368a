"""All randomness of a sample comes from `(seed, epoch, index)` and nothing else."""

import numpy as np


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The generator of one sample in one epoch: the same in any worker, after any resume.

    >>> sample_generator(0, 1, 2).integers(100) == sample_generator(0, 1, 2).integers(100)
    np.True_
    """
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch, index))))
