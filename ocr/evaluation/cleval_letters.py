"""Which letters of a page were read correctly: the longest common subsequences of matched words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ocr.geometry.kernels.letters import common_indices


def count_read_letters(
    gt_words: Sequence[str], det_words: Sequence[str], gt_order: Sequence[int], readers: dict[int, list[int]]
) -> int:
    """Letters of the detections that are found in the words they cover; no letter counts for two words.

    `readers[g]` are the detections over word g in reading order; words take their letters in `gt_order`.
    """
    left = list(det_words)
    for gt in gt_order:
        detections = readers.get(gt, [])
        read = "".join([left[det] for det in detections])
        if read == gt_words[gt]:
            for det in detections:
                left[det] = ""
            continue
        for letter in common_letters(gt_words[gt], read):
            # The first detection that still has the letter gives it, as in the published implementation.
            det = next(det for det in detections if letter in left[det])
            left[det] = left[det].replace(letter, "", 1)
    return sum(map(len, det_words)) - sum(map(len, left))


def reading_order(detections: Sequence[int], hits: Sequence[NDArray[np.bool_]]) -> list[int]:
    """Detections over one word sorted by the first character that each covers; `hits[d]` are its characters.

    As published, each character places one detection, and of those left over only the first is read.
    """
    waiting = list(range(len(detections)))
    order = []
    for char in range(len(hits[0])):
        if len(waiting) == 1:
            break
        row = next((row for row in waiting if hits[row][char]), None)
        if row is not None:
            order.append(detections[row])
            waiting.remove(row)
    order.append(detections[waiting[0]])
    return order


def common_letters(a: str, b: str) -> str:
    """A longest common subsequence.

    >>> common_letters("TOTAL 12.50", "T0TAL 1250")
    'TTAL 1250'
    """
    if not a or not b:
        return ""
    return "".join(a[index] for index in common_indices(_codes(a), _codes(b)).tolist())


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
