"""Pages that are learnt in seconds: dark bars on light paper."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 128
BARS = 3


def write_bars(folder: Path, train: int = 32, val: int = 8, seed: int = 0) -> Path:
    """A dataset of pages with three bars each."""
    rng = np.random.default_rng(seed)
    for split, count in (("train", train), ("val", val)):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "jsons").mkdir(exist_ok=True)
        pages = {}
        for number in range(count):
            page = rng.integers(200, 256, (SIDE, SIDE), dtype=np.uint8)
            words = {}
            for line in range(BARS):
                left, top = int(rng.integers(8, 30)), 8 + 40 * line + int(rng.integers(0, 8))
                right, bottom = left + int(rng.integers(50, 90)), top + int(rng.integers(16, 24))
                page[top:bottom, left:right] = rng.integers(0, 90, (bottom - top, right - left))
                points = [[left, top], [right, top], [right, bottom], [left, bottom]]
                words[f"{line:04d}"] = {"points": points, "transcription": "bar"}
            name = f"{number:03d}.png"
            Image.fromarray(page).save(folder / "images" / split / name)
            pages[name] = {"words": words}
        (folder / "jsons" / f"{split}.json").write_text(json.dumps({"images": pages}))
    return folder
