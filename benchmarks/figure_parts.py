"""The measured tables of README.md and docs/: the benchmark that each comes from, and how far its runs are apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.compare_tables import TextTable

Tables = Sequence[TextTable]
RESULTS, TRAINING = "docs/results.md", "docs/training.md"


@dataclass(frozen=True)
class Benchmark:
    """A command, as a document shows it; DIR is the folder of --data, FORMS that of --forms."""

    command: str
    spread: float = 0.25
    """By how much figures of two runs on the same quiet machine may differ: a share of the larger one."""


BENCHMARKS = {
    "maps": Benchmark("benchmarks/maps.py --data DIR"),
    "boxes": Benchmark("benchmarks/boxes.py --data DIR"),
    "perfect": Benchmark("benchmarks/boxes.py --data DIR --split train --perfect", spread=0.005),
    "perfect-forms": Benchmark("benchmarks/boxes.py --data FORMS --split train --perfect", spread=0.005),
    "scores": Benchmark("benchmarks/scores.py"),
    "cold": Benchmark("benchmarks/cold_epoch.py --data DIR"),
    "synth": Benchmark("benchmarks/synth.py --pages 30"),
    "epochs": Benchmark("benchmarks/epochs.py --data DIR"),
    "density": Benchmark("benchmarks/density.py --data DIR --rounds 8"),
    "shapes": Benchmark("benchmarks/shapes.py --data DIR"),
    "one-pass": Benchmark("benchmarks/one_pass.py --data DIR --rounds 12"),
    "shards": Benchmark("benchmarks/shards.py --data DIR --rounds 9"),
    "dali": Benchmark("benchmarks/dali.py --data DIR"),
    "bottlenecks": Benchmark("benchmarks/advisor.py"),
    "remedies": Benchmark("benchmarks/advisor.py --data DIR model=lite"),
    "recipe": Benchmark("benchmarks/recipe.py --data DIR", spread=0.005),
    "recipe-forms": Benchmark("benchmarks/recipe.py --data FORMS", spread=0.005),
    "checkpointing": Benchmark("benchmarks/checkpointing.py --models lite base resnet50 --pages 2"),
}


@dataclass(frozen=True)
class Shown:
    """A table that a benchmark shows, or some of its rows and columns."""

    benchmark: str
    title: str = ""
    """The beginning of the table's title."""
    rows: str = ""
    """A pattern; all if empty."""
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """Tables of a document, one after another."""

    document: str
    name: str
    shown: tuple[Shown, ...]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """What must have been run."""
        return tuple(dict.fromkeys(shown.benchmark for shown in self.shown))

    def tables(self, found: Mapping[str, Tables]) -> list[TextTable]:
        """Made of what the benchmarks have shown."""
        return [table_of(found[one.benchmark], one.title).pick(one.rows, one.columns) for one in self.shown]


@dataclass(frozen=True)
class Ratio:
    """A row of an overview: one figure of a benchmark."""

    name: str
    benchmark: str
    against: str
    title: str
    row: str
    column: str


@dataclass(frozen=True)
class Overview:
    """A table with a figure of each of several benchmarks."""

    document: str
    name: str
    ratios: tuple[Ratio, ...]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """What must have been run."""
        return tuple(dict.fromkeys(ratio.benchmark for ratio in self.ratios))

    def tables(self, found: Mapping[str, Tables]) -> list[TextTable]:
        """One, with a row per figure."""
        rows = []
        for ratio in self.ratios:
            figure = table_of(found[ratio.benchmark], ratio.title).cell(ratio.row, ratio.column)
            command = f"`python {BENCHMARKS[ratio.benchmark].command}`"
            rows.append((ratio.name, command, ratio.against, figure))
        return [TextTable("", ("", "command", "against", "figure"), tuple(rows))]


def table_of(tables: Tables, title: str) -> TextTable:
    """The table with this beginning of its title."""
    found = [table for table in tables if table.title.startswith(title)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} tables begin with {title!r}: {[table.title for table in tables]}")
    return found[0]


GOALS = ("against", "float", "target")
PARTS: tuple[Part | Overview, ...] = (
    Part("README.md", "epochs", (Shown("epochs", "Epochs of", r"^(first v|later v|- every|training|waiting)", GOALS),)),
    Part(RESULTS, "epochs", (Shown("epochs", "Epochs of"),)),
    Part(RESULTS, "density", (Shown("density", "Dense caches"),)),
    Part(RESULTS, "codecs", (Shown("density", "Codecs"),)),
    Part(RESULTS, "shapes", (Shown("shapes", "pages that keep their shape"),)),
    Part(RESULTS, "one-pass", (Shown("one-pass", "One pass over the pixels"),)),
    Overview(
        RESULTS,
        "path",
        (
            Ratio("a cold epoch, one thread", "cold", "reference", "A cold epoch", "GlyphFeed", "times reference"),
            Ratio("maps of a page", "maps", "classic NumPy", "Maps of", "ocr.pipeline.targets", "times classic NumPy"),
            Ratio("boxes, polygons", "boxes", "usual loop", "Polygons of", "BoxesFromMap", "times usual loop"),
            Ratio("boxes, rectangles", "boxes", "usual loop", "Quadrilaterals of", "BoxesFromMap", "times usual loop"),
            Ratio("CLEval, detection", "scores", "cleval", "CLEval", "CLEvalMetric, detection alone", "times cleval"),
            Ratio("CLEval, end to end", "scores", "cleval", "CLEval", "CLEvalMetric", "times cleval"),
            Ratio("IoU H-mean", "scores", "shapely loop", "IoU H-mean", "HmeanIoU", "times shapely loop"),
            Ratio("synthetic receipts, one core", "synth", "", "Synthetic pages", "receipt", "pages/s"),
        ),
    ),
    Part(RESULTS, "dali", (Shown("dali", "validation"), Shown("dali", "training"))),
    Part(RESULTS, "shards", (Shown("shards", "shards"),)),
    Part(RESULTS, "remedies", (Shown("remedies", "Predicted and measured"),)),
    Part(RESULTS, "bottlenecks", (Shown("bottlenecks", "64 pages"),)),
    Part(TRAINING, "perfect-maps", (Shown("perfect"), Shown("perfect-forms"))),
    Part(TRAINING, "recipe", (Shown("recipe"), Shown("recipe-forms"))),
    Part(TRAINING, "checkpointing", (Shown("checkpointing", "Gradient checkpoints"),)),
)
