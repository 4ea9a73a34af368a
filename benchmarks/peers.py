"""Side by side with the field: the same pages to the same batch through every loader that people use.

python benchmarks/peers.py --data DIR                          # everything; DIR/images/train, DIR/jsons/train.json
python benchmarks/peers.py --data DIR --only torch --only raw  # two of them
python benchmarks/peers.py --data DIR --rounds 0               # only install and try them, which needs no idle machine
python benchmarks/peers.py --data DIR --docs docs/peers.md     # also write the tables and plots of the documentation

Every peer decodes or stores pages as its documentation advises; letterbox, random stages and maps are the same code in
all of them. Each runs in an environment of its own, made now if a package is missing; one process tree at a time, in
turns. What was measured is kept: a run that is stopped goes on where it was, and --again measures a peer anew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import measure
from benchmarks.measure import console
from benchmarks.peer_loaders import PEERS
from benchmarks.peer_loaders.common import SPLIT, Course
from benchmarks.peer_process import PeerError, PeerProcess, make_environment, version_of
from benchmarks.peer_report import show, write_document
from benchmarks.peer_trials import BATCH_SIZE, MIN_PAGES, PAGES, Trials
from ocr.atomic import replacing
from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.geometry.kernels.warm_up import warm_up
from ocr.pipeline.decode import Decode
from ocr.pipeline.source import open_folder
from ocr.system import usable_cores


def copy_pages(data: Path, split: str, limit: int | None, folder: Path) -> list[float]:
    """Copy pages, with polygons in the upright frame, so that no peer needs to know of orientations; their megapixels.

    The copy may be edited, and is the same for every peer.
    """
    source = open_folder(data / "images" / split, data / "jsons" / f"{split}.json")
    count = min(limit or len(source), len(source))
    images = folder / "images" / SPLIT
    shutil.rmtree(folder, ignore_errors=True)
    images.mkdir(parents=True)
    noted, megapixels = {}, []
    for number in range(count):
        sample = Decode().measure(source.read(number * len(source) // count))
        name = f"{number:06d}{Path(sample.filename).suffix}"
        shutil.copyfile(sample.path, images / name)
        words = {
            f"{place:04d}": {"points": points.tolist(), "illegibility": bool(ignore)}
            for place, (points, ignore) in enumerate(zip(sample.polygons, sample.polygons.ignore, strict=True))
        }
        noted[name] = {"words": words}
        megapixels.append(sample.shape[0] * sample.shape[1] / 1e6)
    (folder / "jsons").mkdir()
    (folder / "jsons" / f"{SPLIT}.json").write_text(json.dumps({"images": noted}), encoding="utf-8")
    return megapixels


class Comparison:
    """All peers on the same pages, with what was measured so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder = options, options.folder.resolve()
        self.file = self.folder / "figures.json"
        data = measure.data_or_synthetic(options.data, train=32)
        megapixels = copy_pages(data, options.split, options.pages, self.folder / "data")
        copy_pages(self.folder / "data", SPLIT, PAGES, self.folder / "few")
        low, middle, high = np.percentile(megapixels, (0, 50, 100))
        self.course = {
            "pages": len(megapixels),
            "megapixels": f"{low:.1f} to {high:.1f} (median {middle:.1f})",
            "size": options.size,
            "batch_size": options.batch_size,
            "workers": options.workers,
            "cores": usable_cores(),
        }
        self.figures = self._kept()
        self.pythons: dict[str, str] = {}

    def _kept(self) -> dict[str, Any]:
        """What an earlier run measured, without the peers that are to be measured again."""
        fresh: dict[str, Any] = {"course": self.course, "peers": {}}
        if not self.file.exists():
            return fresh
        kept: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        if kept["course"] != self.course:
            raise ConfigError(
                f"{self.file} has figures of other pages or settings: {kept['course']}. Remove it, or give another "
                "--folder"
            )
        for name in self.options.again or []:
            kept["peers"].pop(name, None)
        return kept

    def keep(self) -> None:
        """Write what is known, in the order of the table."""
        self.figures["peers"] = {name: self.figures["peers"][name] for name in PEERS if name in self.figures["peers"]}
        self.figures |= {"date": date.today().isoformat(), "remark": self.options.remark}
        with replacing(self.file) as stream:
            stream.write((json.dumps(self.figures, indent=1) + "\n").encode())

    def known(self, name: str) -> dict[str, Any]:
        """The figures of a peer, empty at first."""
        found: dict[str, Any] = self.figures["peers"].setdefault(name, {})
        return found

    def process(self, name: str, data: str, work: str, batch_size: int) -> PeerProcess:
        """A peer on some pages, with a new folder of its own."""
        folder = self.folder / work / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        settings = self.options.size, batch_size, self.options.workers
        course = Course(str(self.folder / data), str(folder), *settings)
        log = self.folder / "logs" / f"{name}.txt"
        return PeerProcess(name, self.pythons[name], course, log, self.options.timeout)

    def install(self, name: str) -> None:
        """Find or make the environment."""
        self.pythons[name] = make_environment(PEERS[name], self.options.environments or self.folder / "environments")
        self.known(name)["version"] = version_of(self.pythons[name], PEERS[name])

    def try_out(self, name: str) -> None:
        """The trials, once."""
        if "trials" not in self.known(name) and not self.options.skip_trials:
            self.known(name)["trials"] = Trials(self.process(name, "few", "trials", BATCH_SIZE)).run()

    def take_turn(self, name: str, turn: int) -> None:
        """One round of a peer: prepare, a first run, a second run, all with the files out of memory."""
        rounds = self.known(name).setdefault("rounds", [])
        if len(rounds) > turn:
            return
        peer = self.process(name, "data", "work", self.options.batch_size)
        folder = Path(peer.course.folder)
        found: dict[str, Any] = {}
        measure.drop_files(self.folder / "data")
        found["prepare_seconds"] = peer.prepare()
        for task in ("first_run", "second_run"):
            measure.drop_files(self.folder / "data")
            measure.drop_files(folder)
            found[task] = peer.run(task)
            if (pages := found[task]["first"]["pages"]) != self.course["pages"]:
                raise PeerError(f"an epoch has {pages} pages instead of {self.course['pages']}")
        found["disk_bytes"] = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
        shutil.rmtree(folder)
        rounds.append(found)

    def compile_kernels(self) -> None:
        """Once per machine, as `make setup` does: all peers draw maps with them, and none shall wait for that."""
        start = time.monotonic()
        if warm_up():
            self.figures["kernel_seconds"] = time.monotonic() - start

    def run(self, names: list[str]) -> None:
        """Kernels, environments and trials peer by peer, then rounds in which they take turns."""
        self.compile_kernels()
        steps = [*((self.install, name) for name in names), *((self.try_out, name) for name in names)]
        turns = [(name, turn) for turn in range(self.options.rounds) for name in names]
        for name in names:
            self.known(name).pop("error", None)
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("", total=len(steps) + len(turns))
            for step, *details in [*steps, *((self.take_turn, *turn) for turn in turns)]:
                name = details[0]
                progress.update(bar, description=f"{PEERS[name].title}: {step.__name__.replace('_', ' ')}", advance=1)
                if "error" in self.known(name):
                    continue
                try:
                    step(*details)
                except PeerError as error:
                    self.known(name)["error"] = str(error)
                self.keep()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measure.add_data_options(parser, rounds=5, split="train")
    parser.add_argument("--pages", type=int, default=None, help="so many pages, spread over the split (default: all)")
    for name, value, what in (
        ("size", 640, "side of the letterboxed page"),
        ("batch-size", 16, "pages per batch"),
        ("workers", 2, "worker processes or threads of every peer"),
        ("timeout", 900, "seconds after which a process is ended"),
    ):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what} (default: {value})")
    parser.add_argument("--only", action="append", choices=[*PEERS], help="this peer; may be repeated (default: all)")
    parser.add_argument("--again", action="append", choices=[*PEERS], help="measure this peer anew; may be repeated")
    parser.add_argument(
        "--folder", type=Path, default=Path("data/peers"), help="figures, logs and work (default: data/peers)"
    )
    parser.add_argument("--environments", type=Path, help="folder of the environments (default: in --folder)")
    parser.add_argument("--skip-trials", action="store_true", help="leave resume, kill -9 and edits for the next run")
    parser.add_argument(
        "--remark", default="", help="said of the measurement in the document, e.g. 'on a busy machine'"
    )
    parser.add_argument("--docs", type=Path, help="document whose tables and plots are replaced: docs/peers.md")
    return parser.parse_args()


def main() -> int:
    options = parse()
    for name, least in (("rounds", 0), ("batch_size", 1), ("timeout", 1), ("pages", MIN_PAGES)):
        if getattr(options, name) is not None:
            check_integer(f"--{name.replace('_', '-')}", getattr(options, name), least)
    names = [name for name in PEERS if name in (options.only or PEERS)]
    comparison = Comparison(options)
    try:
        comparison.run(names)
    except KeyboardInterrupt:
        console.print(f"interrupted: the same command goes on with what is in {comparison.file}")
        return 130
    for used in ("data", "few", "trials", "work"):
        shutil.rmtree(comparison.folder / used, ignore_errors=True)
    show(comparison.figures)
    console.print(f"figures: {comparison.file}")
    if options.docs:
        pages = f" --pages {options.pages}" if options.pages else ""
        command = f"python benchmarks/peers.py --data DIR --rounds {options.rounds}{pages}"
        write_document(comparison.figures, options.docs, command)
    return 0


if __name__ == "__main__":
    measure.exit_with(main)
