"""The detector of the package on labelled pages: its scores, why it errs, and what the settings of its boxes change.

python benchmarks/scored.py --data DIR                      # val
python benchmarks/scored.py --data DIR --split train --causes
python benchmarks/scored.py --data DIR --split train --boxes
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console, data_or_synthetic, exit_with
from ocr.errors import DataError
from ocr.inspect.gains import Gain
from ocr.inspect.screen import gains_table
from ocr.jobs.run import quoted_override

RATIOS = ("1.5", "exact")


def inspect_split(data: Path, split: str, detector: str, *settings: str) -> dict[str, Any]:
    """What `ocr inspect` writes about the pages of a split."""
    paths = {"image_path": data / "images" / split, "annotation_path": data / "jsons" / f"{split}.json"}
    given = [quoted_override(f"datasets.test_dataset.{key}", str(path.resolve())) for key, path in paths.items()]
    with tempfile.TemporaryDirectory(prefix="glyphfeed-bench-") as folder:
        places = [f"out={folder}", f"hydra.run.dir={folder}", f"cache.folder={folder}/cache", "atlas=false"]
        command = [sys.executable, "-m", "ocr.cli", "inspect", quoted_override("weights", detector)]
        if status := subprocess.run([*command, *given, *places, *settings], stdout=subprocess.DEVNULL).returncode:
            raise DataError(f"{split} of {data} cannot be scored: ocr inspect ended with status {status}, see above")
        found: dict[str, Any] = json.loads((Path(folder) / "inspection.json").read_text(encoding="utf-8"))
    return found


def show_scores(found: dict[str, Any], split: str) -> None:
    """A row per score."""
    counts = found["scores"]["iou_50"]
    title = f"{len(found['pages'])} pages of {split}, {counts['words']:,} labels"
    table = Table("score", "precision", "recall", "H-mean", title=title, title_justify="left")
    for name, key in (("IoU 0.5", "iou_50"), ("IoU 0.7", "iou_70"), ("CLEval", "cleval")):
        table.add_row(name, *(f"{found['scores'][key][what]:.3f}" for what in ("precision", "recall", "hmean")))
    console.print(table)


def show_causes(found: dict[str, Any]) -> None:
    """As `ocr inspect` shows them."""
    console.print(gains_table([Gain(**cause) for cause in found["causes"]]))
    console.print(f"{found['explained']:.1%} of {len(found['errors'])} errors have a cause")


def score_boxes(data: Path, split: str, detector: str) -> dict[tuple[str, bool], dict[str, Any]]:
    """The scores with the published rule and the exact one, as polygons and as rectangles."""
    return {
        (ratio, polygon): inspect_split(
            data, split, detector, f"boxes.unclip_ratio={ratio}", f"boxes.use_polygon={polygon}"
        )["scores"]
        for ratio, polygon in product(RATIOS, (True, False))
    }


def show_boxes(scores: dict[tuple[str, bool], dict[str, Any]]) -> None:
    """A row per rule."""
    title = "H-mean at IoU 0.5 / 0.7 of the same maps"
    table = Table("boxes.unclip_ratio", "polygons", "rectangles", title=title, title_justify="left")
    for ratio in RATIOS:
        rows = (scores[ratio, polygon] for polygon in (True, False))
        table.add_row(ratio, *(f"{row['iou_50']['hmean']:.3f} / {row['iou_70']['hmean']:.3f}" for row in rows))
    console.print(table)


def main() -> int:
    """Scores, causes or boxes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--split", default="val", help="split to read (default: val)")
    parser.add_argument("--model", default="glyphfeed", help="detector (default: glyphfeed, that of the package)")
    parser.add_argument("--causes", action="store_true", help="show why it errs, too")
    parser.add_argument("--boxes", action="store_true", help="only compare settings of the boxes")
    options = parser.parse_args()
    data = data_or_synthetic(options.data, train=24)
    if options.boxes:
        show_boxes(score_boxes(data, options.split, options.model))
        return 0
    found = inspect_split(data, options.split, options.model)
    show_scores(found, options.split)
    if options.causes:
        show_causes(found)
    return 0


if __name__ == "__main__":
    exit_with(main)
