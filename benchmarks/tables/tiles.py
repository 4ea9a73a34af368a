"""Pages larger than a detector was trained for: H-mean in windows and shrunk whole, and the memory of 100 megapixels.

--set model=best.ckpt takes another detector, a checkpoint or what `ocr export` wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Data, Figure, Row, Target, benchmark, fresh_process
from benchmarks.loaders import peak_bytes, split_paths
from ocr import Detector
from ocr.evaluation.hmean import HmeanIoU
from ocr.geometry.polygons import Polygons
from ocr.jobs.export import folder_pages
from ocr.models.packaged import PACKAGED
from ocr.pipeline.decode import Decode
from ocr.pipeline.sample import Sample

COLUMNS, CELL, SIDE, ENLARGED = 4, 2000, 10_000, 6
"""Pages side by side on a sheet and the longest side of each; longest side and number of the enlarged ones."""
SHEETS, MEMORY = 0.75, 2e9
"""The least H-mean of sheets with tile=auto, and the most bytes of a process with a page of 100 megapixels."""
Page = tuple[NDArray[np.uint8], Polygons]


@benchmark("tiles", table="deploy#tiles", threads=None)
def tiles(data: Data) -> Iterator[Row]:
    """H-mean of very large pages, in windows and shrunk whole, and their memory."""
    model = data.setting("model", str(PACKAGED))
    images, labels = split_paths(data.receipts, "train")
    sources = folder_pages(str(images), str(labels), COLUMNS**2, "--pages")
    pages = [source.read(Decode(scaled="off")) for source in sources]
    paper = sheet(pages)
    whole, auto = (Detector.load(model, device="cpu", tile=tile) for tile in (None, "auto"))
    kinds = {
        f"{len(pages)} receipts on a sheet": ([paper], SHEETS),
        f"{len(pages[:ENLARGED])} receipts, enlarged": ([resized(page, SIDE) for page in pages[:ENLARGED]], None),
    }
    for name, (made, bound) in kinds.items():
        pixels = np.mean([image.shape[0] * image.shape[1] for image, _ in made])
        scores = [hmean(detector, made) for detector in (whole, auto)]
        # Windows must not lose what the whole page gives.
        tiled = Target(scores[1], at_least=bound or scores[0] - 0.005, digits=3)
        yield Row(
            name, {"megapixels": Figure(pixels / 1e6), "shrunk whole": Figure(scores[0], digits=3), "auto": tiled}
        )
    file = data.work_folder / "page.png"
    cv2.imwrite(str(file), cv2.resize(paper[0], (SIDE, SIDE)))
    with fresh_process(None) as process:
        peak = process.submit(peak_of, model, file).result()
    yield Row(
        "a PNG, the most memory of the process",
        {"megapixels": SIDE**2 // 10**6, "auto": Target(peak, "B", at_most=MEMORY)},
    )


def sheet(pages: Sequence[Sample]) -> Page:
    """Many pages on one, each with CELL for its longest side."""
    image = np.full((COLUMNS * CELL, COLUMNS * CELL, 3), 255, dtype=np.uint8)
    labels = Polygons.pack([])
    for number, page in enumerate(pages):
        part, polygons = resized(page, CELL)
        top, left = (CELL * at for at in divmod(number, COLUMNS))
        image[top : top + part.shape[0], left : left + part.shape[1]] = part
        labels = labels.followed_by(polygons.moved(np.array([[1.0, 0, left], [0, 1, top], [0, 0, 1]])))
    return image, labels


def resized(page: Sample, longest: int) -> Page:
    """A page with another longest side."""
    scale = longest / max(page.shape)
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    image = cv2.resize(page.image, None, fx=scale, fy=scale, interpolation=how)
    return np.asarray(image, dtype=np.uint8), page.polygons.moved(np.diag([scale, scale, 1.0]))


def hmean(detector: Detector, pages: Sequence[Page]) -> float:
    """Over all pages together."""
    score = HmeanIoU()
    for image, labels in pages:
        score.update(detector(image).detections.polygons, labels)
    return float(score.compute()["hmean"])


def peak_of(model: str, file: Path) -> int:
    """The most bytes that a process has that finds the text of a file, with mapped files."""
    Detector.load(model, device="cpu")(str(file))
    return peak_bytes()
