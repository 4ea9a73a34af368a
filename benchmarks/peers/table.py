"""Side by side with the field: the same pages to the same batch through every loader that people use.

Every peer decodes or stores pages as its documentation advises; letterbox, random stages and maps are the same code in
all of them. Each runs in an environment of its own, made in data/peers if a package is missing, one process tree at a
time, in turns. `--set peers=torch,grain` measures some of them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import ROOT, Data, Figure, Result, Row, benchmark, console
from benchmarks.loaders import drop_files
from benchmarks.peers import OURS, PEERS
from benchmarks.peers.common import SPLIT, Course
from benchmarks.peers.process import PeerError, PeerProcess, make_environment
from benchmarks.peers.trials import BATCH_SIZE, PAGES, try_all
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.pipeline.decode import Decode
from ocr.pipeline.source import open_folder

SIZE, BATCH, WORKERS, TIMEOUT = 640, 16, 2, 900
TRIALS, RUN_EPOCHS = ("resumes", "survives kill -9", "notices an edit"), 100
Round = dict[str, Any]
COLUMNS: dict[str, dict[str, tuple[Callable[[Round], list[float]], str]]] = {
    "Speed": {
        "first epoch, cold": (lambda one: [one["first_run"]["first"]["seconds"]], "s"),
        "later epochs": (lambda one: [epoch["seconds"] for epoch in one["first_run"]["later"]], "s"),
        "first epoch of a second run": (lambda one: [one["second_run"]["first"]["seconds"]], "s"),
        "training epoch": (lambda one: [epoch["seconds"] for epoch in one["second_run"]["training"]], "s"),
    },
    "Cost": {
        "preparation": (lambda one: [one["prepare_seconds"]], "s"),
        "on disk, besides the images": (lambda one: [one["disk_bytes"]], "B"),
        "memory of all processes": (lambda one: [one["second_run"]["memory_bytes"]], "B"),
        "start to first batch": (lambda one: [one["second_run"]["start_seconds"]], "s"),
        "CPU per page, training": (lambda one: [e["cpu"] / e["pages"] for e in one["second_run"]["training"]], "s"),
    },
}


class Field:
    """The peers on the same pages; one that fails has its error in place of figures."""

    def __init__(self, data: Data) -> None:
        self.work, self.pythons, self.errors = data.work_folder, dict[str, str](), dict[str, str]()
        self.versions = dict[str, str]()
        self.pages = copy_pages(data.receipts, "train", None, self.work / "data")
        copy_pages(self.work / "data", SPLIT, PAGES, self.work / "few")
        warm_up()  # Once per machine: all peers draw maps with the kernels, and none shall wait for that.

    def attempt(self, name: str, step: Callable[[str], Any]) -> Any:
        """What a step returns; None for a peer that has failed."""
        if name in self.errors:
            return None
        console.print(f"{PEERS[name].title}: {step.__name__.replace('_', ' ')}")
        try:
            return step(name)
        except PeerError as error:
            needs = f" (it needs {PEERS[name].hint})" if PEERS[name].hint else ""
            self.errors[name] = f"{step.__name__.replace('_', ' ')}: {error}{needs}"
            return None

    def process(self, name: str, pages: str, batch_size: int) -> PeerProcess:
        """A peer on some pages, with a new folder of its own."""
        folder = self.work / "of peers" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        course = Course(str(self.work / pages), str(folder), SIZE, batch_size, WORKERS)
        return PeerProcess(name, self.pythons[name], course, self.work / "logs" / f"{name}.txt", TIMEOUT)

    def install(self, name: str) -> None:
        self.pythons[name], version = make_environment(PEERS[name], ROOT / "data" / "peers" / "environments")
        if version:
            self.versions[PEERS[name].packages[0]] = version

    def try_out(self, name: str) -> Round:
        """Resume, kill -9, an edit, on a few pages."""
        return try_all(self.process(name, "few", BATCH_SIZE))

    def take_turn(self, name: str) -> Round:
        """Prepare, a first run, a second run, all with the files out of memory."""
        peer, found = self.process(name, "data", BATCH), Round()
        folder = Path(peer.course.folder)
        drop_files(self.work / "data")
        found["prepare_seconds"] = peer.prepare()
        for task in ("first_run", "second_run"):
            drop_files(self.work / "data")
            drop_files(folder)
            found[task] = peer.run(task)
            if (pages := found[task]["first"]["pages"]) != self.pages:
                raise PeerError(f"an epoch has {pages} pages instead of {self.pages}")
        found["disk_bytes"] = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
        return found


def copy_pages(data: Path, split: str, limit: int | None, folder: Path) -> int:
    """Copy pages, with polygons in the upright frame, so that no peer needs to know of orientations; how many."""
    source = open_folder(data / "images" / split, data / "jsons" / f"{split}.json")
    count, images, noted = min(limit or len(source), len(source)), folder / "images" / SPLIT, {}
    images.mkdir(parents=True)
    for number in range(count):
        sample = Decode().measure(source.read(number * len(source) // count))
        name = f"{number:06d}{Path(sample.filename).suffix}"
        shutil.copyfile(sample.path, images / name)
        pairs = zip(sample.polygons, sample.polygons.ignore, strict=True)
        words = [{"points": points.tolist(), "illegibility": bool(ignore)} for points, ignore in pairs]
        noted[name] = {"words": {f"{place:04d}": word for place, word in enumerate(words)}}
    (folder / "jsons").mkdir()
    (folder / "jsons" / f"{SPLIT}.json").write_text(json.dumps({"images": noted}), encoding="utf-8")
    return count


def chosen(data: Data) -> list[str]:
    """All peers, or those of `peers=NAME,NAME`."""
    wanted = data.setting("peers", ",".join(PEERS)).split(",")
    if unknown := [name for name in wanted if name not in PEERS]:
        raise ConfigError(
            f"no peer is named {unknown[0]}. Choose from {', '.join(PEERS)}", setting="peers", value=wanted
        )
    return [name for name in PEERS if name in wanted]


def plot_speed(result: Result, path: Path) -> None:
    """Pages per second: training, and later validation epochs."""
    from matplotlib import pyplot

    rows = sorted((row for row in result.rows if row.caption == "Speed"), key=lambda row: -row.value("training epoch"))
    figure, axes = pyplot.subplots(figsize=(9, 0.42 * len(rows) + 1.2), layout="constrained")
    for heading, shift in (("training epoch", 0.2), ("later epochs", -0.2)):
        places = [place + shift for place in range(len(rows))]
        axes.barh(places, [1 / row.value(heading) for row in rows], 0.38, label=heading)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_xscale("log")
    axes.set_xlabel("epochs per second, every tensor copied")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def plot_epochs(result: Result, path: Path) -> None:
    """Seconds from new data to the end of a number of training epochs."""
    from matplotlib import pyplot

    costs = {row.name: row for row in result.rows if row.caption == "Cost"}
    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    for row in (row for row in result.rows if row.caption == "Speed"):
        first = sum(costs[row.name].value(name) for name in ("preparation", "start to first batch"))
        first += row.value("first epoch, cold")
        ends = [first + row.value("training epoch") * epoch for epoch in range(RUN_EPOCHS)]
        axes.plot(range(1, RUN_EPOCHS + 1), ends, label=row.name, linewidth=2.5 if "GlyphFeed" in row.name else 1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("training epochs, from new data on: preparation, start, first epoch, further epochs")
    axes.set_ylabel("seconds that loading takes")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


PICTURES = {"pictures/peers_speed.png": plot_speed, "pictures/peers_epochs.png": plot_epochs}


@benchmark("peers", table="peers#peers", rounds=5, pictures=PICTURES)
def peers(data: Data) -> Iterator[Row | str]:
    """Twelve loaders and GlyphFeed: speed, cost, and what happens to resume, kill -9 and an edit."""
    names, field = chosen(data), Field(data)
    for name in names:
        field.attempt(name, field.install)
    tried = {name: field.attempt(name, field.try_out) for name in names}
    rounds: dict[str, list[Round]] = {name: [] for name in names}
    for _ in range(data.rounds):
        for name in names:
            rounds[name] += filter(None, [field.attempt(name, field.take_turn)])
    measured = {name: told for name, told in rounds.items() if told and name not in field.errors}
    medians: dict[str, dict[str, float]] = {}
    for caption, columns in COLUMNS.items():
        for name, told in measured.items():
            found = {heading: median(x for one in told for x in get(one)) for heading, (get, _) in columns.items()}
            medians.setdefault(name, {}).update(found)
            cells = {heading: Figure(value, columns[heading][1]) for heading, value in found.items()}
            yield Row(PEERS[name].title, cells, caption)
    for name, told in tried.items():
        if told:
            cells = {"each epoch reads": PEERS[name].reads, **{trial: told[trial] for trial in TRIALS}}
            yield Row(PEERS[name].title, cells | {"pixels, levels": Figure(told["gap"], digits=1)}, "Tried")
    yield f"Median of {data.rounds} rounds on {field.pages} pages, batch size {BATCH}, {WORKERS} workers."
    for name, error in field.errors.items():
        yield f"- Not measured: {PEERS[name].title}: {error}"
    for heading, (_, unit) in (COLUMNS["Speed"] | COLUMNS["Cost"]).items():
        ours = min((found[heading] for name, found in medians.items() if PEERS[name].module == OURS), default=0.0)
        others = {PEERS[name].title: found[heading] for name, found in medians.items() if PEERS[name].module != OURS}
        better = [f"{title} ({Figure(value, unit)})" for title, value in others.items() if value < ours]
        if better:
            yield f"- Better than GlyphFeed, {heading}: {', '.join(better)}, against {Figure(ours, unit)}."
    yield f"Versions: {', '.join(f'{name} {version}' for name, version in field.versions.items())}."
