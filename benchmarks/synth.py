"""Pages per second of the generator on one core: render, degrade, encode. `python benchmarks/synth.py --kind form`"""

import argparse
import time

import cv2

from ocr.tools.synth import encode_page, render_page
from ocr.tools.synth.kinds import PAGE_KINDS


def main() -> None:
    """Print the best and the median of several rounds over the same pages."""
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
    print(
        f"{options.pages} pages ({options.kind}) of {options.megapixels:g} megapixels, CPU time of one core: "
        f"{options.pages / best:.1f} pages/s at best, {options.pages / median:.1f} in the median of "
        f"{options.rounds} rounds"
    )


if __name__ == "__main__":
    main()
