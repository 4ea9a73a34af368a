"""`ocr synth --like FOLDER`: pages of a folder in numbers, for the generator to match, and both side by side."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ocr.errors import ConfigError, GlyphFeedError
from ocr.pipeline.decode import Decode
from ocr.pipeline.source import FolderSource, open_folder
from ocr.system import usable_cores
from ocr.tools.synth.measure import SIDE, PageMeasure, measure_page

log = logging.getLogger(__name__)

# A hundred pages give the shape of a collection; thousands would take minutes to read and say the same.
MAX_PAGES = 120
_PERCENTILES = (10, 50, 90)
_ROWS = {
    "megapixels": "megapixels",
    "aspect": "height / width",
    "line_height": f"line height at {SIDE}",
    "lines": "lines per page",
    "print_width": "width of the print",
    "paper": "level of the paper",
    "contrast": "paper less ink",
    "noise": "noise",
    "sharpness": "sharpness of edges",
    "saturation": "saturation",
    "background": "background share",
}


def measure_folder(folder: Path | str, max_pages: int = MAX_PAGES) -> list[PageMeasure]:
    """Measure at most `max_pages` pages, evenly spread: of a folder of images, or of images/train in it."""
    folder = Path(folder)
    sources = [source for source in _open_splits(folder) if len(source)]
    if not sources:
        raise ConfigError(
            f"--like {folder}: it holds no images. Pass a folder of pages, or one with images/<split>",
            setting="--like",
            value=folder,
            path=folder,
        )
    entries = [(source, index) for source in sources for index in range(len(source))]
    chosen = np.unique(np.linspace(0, len(entries) - 1, min(max_pages, len(entries))).round().astype(int))
    with ThreadPoolExecutor(usable_cores()) as pool:
        measured = list(pool.map(lambda at: _measure(*entries[at]), chosen.tolist()))
    pages = [page for page in measured if page is not None]
    if not pages:
        raise ConfigError(
            f"--like {folder}: no image in it shows text. Run `ocr doctor {folder}` to see what is wrong",
            setting="--like",
            value=folder,
            path=folder,
        )
    if len(pages) < len(measured):
        log.warning("--like %s: %d pages show no text, or cannot be read: left out", folder, len(measured) - len(pages))
    return pages


def _open_splits(folder: Path) -> list[FolderSource]:
    if not folder.is_dir():
        raise ConfigError(
            f"--like {folder}: there is no such folder. Pass a folder of pages",
            setting="--like",
            value=folder,
            path=folder,
        )
    root, splits = folder, [folder]
    if (folder / "images").is_dir():
        splits = sorted(path for path in (folder / "images").iterdir() if path.is_dir()) or [folder / "images"]
        # The pages that a detector is scored on must not shape those it is trained on.
        splits = [split for split in splits if split.name == "train"] or splits
    else:
        root = folder.parent.parent
    sources = []
    for split in splits:
        labels = root / "jsons" / f"{split.name}.json"
        if any(entry.is_file() for entry in os.scandir(split)):
            sources.append(open_folder(split, labels if labels.is_file() else None, on_bad_sample="skip"))
    return sources


def _measure(source: FolderSource, index: int) -> PageMeasure | None:
    """None for a page that cannot be read, or that has no text on it."""
    try:
        sample = Decode(needed_side=SIDE)(source.read(index))
    except GlyphFeedError:
        return None
    boxes: NDArray[np.float64] | None = None
    if source.annotated:
        bounds = sample.polygons.bounds[~sample.polygons.ignore]
        boxes = bounds.astype(np.float64) * (sample.image.shape[1] / sample.size[0])
    page = measure_page(sample.image, sample.size, boxes)
    return None if np.isnan(page.line_height) else page


def compare(real: Sequence[PageMeasure], made: Sequence[PageMeasure]) -> str:
    """A table with the 10th, 50th and 90th percentile of both."""
    head = f"{'':22}{f'{len(real)} pages to match':>24}{f'{len(made)} pages made':>24}\n"
    head += f"{'':22}" + "".join(f"{f'{step}%':>8}" for step in _PERCENTILES) * 2
    rows = [head]
    for name, title in _ROWS.items():
        cells = [
            _cell(value)
            for pages in (real, made)
            for value in np.nanpercentile([getattr(page, name) for page in pages], _PERCENTILES)
        ]
        rows.append(f"{title:22}" + "".join(f"{cell:>8}" for cell in cells))
    return "\n".join(rows)


def _cell(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 20 else f"{value:.1f}" if abs(value) >= 5 else f"{value:.2f}"
