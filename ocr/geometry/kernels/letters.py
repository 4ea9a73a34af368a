"""The longest common subsequence of two texts."""

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.compiled import compiled


@compiled()
def common_indices(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Indices into `a`. Of several longest subsequences it is the published one: equal letters first, then left."""
    lengths = np.zeros((len(a) + 1, len(b) + 1), np.int64)
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] == b[j]:
                lengths[i + 1, j + 1] = lengths[i, j] + 1
            else:
                lengths[i + 1, j + 1] = max(lengths[i, j + 1], lengths[i + 1, j])
    i, j = len(a), len(b)
    found = np.empty(lengths[i, j], np.int64)
    while i > 0 and j > 0:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            found[lengths[i, j]] = i
        elif lengths[i - 1, j] > lengths[i, j - 1]:
            i -= 1
        else:
            j -= 1
    return found
