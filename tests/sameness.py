"""Whether two things are the same, bit for bit."""

from typing import Any

import numpy as np
import torch


def assert_same(left: Any, right: Any, where: str = "") -> None:
    """Equal in value, type and shape, all the way down."""
    assert type(left) is type(right), where
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype, where
        assert torch.equal(left, right), where
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype, where
        assert np.array_equal(left, right), where
    elif isinstance(left, dict):
        assert left.keys() == right.keys(), where
        for key in left:
            assert_same(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), where
        for index, pair in enumerate(zip(left, right, strict=True)):
            assert_same(*pair, f"{where}[{index}]")
    else:
        assert left == right, where
