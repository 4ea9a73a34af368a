"""Side by side with the field: the same pages to the same batch through every loader that people use.

Every peer decodes or stores pages as its documentation advises; letterbox, random stages and maps are the same code in
all of them. Each runs in an environment of its own, made in data/peers if a package is missing, one process tree at a
time, in turns. `--set peers=torch,grain` measures some of them; `--rounds 0` only installs and tries.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Any

from PIL import Image, ImageOps

from benchmarks.harness import ROOT, Data, Figure, Result, Row, benchmark, console
from benchmarks.loaders import drop_files
from benchmarks.peers import ENVIRONMENT, MARK, OURS, PEERS, SPLIT, Course, Peer
from benchmarks.pictures import picture
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.pipeline.decode import Decode
from ocr.pipeline.source import open_folder

BATCH, WORKERS, TIMEOUT_SECONDS = 16, 2, 900.0
FEW, FEW_BATCH, SAVED_AFTER = 16, 2, 3
"""Pages and batch size of the trials, and batches before a state is saved, while others are being made ahead."""
MAX_GAP = 16.0
"""Levels of 255, mean over a page: a decoder that skips detail differs by 4 at 640 x 640."""
KILL_SECONDS, ORPHAN_SECONDS = 0.2, 10.0
"""After the begin of preparing; and until workers notice that their process is gone: torch's look every 5 s."""
Told = dict[str, Any]
COLUMNS: dict[str, dict[str, tuple[Callable[[Told], list[float]], str]]] = {
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

# -- the processes of a peer


class PeerError(Exception):
    """Why a peer cannot be installed or run."""


@dataclass(frozen=True)
class PeerProcess:
    """Runs tasks of benchmarks/peers/worker.py for one peer, one process at a time."""

    name: str
    python: str
    course: Course

    def prepare(self) -> float:
        """Seconds of what is done once before the first epoch; 0 if there is nothing to do."""
        return float(self.run("prepare")["seconds"]) if PEERS[self.name].prepares else 0.0

    def run(self, task: str, **details: Any) -> Told:
        """The result of a task."""
        with self._started(task, details) as (process, log):
            for told in told_by(process):
                if "result" in told:
                    found: Told = told["result"]
                    return found
        if process.returncode == -signal.SIGKILL:
            raise PeerError(f"{task}: ended after {TIMEOUT_SECONDS:.0f} s")
        why = last_line(log.read_text(encoding="utf-8", errors="replace")) or f"code {process.returncode}"
        raise PeerError(f"{task}: {why.replace(self.course.folder, 'FOLDER')}")

    def kill(self, task: str, event: str, seconds: float = 0.0) -> int:
        """Kill -9 of the process, but not of its workers, some seconds after an event; how many processes live on."""
        with self._started(task, {}) as (process, _):
            next((told for told in told_by(process) if event in told), None)
            with suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            process.kill()
            process.wait()
            end = time.monotonic() + ORPHAN_SECONDS
            while (orphans := session(process.pid)) and time.monotonic() < end:
                time.sleep(0.2)
        return len(orphans)

    @contextmanager
    def _started(self, task: str, details: Told) -> Iterator[tuple[subprocess.Popen[str], Path]]:
        words = {"peer": self.name, "task": task, "course": asdict(self.course), "started": time.monotonic(), **details}
        command, log = [self.python, "-m", "benchmarks.peers.worker"], Path(f"{self.course.folder}.log")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = os.environ | ENVIRONMENT | {"PYTHONPATH": str(ROOT)}
        with log.open("w", encoding="utf-8") as errors:
            # In a session of its own, so that all its processes are found, and nothing else is.
            process = subprocess.Popen(
                command, stderr=errors, cwd=ROOT, env=environment, start_new_session=True, **pipes
            )
        clock = Timer(TIMEOUT_SECONDS, end_session, [process.pid])
        clock.start()
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(words))  # type: ignore[union-attr]
                process.stdin.close()  # type: ignore[union-attr]
            yield process, log
        finally:
            clock.cancel()
            end_session(process.pid)
            process.wait()


def told_by(process: subprocess.Popen[str]) -> Iterator[Told]:
    for line in process.stdout or ():
        if line.startswith(MARK):
            yield json.loads(line[len(MARK) :])
    process.wait()


def last_line(text: str) -> str:
    """The last line that is no warning about the shutdown of workers."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0] and not line.startswith("File ")]
    return (errors or lines or [""])[-1][:300]


def session(leader: int) -> list[int]:
    """Processes of a session, workers whose parent has ended included; zombies are not."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, _, leader_of = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            found += [int(entry.name)] if int(leader_of) == leader and state != "Z" else []
    return found


def end_session(leader: int) -> None:
    for process in session(leader):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def make_environment(peer: Peer, home: Path) -> tuple[str, str]:
    """The interpreter that has the packages of a peer, and the version of the first of them.

    It is this one, or one of a virtual environment made now, which sees the packages of this one after its own, so that
    pip installs only what is missing.
    """
    if all(version(package, sys.path) for package in peer.packages):
        return sys.executable, version(peer.packages[0], sys.path) if peer.packages else ""
    python, ready = home / "bin/python", home / "ready"
    if not ready.exists():
        call(sys.executable, "-m", "venv", "--clear", str(home))
        (site,) = home.glob("lib/python*/site-packages")
        (site / "outer.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
        (home / "limits.txt").write_text(f"torch=={metadata.version('torch')}\n", encoding="utf-8")
        quiet = ["--quiet", "--no-input", "--disable-pip-version-check", "--constraint", str(home / "limits.txt")]
        call(str(python), "-m", "pip", "install", *quiet, *peer.packages)
        ready.touch()
    return str(python), version(peer.packages[0], [*map(str, home.glob("lib/python*/site-packages")), *sys.path])


def version(package: str, path: list[str]) -> str:
    """Of an installed package; empty if there is none."""
    found = next(iter(metadata.distributions(name=package, path=path)), None)
    return found.version if found else ""


def call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PeerError(last_line(done.stderr))


# -- what is tried once


def worst_gap(peer: PeerProcess) -> float:
    """By how many levels the pixels differ from Pillow's, on the mean of the worst page; maps must be equal."""
    told = peer.run("compare")
    if different := told["different"]:
        raise PeerError(f"{len(different)} arrays are missing or differ: {', '.join(different[:3])}")
    if (worst := max(told["gaps"].values())) > MAX_GAP:
        raise PeerError(f"pixels of a page differ by {worst:.1f} levels of 255")
    return float(worst)


def resume(peer: PeerProcess) -> str:
    """Whether a new process continues with the batch after the saved state."""
    details = {"file": f"{peer.course.folder}.pt", "after": SAVED_AFTER}
    whole = peer.run("write_order", resume=False, **details)
    if not whole["state"]:
        return "no: nothing to save"
    rest, expected = peer.run("write_order", resume=True, **details)["batches"], whole["batches"][SAVED_AFTER:]
    if rest == expected:
        return "yes"
    flat, wanted = ([name for batch in batches for name in batch] for batches in (rest, expected))
    lost, repeated = len({*wanted} - {*flat}), len(flat) - len({*flat} & {*wanted})
    return f"no: {lost} pages lost, {repeated} repeated" if lost or repeated else "no: in another order"


def edit(peer: PeerProcess) -> str:
    """Whether a second run has the pixels of an image that was edited after the first."""
    path = next(peer.course.images.iterdir())
    original = path.read_bytes()
    try:
        with Image.open(path) as opened:
            kind, edited = opened.format, ImageOps.invert(ImageOps.exif_transpose(opened).convert("RGB"))
        edited.save(path, format=kind)
        return "yes" if peer.run("compare")["gaps"][path.name] <= MAX_GAP else "no"
    finally:
        path.write_bytes(original)


def kill(peer: PeerProcess) -> str:
    """Whether all is well after kill -9 in the middle of preparing, and again in the middle of the first epoch."""
    shutil.rmtree(peer.course.folder)
    left = 0
    if PEERS[peer.name].prepares:
        left += peer.kill("prepare", "begun", KILL_SECONDS)
        peer.prepare()
    left += peer.kill("one_epoch", "reading")
    worst_gap(peer)
    return f"yes, but {left} workers live on" if left else "yes"


TRIALS = {"resumes": resume, "notices an edit": edit, "survives kill -9": kill}

# -- all of them


class Field:
    """The peers on the same pages; one that fails has its error in place of figures."""

    def __init__(self, data: Data) -> None:
        self.work, self.pythons, self.errors = data.work_folder, dict[str, str](), dict[str, str]()
        self.versions = dict[str, str]()
        self.pages = copy_pages(data.receipts, "train", None, self.work / "data")
        copy_pages(self.work / "data", SPLIT, FEW, self.work / "few")
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
        course = Course(str(self.work / pages), str(folder), batch_size=batch_size, workers=WORKERS)
        return PeerProcess(name, self.pythons[name], course)

    def install(self, name: str) -> None:
        home = ROOT / "data/peers/environments" / PEERS[name].module
        self.pythons[name], found = make_environment(PEERS[name], home)
        if found:
            self.versions[PEERS[name].packages[0]] = found

    def try_out(self, name: str) -> Told:
        """Resume, kill -9, an edit, on a few pages."""
        peer = self.process(name, "few", FEW_BATCH)
        peer.prepare()
        found: Told = {"pixels, levels": Figure(worst_gap(peer), digits=1)}
        for trial, run in TRIALS.items():
            try:
                found[trial] = run(peer)
            except PeerError as error:
                found[trial] = f"no: {error}"
        return found

    def take_turn(self, name: str) -> Told:
        """Prepare, a first run, a second run, all with the files out of memory."""
        peer = self.process(name, "data", BATCH)
        folder = Path(peer.course.folder)
        drop_files(self.work / "data")
        found: Told = {"prepare_seconds": peer.prepare()}
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


def draw(result: Result, target: Path) -> None:
    """Epochs per second: training, and later validation epochs."""
    rows = sorted((row for row in result.rows if row.caption == "Speed"), key=lambda row: -row.value("training epoch"))
    with picture(target, figsize=(9, 0.42 * len(rows) + 1.2)) as (_, axes):
        for heading, shift in (("training epoch", 0.2), ("later epochs", -0.2)):
            places = [place + shift for place in range(len(rows))]
            axes.barh(places, [1 / row.value(heading) for row in rows], 0.38, label=heading)
        axes.set_yticks(range(len(rows)), [row.name for row in rows])
        axes.set(xscale="log", xlabel="epochs per second, every tensor copied")
        axes.legend(loc="lower right")


@benchmark("peers", table="peers#peers", rounds=5, pictures={"pictures/peers_speed.png": draw})
def peers(data: Data) -> Iterator[Row | str]:
    """Twelve loaders and GlyphFeed: speed, cost, and what happens to resume, kill -9 and an edit."""
    names = data.setting("peers", ",".join(PEERS)).split(",")
    if unknown := [name for name in names if name not in PEERS]:
        raise ConfigError(
            f"no peer is named {unknown[0]}. Choose from {', '.join(PEERS)}", setting="peers", value=names
        )
    field = Field(data)
    for name in names:
        field.attempt(name, field.install)
    tried = {name: field.attempt(name, field.try_out) for name in names}
    rounds: dict[str, list[Told]] = {name: [] for name in names}
    for _ in range(data.rounds):
        for name in names:
            rounds[name] += filter(None, [field.attempt(name, field.take_turn)])
    measured = {name: told for name, told in rounds.items() if told and name not in field.errors}
    better = []
    for caption, columns in COLUMNS.items():
        medians = {
            heading: {name: median(x for one in told for x in get(one)) for name, told in measured.items()}
            for heading, (get, _) in columns.items()
        }
        for name in measured:
            cells = {heading: Figure(medians[heading][name], unit) for heading, (_, unit) in columns.items()}
            yield Row(PEERS[name].title, cells, caption)
        for heading, (_, unit) in columns.items():
            ours = min((took for name, took in medians[heading].items() if PEERS[name].module == OURS), default=0.0)
            best = [(name, took) for name, took in medians[heading].items() if took < ours]
            shown = ", ".join(f"{PEERS[name].title} ({Figure(took, unit)})" for name, took in best)
            better += [f"- Better than GlyphFeed, {heading}: {shown}, against {Figure(ours, unit)}."] if best else []
    for name, told in tried.items():
        if told:
            yield Row(PEERS[name].title, {"each epoch reads": PEERS[name].reads, **told}, "Tried")
    yield f"Median of {data.rounds} rounds on {field.pages} pages, batch size {BATCH}, {WORKERS} workers."
    yield from (f"- Not measured: {PEERS[name].title}: {error}" for name, error in field.errors.items())
    yield from better
    yield f"Versions: {', '.join(f'{name} {found}' for name, found in field.versions.items())}."
