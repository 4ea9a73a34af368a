"""Tables and plots of what benchmarks/peers.py measured, on the screen and in docs/peers.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from rich.table import Table

from benchmarks.document_parts import read_part, replace_part, table_lines
from benchmarks.measure import console
from benchmarks.peer_loaders import PEERS
from ocr.atomic import replacing
from ocr.units import format_bytes

PART = "peers"
MISSING = "–"
PICTURES = ("peers_speed.png", "peers_epochs.png")
RUN_EPOCHS = 100
Figures = dict[str, Any]
Round = dict[str, Any]


def seconds(value: float) -> str:
    """With three digits at most.

    >>> seconds(0.0123), seconds(1.234), seconds(123.4)
    ('12 ms', '1.23 s', '123 s')
    """
    if value < 0.0995:
        return f"{1000 * value:.3g} ms"
    return f"{value:.2f} s" if value < 9.995 else f"{value:.1f} s" if value < 99.95 else f"{value:.0f} s"


@dataclass(frozen=True)
class Column:
    """A figure of every round, of which the median is shown, with its spread."""

    heading: str
    figures: Callable[[Round], Iterable[float]]
    show: Callable[[float], str] = seconds

    def of(self, peer: Figures) -> list[float]:
        """All figures of a peer; empty if it was not measured."""
        return [figure for each in peer.get("rounds", []) for figure in self.figures(each)]

    def cell(self, peer: Figures) -> str:
        """Median, and the range if it is wider than what is shown."""
        found = self.of(peer)
        if not found:
            return MISSING
        low, middle, high = (self.show(figure) for figure in (min(found), median(found), max(found)))
        return middle if low == high else f"{middle} ({low} to {high})"


def _per_page(epochs: Sequence[Round]) -> list[float]:
    return [epoch["cpu"] / epoch["pages"] for epoch in epochs]


FIRST = Column("first epoch, cold", lambda each: [each["first_run"]["first"]["seconds"]])
LATER = Column("later epochs", lambda each: [epoch["seconds"] for epoch in each["first_run"]["later"]])
SECOND = Column("first epoch of a second run", lambda each: [each["second_run"]["first"]["seconds"]])
TRAINING = Column("training epoch", lambda each: [epoch["seconds"] for epoch in each["second_run"]["training"]])
PREPARATION = Column("preparation", lambda each: [each["prepare_seconds"]])
START = Column("start to first batch", lambda each: [each["second_run"]["start_seconds"]])
SPEED = (FIRST, LATER, SECOND, TRAINING)
COST = (
    PREPARATION,
    Column("on disk, besides the images", lambda each: [each["disk_bytes"]], format_bytes),
    Column("memory of all processes", lambda each: [each["second_run"]["memory_bytes"]], format_bytes),
    START,
    Column("CPU per page, training", lambda each: _per_page(each["second_run"]["training"])),
)
TRIALS = ("resumes", "survives kill -9", "notices an edit")


def table_rows(figures: Figures, columns: Sequence[Column]) -> list[list[str]]:
    """A row per peer that was measured; the best figure of each column is bold."""
    measured = {name: peer for name, peer in figures["peers"].items() if peer.get("rounds")}
    best = {}
    for column in columns:
        medians = {name: median(column.of(peer)) for name, peer in measured.items()}
        best[column.heading] = min(medians.values(), default=0.0)
    rows = []
    for name, peer in measured.items():
        cells = []
        for column in columns:
            is_best = median(column.of(peer)) <= best[column.heading]
            cells.append(f"**{column.cell(peer)}**" if is_best else column.cell(peer))
        rows.append([PEERS[name].title, *cells])
    return rows


def trial_rows(figures: Figures) -> list[list[str]]:
    """What was tried with each peer, and how far its pixels are from Pillow's."""
    rows = []
    for name, peer in figures["peers"].items():
        if trials := peer.get("trials"):
            tried = [trials[trial] for trial in TRIALS]
            rows.append([PEERS[name].title, PEERS[name].reads, *tried, f"{trials['gap']:.1f}"])
    return rows


def missing_lines(figures: Figures) -> list[str]:
    """Peers that were not measured, and why."""
    known = {name: figures["peers"].get(name, {}) for name in PEERS}
    return [
        f"- {PEERS[name].title}: {peer.get('error', 'not yet')}"
        for name, peer in known.items()
        if not peer.get("rounds")
    ]


def wins(figures: Figures) -> list[str]:
    """Where a peer is better than all forms of ours."""
    measured = {name: peer for name, peer in figures["peers"].items() if peer.get("rounds")}
    lines = []
    for column in (*SPEED, *COST):
        medians = {name: median(column.of(peer)) for name, peer in measured.items()}
        ours = min((figure for name, figure in medians.items() if PEERS[name].is_ours), default=0.0)
        better = [name for name, figure in medians.items() if not PEERS[name].is_ours and figure < ours]
        if better:
            shown = ", ".join(f"{PEERS[name].title} ({column.show(medians[name])})" for name in better)
            lines.append(f"- {column.heading}: {shown}, against {column.show(ours)}.")
    return lines


HEADINGS = {
    "Speed": ["", *(column.heading for column in SPEED)],
    "Cost": ["", *(column.heading for column in COST)],
    "Tried": ["", "each epoch reads", *TRIALS, "pixels, levels"],
}


def all_tables(figures: Figures) -> dict[str, list[list[str]]]:
    """The rows of each table."""
    return {"Speed": table_rows(figures, SPEED), "Cost": table_rows(figures, COST), "Tried": trial_rows(figures)}


def show(figures: Figures) -> None:
    """On the screen."""
    for title, rows in all_tables(figures).items():
        table = Table(*HEADINGS[title], title=title, title_justify="left")
        for row in rows:
            table.add_row(*(cell.replace("**", "") for cell in row))
        console.print(table)
    for line in [*missing_lines(figures), *wins(figures)]:
        console.print(line)


def write_document(figures: Figures, path: Path, command: str) -> None:
    """Replace what is between the marks of a document, and the two plots beside it."""
    read_part(path, PART)  # A document without the marks is refused before anything is drawn.
    pictures = path.parent / "pictures"
    plot_speed(figures, pictures / PICTURES[0])
    plot_epochs(figures, pictures / PICTURES[1])
    replace_part(path, PART, _markdown(figures, command))


def _markdown(figures: Figures, command: str) -> list[str]:
    course, versions = figures["course"], []
    for name, peer in figures["peers"].items():
        if peer.get("version") and peer.get("rounds"):
            versions.append(f"{PEERS[name].packages[0]} {peer['version']}")
    rounds = max((len(peer.get("rounds", [])) for peer in figures["peers"].values()), default=0)
    remark = f", {figures['remark']}" if figures.get("remark") else ""
    lines = [
        f"{figures['date']}, {course['cores']} CPU cores, {course['pages']} pages of {course['megapixels']} megapixels,"
        f" batches of {course['batch_size']} at {course['size']} x {course['size']}, {course['workers']} workers, "
        f"{rounds} {'round' if rounds == 1 else 'rounds'}{remark}: `{command}`.",
        "Median of all epochs of a kind, and their range; the best is bold.",
        "The kernels that draw the maps in all of them were compiled before, once per machine; that is not in the "
        f"tables{_compiling(figures)}.",
    ]
    for title, rows in all_tables(figures).items():
        lines += ["", f"### {title}", "", *table_lines(HEADINGS[title], rows)]
    lines += ["", f"![Pages per second of each loader](pictures/{PICTURES[0]})", ""]
    lines += [f"![Time until a number of training epochs is done](pictures/{PICTURES[1]})", ""]
    if missing := missing_lines(figures):
        lines += ["Not measured:", "", *missing, ""]
    lines += ["### Where another is better than all of ours", ""]
    lines += wins(figures) or ["Nowhere in this measurement."]
    return [*lines, "", f"Versions: {', '.join(dict.fromkeys(versions))}."]


def _compiling(figures: Figures) -> str:
    """What compiling took, if this run or an earlier one of the same folder had to."""
    return f", and took {seconds(figures['kernel_seconds'])}" if "kernel_seconds" in figures else ""


def plot_speed(figures: Figures, path: Path) -> None:
    """Pages per second: training, and later validation epochs."""
    pages = figures["course"]["pages"]
    rows = [
        (PEERS[name].title, *(pages / median(column.of(peer)) for column in (TRAINING, LATER)))
        for name, peer in figures["peers"].items()
        if peer.get("rounds")
    ]
    rows.sort(key=lambda row: row[1])
    with _axes(path, 0.42 * len(rows) + 1.2) as axes:
        axes.set_title(fill(figures.get("remark", ""), 80), fontsize=9)
        places = range(len(rows))
        axes.barh([place + 0.2 for place in places], [row[1] for row in rows], 0.38, label="training epoch")
        axes.barh([place - 0.2 for place in places], [row[2] for row in rows], 0.38, label="later validation epoch")
        axes.set_yticks(places, [row[0] for row in rows])
        axes.set_xscale("log")
        axes.set_xlabel("pages per second, every tensor copied")
        axes.legend(loc="lower right")


def plot_epochs(figures: Figures, path: Path) -> None:
    """Seconds from new data to the end of a number of training epochs."""
    epochs = range(1, RUN_EPOCHS + 1)
    ends = {}
    for name, peer in figures["peers"].items():
        if peer.get("rounds"):
            preparation, start, first, each = (
                median(column.of(peer)) for column in (PREPARATION, START, FIRST, TRAINING)
            )
            ends[name] = [preparation + start + first + each * (epoch - 1) for epoch in epochs]
    with _axes(path, 5.5) as axes:
        axes.set_title(fill(figures.get("remark", ""), 80), fontsize=9)
        for name, line in sorted(ends.items(), key=lambda end: end[1][-1]):
            width, style = (2.5, "-") if PEERS[name].is_ours else (1.2, "--" if name.startswith("monai") else "-")
            axes.plot(epochs, line, style, linewidth=width, label=PEERS[name].title)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("training epochs, from new data on: preparation, start, first epoch, further epochs")
        axes.set_ylabel("seconds that loading takes")
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))


@contextmanager
def _axes(path: Path, height: float) -> Iterator[Any]:
    """Axes that become a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, height), layout="constrained")
    axes.grid(alpha=0.3, which="both")
    axes.set_axisbelow(True)
    yield axes
    with replacing(path) as stream:
        figure.savefig(stream, format="png", dpi=120)
    pyplot.close(figure)
