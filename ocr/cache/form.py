"""The form of a cache: raw arrays that batches view in place, or dense pages in a twentieth of the bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ocr.checks import check_choice
from ocr.pipeline.cut import Cut
from ocr.pipeline.metadata import MAP_DTYPES
from ocr.system import total_memory
from ocr.units import format_bytes

FORMS = ("auto", "raw", "dense")
RAW_SHARE = 0.25
"""Raw if the arrays take at most this share of the memory: the other splits, the model and other runs fit as well."""


class Form(NamedTuple):
    """What is kept of a sample, and why in this form."""

    cut: Cut
    reason: str


def choose_form(setting: str, cut: Cut, pages: int, side: int | None) -> Form:
    """The cut in the form that `cache.form` asks for; `side` is that of the letterboxed pages, None if unknown."""
    check_choice("cache.form", setting, FORMS)
    dense = Cut(page=True, dense=True)
    if not cut.page or setting == "raw":
        return Form(cut, f"cache.form={setting}")
    if setting == "dense":
        return Form(dense, "cache.form=dense")
    if side is None:
        return Form(cut, "pages have no common size")
    needed, memory = pages * raw_bytes(cut, side), total_memory()
    fits = needed <= RAW_SHARE * memory
    share = (
        f"raw arrays take {format_bytes(needed)}, {'at most' if fits else 'more than'} {RAW_SHARE:.0%} of the memory"
    )
    return Form(cut if fits else dense, f"{share} ({format_bytes(memory)})")


def raw_bytes(cut: Cut, side: int) -> int:
    """Bytes of one sample as raw arrays."""
    page = 3 * (4 if cut.normalized else 1) * cut.page
    maps = sum(np.dtype(kind).itemsize for kind in MAP_DTYPES.values()) * cut.maps
    return side * side * (page + maps)
