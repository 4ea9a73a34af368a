"""Train the head that tells how a page is turned, on any upright pages; nothing else in the detector changes.

    python -m ocr.training.orientation MODEL DATA... --out FILE [--steps N] [--side 320]

DATA is a folder with images/ and jsons/, as `ocr synth` writes it. Its train split is learnt, its val split scored.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from ocr.datasets import DBTransforms, OCRDataset
from ocr.datasets.page_dataset import PageDataset
from ocr.models.detector import TextDetector
from ocr.models.load import load_detector, save_detector
from ocr.models.orientation import MIN_MARGIN, TURNS, choose_turn, turn_page
from ocr.models.settings import DetectorSettings
from ocr.pipeline.normalize import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomRotate, TextAwareCrop

SIDE = 320
CACHED = 480
"""Side of the pages that training crops from: what is cut out keeps its detail."""


def train_orientation(
    detector: TextDetector,
    normalize: Normalize,
    datasets: Sequence[PageDataset],
    side: int = SIDE,
    steps: int = 1500,
    pages: int = 4,
    lr: float = 3e-3,
    seed: int = 0,
) -> list[float]:
    """Train a new head on batches of so many pages, each in all four turns; returns the losses."""
    torch.manual_seed(seed)
    head = detector.add_orientation(side).train()
    detector.encoder.eval().requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters(), lr=lr, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=max(2, steps), pct_start=0.1)
    losses = []
    drawn = _pages(datasets, seed)
    for _ in range(steps):
        images = [turn_page(page, turn) for page in (next(drawn) for _ in range(pages)) for turn in TURNS]
        with torch.no_grad():
            features = detector.encoder(torch.from_numpy(np.stack([normalize.on_host(image) for image in images])))
        loss = functional.cross_entropy(head(features), torch.arange(len(images)) % len(TURNS))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(float(loss.detach()))
    detector.eval().requires_grad_(True)
    return losses


def score_orientation(detector: TextDetector, normalize: Normalize, dataset: PageDataset) -> Counter[str]:
    """Of all pages in all turns: how many are `right` and `wrong`, and what the margin leaves of that."""
    assert detector.orientation is not None
    found: Counter[str] = Counter()
    for index in range(len(dataset)):
        images = [turn_page(dataset.at_cut(index).unpacked().image, turn) for turn in TURNS]
        with torch.inference_mode():
            features = detector.encoder(torch.from_numpy(np.stack([normalize.on_host(image) for image in images])))
            scores = detector.orientation(features).double().numpy()
        for turn, of_page in zip(TURNS, scores, strict=True):
            found["right" if TURNS[int(of_page.argmax())] == turn else "wrong"] += 1
            chosen, margin = choose_turn(of_page)
            found["unsure"] += margin < MIN_MARGIN
            found["turned wrongly"] += margin >= MIN_MARGIN and chosen != turn
    return found


def upright_pages(data: Path, split: str, side: int, augmented: bool) -> OCRDataset:
    """The pages of a split in squares of `side`, or in random crops of larger ones."""
    stages = [Letterbox(CACHED, interpolation="area")] if augmented else [Letterbox(side, interpolation="area")]
    random = [RandomRotate(3.0), TextAwareCrop(0.5, p=0.5), ColourJitter(), Letterbox(side, interpolation="area")]
    transform = DBTransforms([*stages, *random] if augmented else stages, normalize="device")
    return OCRDataset(data / "images" / split, data / "jsons" / f"{split}.json", transform)


def _pages(datasets: Sequence[PageDataset], seed: int) -> Iterator[NDArray[np.uint8]]:
    """Random views of all pages, epoch by epoch."""
    rng = np.random.default_rng(seed)
    epoch = 0
    while True:
        order = [(dataset, index) for dataset in datasets for index in range(len(dataset))]
        for at in rng.permutation(len(order)).tolist():
            dataset, index = order[at]
            yield np.ascontiguousarray(dataset.path.augmented(index, epoch).unpacked().image)
        epoch += 1


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True, help="a .safetensors file")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    detector, settings = load_detector(given.model)
    normalize = settings.build("normalization", Normalize)
    datasets = [upright_pages(data, "train", given.side, augmented=True) for data in given.data]
    losses = train_orientation(detector, normalize, datasets, given.side, given.steps, seed=given.seed)
    print(f"loss of the last 50 steps: {np.mean(losses[-50:]):.4f}")
    for data in given.data:
        if (data / "jsons" / "val.json").is_file():
            found = score_orientation(detector, normalize, upright_pages(data, "val", given.side, augmented=False))
            print(f"{data}: {found['right'] / (found['right'] + found['wrong']):.4f} right, {dict(found)}")
    save_detector(given.out, detector, _with_head(settings, detector))


def _with_head(settings: DetectorSettings, detector: TextDetector) -> DetectorSettings:
    values = settings.to_dict()
    return DetectorSettings.from_dict(values | {"architecture": dict(detector.architecture)})


if __name__ == "__main__":
    main()
