"""A seeded sample of mutants, spread over the rooms by their lines of code."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from pathlib import Path

from benchmarks.mutation.mutate import Mutant, is_another_program, mutants_of

ROOMS = ("pipeline", "cache", "loader", "shards", "geometry", "evaluation", "advisor")


def draw_sample(root: Path, count: int, seed: int, rooms: tuple[str, ...] = ROOMS) -> list[Mutant]:
    """At most one mutant per line; the first ones of a long sample are a fair short one."""
    lines = {room: _lines_of(root, room) for room in rooms}
    total = sum(map(len, lines.values()))
    picked = []
    for room, places in lines.items():
        generator = random.Random(f"{seed} {room}")
        generator.shuffle(places)
        share = count * len(places) / total
        found = (_pick(root, places[place], generator) for place in range(len(places)))
        chosen = [mutant for mutant, _ in zip(filter(None, found), range(math.ceil(share)), strict=False)]
        picked += [((number + 0.5) / share, mutant) for number, mutant in enumerate(chosen)]
    return [mutant for _, mutant in sorted(picked, key=lambda each: each[0])][:count]


def _lines_of(root: Path, room: str) -> list[list[Mutant]]:
    """The mutants of each line of a room that has any."""
    lines: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for path in sorted((root / "ocr" / room).rglob("*.py")):
        for mutant in mutants_of(str(path.relative_to(root)), path.read_bytes()):
            lines[mutant.module, mutant.line].append(mutant)
    return [lines[place] for place in sorted(lines)]


def _pick(root: Path, mutants: list[Mutant], generator: random.Random) -> Mutant | None:
    mutant = generator.choice(mutants)
    return mutant if is_another_program(mutant, (root / mutant.module).read_bytes()) else None
