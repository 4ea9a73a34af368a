"""Pages per second of the generator on one core: render, degrade, encode. `python benchmarks/synth.py --kind form`"""

import argparse
import sys
import time
from pathlib import Path

import cv2
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console
from ocr.tools.synth import encode_page, render_page
from ocr.tools.synth.kinds import PAGE_KINDS


def main() -> None:
    """Show the best and the median of several rounds over the same pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megapixels", type=float, default=1.5)
    parser.add_argument("--kind", choices=PAGE_KINDS, default="receipt")
    parser.add_argument("--pages", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    size = (options.megapixels, options.megapixels)
    encode_page(render_page(0, 0, megapixels=size, kind=options.kind))
    seconds = []
    for _ in range(options.rounds):
        started = time.process_time()
        for index in range(options.pages):
            encode_page(render_page(0, index, megapixels=size, kind=options.kind))
        seconds.append(time.process_time() - started)
    best, median = min(seconds), sorted(seconds)[len(seconds) // 2]
    title = (
        f"Synthetic pages, {options.pages} of {options.megapixels:g} megapixels, CPU time, fastest of {options.rounds}"
    )
    table = Table("", "pages/s", "in the median", title=title, title_justify="left")
    table.add_row(options.kind, f"{options.pages / best:.1f}", f"{options.pages / median:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
