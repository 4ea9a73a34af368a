"""Pages larger than a model was trained for: H-mean in windows and shrunk whole, and the memory of 100 megapixels.

python benchmarks/tiles.py best.ckpt --data DIR --split train --pages 32
python benchmarks/tiles.py best.ckpt --data DIR --limit-gb 1.5    # the memory in a cgroup, as in a container

A process also maps files of its libraries, which the system takes back when it needs the memory. What it must have is
what a cgroup can be limited to.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from rich.progress import track
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks.limited_group import joining, limited
from benchmarks.measure import console, data_or_synthetic, exit_with
from ocr import Detector
from ocr.evaluation.hmean import HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.jobs.export import folder_pages
from ocr.pipeline.decode import Decode
from ocr.pipeline.sample import Sample

CELL = 2000
"""Longest side of each page on a sheet of many."""
MEMORY = """
import sys
sys.path.insert(0, sys.argv[3])
from benchmarks.deploy_worker import peak_bytes
from ocr import Detector
page = Detector.load(sys.argv[1], device="cpu")(sys.argv[2])
print(len(page), peak_bytes())
"""


@dataclass(frozen=True, slots=True)
class LargePage:
    """Pixels and labels."""

    image: NDArray[np.uint8]
    labels: Polygons


def main() -> int:
    """One row per kind of page, and one line about memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="checkpoint, or folder or file of `ocr export`")
    parser.add_argument("--data", type=Path, default=None, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--split", default="val", help="split to read (default: val)")
    parser.add_argument("--pages", type=int, default=32, help="pages that sheets are made of (default: 32)")
    parser.add_argument("--columns", type=int, default=4, help="pages side by side on a sheet (default: 4)")
    parser.add_argument("--enlarged", type=int, default=4, help="pages that are enlarged (default: 4)")
    parser.add_argument("--side", type=int, default=10_000, help="of an enlarged page, and of that for the memory")
    parser.add_argument("--limit-gb", type=float, help="memory of a cgroup, as root; the page must fit (default: none)")
    options = parser.parse_args()
    data = data_or_synthetic(options.data)
    folder, labels = data / "images" / options.split, data / "jsons" / f"{options.split}.json"
    sources = folder_pages(str(folder), str(labels), options.pages, "--pages")
    pages = [source.read(Decode(scaled="off")) for source in sources]
    count = options.columns**2
    kinds = {
        f"sheets of {options.columns} x {options.columns} pages": [
            sheet(pages[first : first + count], options.columns) for first in range(0, len(pages) - count + 1, count)
        ],
        f"one page, enlarged to {options.side}": [enlarged(page, options.side) for page in pages[: options.enlarged]],
    }
    table = Table(title=f"{options.model.name}, H-mean")
    for column in ("", "pages", "megapixels", "shrunk whole", "tile=auto"):
        table.add_column(column, justify="left" if not column else "right")
    whole, auto = (Detector.load(options.model, tile=tile) for tile in (None, "auto"))
    for kind, made in kinds.items():
        if made:
            pixels = sum(page.image.shape[0] * page.image.shape[1] for page in made) / len(made)
            scores = [f"{hmean(detector, made):.4f}" for detector in (whole, auto)]
            table.add_row(kind, str(len(made)), f"{pixels / 1e6:.0f}", *scores)
    console.print(table)
    show_memory(options, sheet(pages[:count], options.columns))
    return 0


def sheet(pages: Sequence[Sample], columns: int) -> LargePage:
    """Many pages on one, each with CELL for its longest side."""
    side = columns * CELL
    image = np.full((side, side, 3), 255, dtype=np.uint8)
    labels = Polygons.pack([])
    for number, page in enumerate(pages):
        part = enlarged(page, CELL)
        top, left = (CELL * at for at in divmod(number, columns))
        image[top : top + part.image.shape[0], left : left + part.image.shape[1]] = part.image
        shift = np.array([[1, 0, left], [0, 1, top], [0, 0, 1]], dtype=np.float64)
        labels = labels.followed_by(part.labels.moved(shift))
    return LargePage(image, labels)


def enlarged(page: Sample, longest: int) -> LargePage:
    """A page with another longest side."""
    scale = longest / max(page.shape)
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    image = cv2.resize(page.image, None, fx=scale, fy=scale, interpolation=how)
    return LargePage(np.asarray(image, dtype=np.uint8), page.polygons.moved(np.diag([scale, scale, 1.0])))


def hmean(detector: Detector, pages: Sequence[LargePage]) -> float:
    score = HmeanIoU()
    for page in track(pages, f"tile={detector.large_pages.tile}", console=console, transient=True):
        score.update(detector(page.image).detections.polygons, page.labels)
    return float(score.compute()["hmean"])


def show_memory(options: argparse.Namespace, page: LargePage) -> None:
    """What a process of its own takes to find the text in a file."""
    side = options.side
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.png"
        cv2.imwrite(str(file), cv2.resize(page.image, (side, side)))
        command = [sys.executable, "-c", MEMORY, str(options.model), str(file), str(ROOT)]
        if options.limit_gb is None:
            boxes, peak = find_apart(command)
            told = f"{boxes} boxes, at most {peak / 1e9:.2f} GB in the process"
        else:
            with limited(round(options.limit_gb * 1e9)) as groups:
                boxes, _ = find_apart(command, groups)
                peak = int((groups[0] / "memory.max_usage_in_bytes").read_text())
            told = f"{boxes} boxes in a group of {options.limit_gb:g} GB, of which {peak / 1e9:.2f} were used"
    console.print(f"a PNG of {side} x {side}: {told}")


def find_apart(command: Sequence[str], groups: Sequence[Path] = ()) -> tuple[int, int]:
    """How many boxes a process finds, and the most bytes that it had, with mapped files."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, preexec_fn=joining(groups))
    if done.returncode:
        sys.exit(f"the process ended with code {done.returncode}" + ": killed" * (done.returncode == -signal.SIGKILL))
    boxes, peak = map(int, done.stdout.split()[-2:])
    return boxes, peak


if __name__ == "__main__":
    exit_with(main)
