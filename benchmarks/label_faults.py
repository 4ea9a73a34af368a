"""Faults put into the labels of a dataset on purpose: how many are among twice as many suspects.

python benchmarks/label_faults.py --data DIR --split train                 # with the detector of the package
python benchmarks/label_faults.py --data DIR --split train --model best.ckpt --seeds 5

A fault in a word is one of: missing; duplicate (a copy, moved by up to a tenth of its height); shifted (moved in any
direction until it overlaps its place with an IoU of 0.1 to 0.5); merged (one box with its nearest neighbour). 5 % of
the words have one, and 5 % of the pages have all labels in another frame (turned, mirrored or scaled), which is one
fault and one suspect. A suspect finds a fault if it is its label, or if its outline or its proposal is at its place.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import shapely
from numpy.typing import NDArray
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.measure import console, data_or_synthetic, exit_with
from ocr import Detector
from ocr.atomic import replacing
from ocr.geometry.orientation import orientation_matrix, upright_size
from ocr.geometry.polygons import Polygons
from ocr.inspect.suspects import DUPLICATE, MERGED, MISSING, PAGE, SHIFTED, Suspect, find_suspects, rank_suspects
from ocr.tools.doctor import examine
from ocr.tools.doctor.labels import model_path, readable_pages, see_page, upright_labels

Outline = NDArray[np.float32]
WORD_FAULTS = (MISSING, DUPLICATE, SHIFTED, MERGED)
SCALES = (0.5, 0.75, 1.5, 2.0)
AT_PLACE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """What was done to the labels of a page."""

    kind: str
    place: Outline | None = None
    """Where the right label was."""
    labels: frozenset[int] = frozenset()
    """The wrong labels, by their numbers on the page."""

    def is_found_by(self, suspect: Suspect) -> bool:
        if self.kind == PAGE or suspect.kind == PAGE:
            return self.kind == suspect.kind
        if suspect.word is not None and suspect.word in self.labels:
            return True
        shown = [*([suspect.outline] if suspect.word is None else []), *(suspect.proposal or ())]
        return self.place is not None and any(iou(outline, self.place) > AT_PLACE for outline in shown)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many faults of each kind there were, were found, and were named by their kind."""

    faults: Counter[str]
    found: Counter[str]
    named: Counter[str]

    @property
    def recall(self) -> float:
        return sum(self.found.values()) / max(1, sum(self.faults.values()))


def main() -> int:
    """One row per kind; the mean over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=None, help="dataset folder (default: synthetic pages)")
    parser.add_argument("--split", default="train", help="split to read (default: train)")
    parser.add_argument("--model", default="glyphfeed", help="detector that never learnt these labels")
    parser.add_argument("--pages", type=int, default=None, help="first pages of the split (default: all)")
    parser.add_argument("--share", type=float, default=0.05, help="words, and pages, with a fault (default: 0.05)")
    parser.add_argument("--seeds", type=int, default=3, help="sets of faults (default: 3)")
    parser.add_argument("--json", type=Path, default=None, help="write the figures here")
    options = parser.parse_args()
    data = data_or_synthetic(options.data, pages=0, train=24)
    report = examine(data, splits=[options.split])
    (split,) = report.splits
    names = readable_pages(split)[: options.pages]
    labels = {name: upright_labels(split, name) for name in names}
    plans = [plan_faults(labels, options.share, seed) for seed in range(options.seeds)]
    detector = Detector.load(model_path(options.model))
    suspects: list[list[tuple[str, Suspect]]] = [[] for _ in plans]
    faults: list[dict[str, list[Fault]]] = [{} for _ in plans]
    for name in track(names, "pages", console=console, transient=True):
        seen = see_page(detector, split.images[name].path)
        for seed, plan in enumerate(plans):
            rng = np.random.default_rng([seed, len(faults[seed])])
            wrong, faults[seed][name] = put_faults(labels[name], plan.get(name, {}), seen.size, rng)
            found = find_suspects(replace(seen, truth=wrong), detector.boxes)
            suspects[seed] += [(name, suspect) for suspect in found]
    count = sum(len(page) for page in labels.values())
    outcomes = [judge(rank_suspects(suspects[seed], count), faults[seed]) for seed in range(options.seeds)]
    show(outcomes, f"{options.model} on {len(names)} pages, {count:,} labels, {options.seeds} sets of faults")
    if options.json:
        figures = [{"faults": o.faults, "found": o.found, "named": o.named, "recall": o.recall} for o in outcomes]
        with replacing(options.json) as stream:
            stream.write(json.dumps(figures, indent=1).encode())
    return 0


def plan_faults(labels: dict[str, Polygons], share: float, seed: int) -> dict[str, dict[int, str]]:
    """Which words of which pages get which fault; word -1 stands for the whole page."""
    rng = np.random.default_rng(seed)
    plan: dict[str, dict[int, str]] = defaultdict(dict)
    names = list(labels)
    for at in rng.choice(len(names), max(1, round(share * len(names))), replace=False).tolist():
        plan[names[at]][-1] = PAGE
    words = [(name, at) for name in names if name not in plan for at in np.flatnonzero(~labels[name].ignore).tolist()]
    chosen = rng.choice(len(words), max(len(WORD_FAULTS), round(share * len(words))), replace=False).tolist()
    for number, at in enumerate(chosen):
        name, word = words[at]
        plan[name][word] = WORD_FAULTS[number % len(WORD_FAULTS)]
    return dict(plan)


def put_faults(
    labels: Polygons, plan: dict[int, str], size: tuple[int, int], rng: np.random.Generator
) -> tuple[Polygons, list[Fault]]:
    """The labels of a page with the faults of the plan."""
    if -1 in plan:
        return labels.moved(other_frame(size, rng)), [Fault(PAGE)]
    outlines: list[Outline | None] = [outline.copy() for outline in labels]
    added: list[tuple[Outline, int]] = []
    made: list[tuple[str, Outline, int | None, int | None]] = []  # kind, place, label, copy
    untouched = set(range(len(outlines))) - plan.keys()
    for word, kind in plan.items():
        place = outlines[word]
        assert place is not None
        if kind == MERGED:
            merged = merge(outlines, word, [at for at in untouched if not labels.ignore[at]])
            if merged is None:
                kind = MISSING
            else:
                outlines[word], partner = merged
                outlines[partner] = None
                untouched.discard(partner)
        if kind == MISSING:
            outlines[word] = None
        elif kind == SHIFTED:
            outlines[word] = shift(place, size, rng)
        elif kind == DUPLICATE:
            height = min(np.ptp(place, axis=0))
            added.append((place + rng.uniform(-0.1, 0.1, 2).astype(np.float32) * height, word))
        made.append((kind, place, None if kind == MISSING else word, len(added) - 1 if kind == DUPLICATE else None))
    kept = [at for at, outline in enumerate(outlines) if outline is not None]
    number = {at: new for new, at in enumerate(kept)}
    all_outlines = [outline for outline in outlines if outline is not None] + [outline for outline, _ in added]
    ignore = [bool(labels.ignore[at]) for at in kept] + [False] * len(added)
    faults = []
    for kind, place, word, copy in made:
        wrong = {number[word]} if word is not None else set()
        wrong |= {len(kept) + copy} if copy is not None else set()
        faults.append(Fault(kind, place, frozenset(wrong)))
    return Polygons.pack(all_outlines, ignore), faults


def other_frame(size: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float64]:
    """Turned or mirrored as by an EXIF orientation that was not heeded, or drawn on an image of another size."""
    if rng.random() < 0.5:
        scale = float(rng.choice(SCALES))
        return np.diag([scale, scale, 1.0])
    orientation = int(rng.integers(2, 9))
    matrix = orientation_matrix(orientation, *upright_size(orientation, *size))
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def shift(outline: Outline, size: tuple[int, int], rng: np.random.Generator) -> Outline:
    """Moved in any direction that stays on the page, until the IoU with its place is the one drawn."""
    wanted = rng.uniform(0.1, 0.5)
    moved = outline
    for _ in range(20):
        angle = rng.uniform(0, 2 * np.pi)
        step = np.array([np.cos(angle), np.sin(angle)])
        near, far = 0.0, float(np.ptp(outline, axis=0).sum())
        for _ in range(30):
            middle = (near + far) / 2
            moved = (outline + middle * step).astype(np.float32)
            near, far = (middle, far) if iou(moved, outline) > wanted else (near, middle)
        if (moved >= 0).all() and (moved <= np.array(size)).all():
            break
    return moved


def merge(outlines: Sequence[Outline | None], word: int, others: Sequence[int]) -> tuple[Outline, int] | None:
    """One box with the nearest label, unless it would cover a third one."""
    own = outlines[word]
    assert own is not None
    shapes = {at: shapely.Polygon(outline) for at, outline in enumerate(outlines) if outline is not None}
    for partner in sorted(others, key=lambda at: shapes[at].distance(shapes[word]))[:3]:
        other = outlines[partner]
        assert other is not None
        both = np.concatenate([own, other])
        low, high = both.min(axis=0), both.max(axis=0)
        box = shapely.box(*low, *high)
        third = (
            shapes[at].intersection(box).area / max(shapes[at].area, 1e-6) for at in shapes.keys() - {word, partner}
        )
        if max(third, default=0.0) < 0.3:
            return np.array([low, [high[0], low[1]], high, [low[0], high[1]]], dtype=np.float32), partner
    return None


def judge(ranked: Sequence[tuple[str, Suspect]], faults: dict[str, list[Fault]]) -> Outcome:
    """What the first suspects, twice as many as there are faults, find; each finds one fault at most."""
    total = Counter(fault.kind for page in faults.values() for fault in page)
    found: Counter[str] = Counter()
    named: Counter[str] = Counter()
    left = {name: list(page) for name, page in faults.items()}
    for name, suspect in ranked[: 2 * total.total()]:
        hit = next((fault for fault in left[name] if fault.is_found_by(suspect)), None)
        if hit is not None:
            left[name].remove(hit)
            found[hit.kind] += 1
            named[hit.kind] += hit.kind == suspect.kind
    return Outcome(total, found, named)


def iou(one: Outline | None, other: Outline) -> float:
    if one is None:
        return 0.0
    first, second = (shapely.Polygon(outline).buffer(0) for outline in (one, other))
    shared = first.intersection(second).area
    return float(shared / max(first.area + second.area - shared, 1e-9))


def show(outcomes: Sequence[Outcome], title: str) -> None:
    table = Table(title=title, title_justify="left")
    for column in ("fault", "put in", "found", "recall", "named as such"):
        table.add_column(column, justify="left" if column == "fault" else "right")
    put, found, named = (
        sum((getattr(outcome, name) for outcome in outcomes), Counter()) for name in ("faults", "found", "named")
    )
    for kind in (*WORD_FAULTS, PAGE):
        recall = f"{found[kind] / max(1, put[kind]):.3f}"
        table.add_row(kind, str(put[kind]), str(found[kind]), recall, str(named[kind]))
    recalls = [outcome.recall for outcome in outcomes]
    spread = f"{np.mean(recalls):.3f} ({min(recalls):.3f} to {max(recalls):.3f})"
    table.add_row("all", str(put.total()), str(found.total()), spread, str(named.total()))
    console.print(table)


if __name__ == "__main__":
    exit_with(main)
