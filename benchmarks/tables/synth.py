"""Pages per second of the generator on one core: render, degrade, encode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.harness import Data, Row, benchmark, fastest, interleave, medians
from ocr.tools.synth import encode_page, render_page
from ocr.tools.synth.kinds import KINDS

PAGES, MEGAPIXELS = 30, 1.5


@benchmark("synth", pages=())
def synth(data: Data) -> Iterator[Row]:
    """CPU time of synthetic pages of each kind."""
    told = interleave({kind: _of_kind(kind) for kind in KINDS}, data.rounds)
    best, usual = fastest(told), medians(told)
    caption = f"Synthetic pages, {PAGES} of {MEGAPIXELS} megapixels, CPU time, fastest of {data.rounds}"
    for kind in KINDS:
        yield Row(kind, {"pages/s": PAGES / best[kind], "in the median": PAGES / usual[kind]}, caption)


def _of_kind(kind: str) -> Callable[[], float]:
    def seconds() -> float:
        started = time.process_time()
        for index in range(PAGES):
            encode_page(render_page(0, index, megapixels=(MEGAPIXELS, MEGAPIXELS), kind=kind))
        return time.process_time() - started

    return seconds
