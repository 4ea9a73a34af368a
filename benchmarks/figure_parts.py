"""The measured tables of README.md and docs/: the benchmark that each comes from, and how far its runs are apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.compare_tables import TextTable, table_of
from benchmarks.scaling_figures import node_table, page_table, set_table

Tables = Sequence[TextTable]
RESULTS, TRAINING, SCALING = "docs/results.md", "docs/training.md", "docs/scaling.md"


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
    "scored": Benchmark("benchmarks/scored.py --data DIR", spread=0.005),
    "scored-forms": Benchmark("benchmarks/scored.py --data FORMS", spread=0.005),
    "causes": Benchmark("benchmarks/scored.py --data DIR --split train --causes", spread=0.05),
    "exact-boxes": Benchmark("benchmarks/scored.py --data DIR --split train --boxes", spread=0.005),
    "orders": Benchmark("benchmarks/orders.py", spread=0.01),
    "faults": Benchmark("benchmarks/label_faults.py --data DIR --split train --pages 40 --seeds 2", spread=0.05),
    "faults-forms": Benchmark(
        "benchmarks/label_faults.py --data FORMS --split train --pages 16 --seeds 2", spread=0.05
    ),
    "scale": Benchmark("benchmarks/scale.py --plot docs/pictures/scale.png"),
    "larger": Benchmark("benchmarks/larger_than_memory.py --seconds 6"),
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
class Figure:
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
    figures: tuple[Figure, ...]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """What must have been run."""
        return tuple(dict.fromkeys(one.benchmark for one in self.figures))

    def tables(self, found: Mapping[str, Tables]) -> list[TextTable]:
        """One, with a row per figure."""
        rows = []
        for one in self.figures:
            figure = table_of(found[one.benchmark], one.title).cell(one.row, one.column)
            command = f"`python {BENCHMARKS[one.benchmark].command}`"
            rows.append((one.name, command, one.against, figure))
        return [TextTable("", ("", "command", "against", "figure"), tuple(rows))]


@dataclass(frozen=True)
class Computed:
    """Tables that follow from those of benchmarks."""

    document: str
    name: str
    benchmarks: tuple[str, ...]
    compute: Callable[[Mapping[str, Tables]], list[TextTable]]

    def tables(self, found: Mapping[str, Tables]) -> list[TextTable]:
        """As computed now."""
        return self.compute(found)


GOALS = ("against", "float", "target")
EPOCHS = r"^(first v|later validation epochs, |- every|training|waiting)"
DocumentPart = Part | Overview | Computed
PARTS: tuple[DocumentPart, ...] = (
    Overview(
        "README.md",
        "in-short",
        (
            Figure("H-mean of the package's detector, lines of receipts", "scored", "", "", "IoU 0.5", "H-mean"),
            Figure("H-mean of the package's detector, words of forms", "scored-forms", "", "", "IoU 0.5", "H-mean"),
            Figure("a page without a cache, one thread, ms", "cold", "", "A cold epoch", "GlyphFeed", "ms a page"),
            Figure("- of Pillow, Albumentations and NumPy", "cold", "", "A cold epoch", "reference", "ms a page"),
            Figure("maps of a page", "maps", "classic NumPy", "Maps of", "ocr.pipeline.targets", "times classic NumPy"),
            Figure("kept per page, dense", "density", "", "Dense caches", "kB per validation page, dense", "uint8"),
            Figure("pages in their own shape, training", "shapes", "squares", "pages that", "speed", "training"),
        ),
    ),
    Part("README.md", "epochs", (Shown("epochs", "Epochs of", EPOCHS, GOALS),)),
    Part("docs/preprocessing.md", "epochs", (Shown("epochs", "Epochs of", EPOCHS, GOALS[:2]),)),
    Part("docs/dali.md", "pixels", (Shown("dali", "Pixels"),)),
    Part("docs/inspect.md", "causes", (Shown("causes", "why"),)),
    Part("docs/labels.md", "faults", (Shown("faults"), Shown("faults-forms"))),
    Part("docs/loading.md", "orders", (Shown("orders"),)),
    Part(SCALING, "scale", (Shown("scale"),)),
    Computed(SCALING, "page", ("shards", "epochs", "scale"), page_table),
    Computed(SCALING, "node", ("shards", "epochs"), node_table),
    Computed(SCALING, "sets", ("shards", "epochs"), set_table),
    Part(RESULTS, "scored", (Shown("scored"), Shown("scored-forms"))),
    Part(RESULTS, "larger", (Shown("larger"),)),
    Part(RESULTS, "epochs", (Shown("epochs", "Epochs of"),)),
    Part(RESULTS, "density", (Shown("density", "Dense caches"),)),
    Part(RESULTS, "codecs", (Shown("density", "Codecs"),)),
    Part(RESULTS, "shapes", (Shown("shapes", "pages that keep their shape"),)),
    Part(RESULTS, "one-pass", (Shown("one-pass", "One pass over the pixels"),)),
    Overview(
        RESULTS,
        "path",
        (
            Figure("a cold epoch, one thread", "cold", "reference", "A cold epoch", "GlyphFeed", "times reference"),
            Figure("maps of a page", "maps", "classic NumPy", "Maps of", "ocr.pipeline.targets", "times classic NumPy"),
            Figure("boxes, polygons", "boxes", "usual loop", "Polygons of", "BoxesFromMap", "times usual loop"),
            Figure("boxes, rectangles", "boxes", "usual loop", "Quadrilaterals of", "BoxesFromMap", "times usual loop"),
            Figure("CLEval, detection", "scores", "cleval", "CLEval", "CLEvalMetric, detection alone", "times cleval"),
            Figure("CLEval, end to end", "scores", "cleval", "CLEval", "CLEvalMetric", "times cleval"),
            Figure("IoU H-mean", "scores", "shapely loop", "IoU H-mean", "HmeanIoU", "times shapely loop"),
            Figure("synthetic receipts, one core", "synth", "", "Synthetic pages", "receipt", "pages/s"),
        ),
    ),
    Part(RESULTS, "dali", (Shown("dali", "validation"), Shown("dali", "training"))),
    Part(RESULTS, "shards", (Shown("shards", "shards"),)),
    Part(RESULTS, "remedies", (Shown("remedies", "Predicted and measured"),)),
    Part(RESULTS, "bottlenecks", (Shown("bottlenecks", "64 pages"),)),
    Part(TRAINING, "perfect-maps", (Shown("perfect"), Shown("perfect-forms"))),
    Part(TRAINING, "exact-boxes", (Shown("exact-boxes"),)),
    Part(TRAINING, "derived", (Shown("recipe", "derived"), Shown("recipe-forms", "derived"))),
    Part(TRAINING, "recipe", (Shown("recipe", "Recall"), Shown("recipe-forms", "Recall"))),
    Part(TRAINING, "checkpointing", (Shown("checkpointing", "Gradient checkpoints"),)),
)
