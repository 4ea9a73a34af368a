"""A soak: one process trains, validates, caches, predicts and asks a service, round after round; what grows is told.

python benchmarks/soak.py --minutes 120 --seed 20 --out DIR                              # synthetic pages
python benchmarks/soak.py --minutes 120 --out DIR --data PAGES --docs docs/reliability.md

Each round does everything once, in a random order. Epochs are broken off and resumed, pages and labels are edited, and
other processes that share the cache are killed. Batches are compared with uncached ones, bit for bit. After each
round memory, descriptors, threads, disk and speed are a line of DIR/soak.csv. The exit status is 1 if a sample was
wrong, something failed, or anything is not flat between the second quarter of the soak and the last.
"""

from __future__ import annotations

import argparse
import csv
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "cache"), str(ROOT / "tests" / "deploy" / "service")]
from cache_worker import Worker, job

from benchmarks import soak_pages, soak_report
from benchmarks.measure import console, exit_with
from benchmarks.soak_pages import OTHER_SIZES, PagesOfSoak, make_pages
from benchmarks.soak_resident import Resident
from ocr.advisor.measure.process_memory import release_memory
from ocr.cache.folder import disk_bytes, list_stores
from ocr.errors import ConfigError
from ocr.system import process_tree

KILL_SECONDS = 4.0
"""Other processes die at most so long after their start, half of them in the first second: filling takes no longer."""
ENDLESS = 100_000
"""Epochs of a process that is to be killed."""
KILLED = -signal.SIGKILL
Figures = dict[str, float]


def reading(process: int, name: str) -> Figures:
    """What a process has now. Own memory is without pages of files, which the system can take back."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    megabytes = {line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines}
    figures = {
        "own_mb": round(megabytes["Pss_Anon"] + megabytes["Pss_Shmem"], 1),
        "pss_mb": round(megabytes["Pss"], 1),
        "rss_mb": round(megabytes["Rss"], 1),
        "descriptors": len(os.listdir(f"/proc/{process}/fd")),
        "threads": len(os.listdir(f"/proc/{process}/task")),
        "children": len(process_tree(process)) - 1,
        "mappings": Path(f"/proc/{process}/maps").read_text(encoding="utf-8").count("\n"),
    }
    return {f"{name}_{what}": value for what, value in figures.items()}


def disk_reading(out: Path, cache: Path) -> Figures:
    """Bytes and files below the folder, and shared memory that is named after one of our processes."""
    sizes = []
    for folder, _, files in os.walk(out):
        for name in files:
            with suppress(OSError):  # Removed since by another process.
                sizes.append(os.stat(os.path.join(folder, name)).st_blocks * 512)
    shared = "|".join(map(str, process_tree(os.getpid())))
    return {
        "disk_mb": round(sum(sizes) / 1e6, 1),
        "cache_mb": round(sum(map(disk_bytes, list_stores(cache))) / 1e6, 1),
        "files": len(sizes),
        "shm_files": sum(bool(re.search(rf"(?<!\d)({shared})(?!\d)", name)) for name in os.listdir("/dev/shm")),
    }


class Others:
    """Short-lived processes that share the cache; a process that has all libraries loaded forks them."""

    def __init__(self, pages: PagesOfSoak) -> None:
        self._pages, self._worker, self._thread = pages, Worker(), ThreadPoolExecutor(1)

    def start(self, rng: Random) -> Future[list[dict[str, Any]]]:
        """One or two of them, most of which are killed; what became of each is known at their end."""
        pages, jobs = self._pages.to_dict(), []
        for _ in range(rng.choice((1, 2))):
            kill = KILL_SECONDS * rng.random() ** 2 if rng.random() < 0.75 else None
            split, draw = rng.choice(("train", "val")), rng.random()
            if draw < 0.5:
                what = {
                    "pages": pages,
                    "split": split,
                    "threads": rng.choice((0, 2)),
                    "epochs": 2 if kill is None else ENDLESS,
                }
                jobs.append(job(soak_pages.read_elsewhere, kill, **what))
            elif draw < 0.8:
                share = rng.choice(OTHER_SIZES)
                jobs.append(job(soak_pages.fill_elsewhere, kill, pages=pages, split=split, share=share))
            elif draw < 0.95:
                jobs.append(job(soak_pages.look_elsewhere, None, cache=pages["cache"]))
            else:
                jobs.append(job(soak_pages.clear_elsewhere, kill, cache=pages["cache"]))
        return self._thread.submit(self._worker.run, *jobs)

    def close(self) -> None:
        """Wait for those at work, each of which ends or is killed by itself."""
        self._thread.shutdown()
        self._worker.close()


@contextmanager
def served(model: Path | None) -> Iterator[tuple[int, int]]:
    """Port and process of a service."""
    command = [sys.executable, "-m", "ocr.cli", "serve", *([str(model)] if model else [])]
    command += ["--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            found = re.search(r":(\d+) ", service.stdout.readline())
            if found is None:
                raise ConfigError("`ocr serve` has not started; it has said why")
            yield int(found[1]), service.pid
        finally:
            service.terminate()
            service.communicate()


class Soak:
    """Rounds, each of which becomes a row of soak.csv."""

    def __init__(self, resident: Resident, others: Others, service: int, out: Path, seed: int) -> None:
        self.resident, self.others, self.service, self.out = resident, others, service, out
        self.rng, self.begun, self.rounds = Random(seed), time.monotonic(), 0

    def run_round(self) -> Figures:
        """Everything once, with an edit or two in between; then what is left of it."""
        speeds, rng, counts = Figures(), self.rng, self.resident.counts
        pending = self.others.start(rng)
        steps = [*self.resident.activities, *["edit"] * rng.choice((1, 2))]
        rng.shuffle(steps)
        for step in steps:
            try:
                if step == "edit":
                    counts["edits"] += 1
                    self.resident.findings += filter(None, [self.resident.pages.edit(rng)])
                else:
                    pages, seconds, cpu = self.resident.activities[step](rng)
                    counts[step] += 1
                    speeds[f"{step}_pages_s"] = round(pages / seconds, 2)
                    speeds[f"{step}_pages_cpu_s"] = round(pages / max(cpu, 0.001), 2)
            except Exception as error:  # The soak goes on, and says so at its end.
                self.resident.findings.append(f"round {self.rounds + 1}, {step}: {type(error).__name__}: {error}")
        self._settle(pending.result())
        self.rounds += 1
        return self._figures() | speeds

    def _settle(self, ended: list[dict[str, Any]]) -> None:
        """Count other processes, and find those that failed, or found a damaged cache."""
        for other in ended:
            self.resident.counts["processes"] += 1
            self.resident.counts["kills"] += other["status"] == KILLED
            if other["status"] not in (0, KILLED) or other.get("result"):
                self.resident.findings.append(f"another process: {other}")

    def _figures(self) -> Figures:
        release_memory()
        counts, compared, pages = self.resident.counts, self.resident.compared, self.resident.pages
        figures = {"round": self.rounds, "minutes": round((time.monotonic() - self.begun) / 60, 3)}
        figures |= reading(os.getpid(), "resident") | reading(self.service, "service")
        figures |= disk_reading(self.out, pages.cache) | {"budget_mb": round(pages.budget_bytes / 1e6, 1)}
        figures |= {name.replace(" ", "_"): counts[name] for name in ("broken off", "edits", "processes", "kills")}
        return figures | {
            "compared": compared.samples,
            "wrong": compared.wrong,
            "findings": len(self.resident.findings),
        }


def run(options: argparse.Namespace, out: Path, file: Path) -> list[str]:
    """Rounds until the time or their number is over; what was found."""
    pages_folder, cache = out / "pages", out / "cache"
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=out / "soak.log", format="%(asctime)s %(message)s")
    make_pages(pages_folder, options.data, options.train, options.val, options.seed)
    pages = PagesOfSoak(pages_folder, cache, options.size, options.seed)
    os.environ["GLYPHFEED_CACHE"] = str(cache)  # Of other processes too: nothing is kept elsewhere.
    # Ctrl-C reaches all processes of a terminal: the others end when this one tells them to.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    others = Others(pages)
    try:
        with served(options.model) as (port, service), file.open("w", encoding="utf-8", newline="") as stream:
            signal.signal(signal.SIGINT, handler)
            soak = Soak(Resident(pages, out, options.model, port, service), others, service, out, options.seed)
            end, writer = time.monotonic() + 60 * options.minutes, None
            while time.monotonic() < end and soak.rounds != options.rounds:
                figures = soak.run_round()
                if writer is None:
                    speeds = [f"{name}_pages{per}_s" for name in soak_report.ACTIVITIES for per in ("", "_cpu")]
                    writer = csv.DictWriter(stream, list(dict.fromkeys([*figures, *speeds])))
                    writer.writeheader()
                writer.writerow(figures)
                stream.flush()
                _tell(figures)
            return soak.resident.findings
    finally:
        others.close()


def _tell(figures: Figures) -> None:
    console.print(
        f"round {figures['round']}, {figures['minutes']:.1f} min: {figures['resident_own_mb']:.0f} MB, service "
        f"{figures['service_own_mb']:.0f} MB, {figures['resident_descriptors']} descriptors, disk "
        f"{figures['disk_mb']:.0f} MB, {figures['findings']} findings",
        highlight=False,
    )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120, help="how long (default: 120)")
    parser.add_argument("--rounds", type=int, help="end after so many rounds (default: by the time alone)")
    parser.add_argument("--seed", type=int, default=20, help="of all random choices (default: 20)")
    parser.add_argument("--out", type=Path, required=True, help="new folder: pages, cache, soak.csv and soak.png")
    parser.add_argument("--data", type=Path, help="dataset whose pages are copied (default: synthetic pages)")
    parser.add_argument("--train", type=int, default=32, help="pages for training (default: 32)")
    parser.add_argument("--val", type=int, default=12, help="pages for validation (default: 12)")
    parser.add_argument("--size", type=int, default=320, help="longer side of pages in a batch (default: 320)")
    parser.add_argument("--model", type=Path, help="detector that predicts and serves (default: the package's own)")
    parser.add_argument("--docs", type=Path, help="document whose table and plot are replaced: docs/reliability.md")
    return parser.parse_args()


def main() -> int:
    options = parse()
    out = options.out.resolve()
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"--out {options.out} is not empty. Choose a new folder")
    file, plot = out / "soak.csv", out / soak_report.PICTURE
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        findings = run(options, out, file)
    except KeyboardInterrupt:
        console.print(f"broken off; {file} has the rounds so far")
        return 130
    rows = soak_report.read_rows(file)
    findings += soak_report.over_budget(rows)
    verdicts = soak_report.judge(rows)
    soak_report.plot(rows, plot)
    soak_report.show(rows, verdicts, findings)
    if options.docs is not None:
        command = f"python benchmarks/soak.py --minutes {options.minutes:g} --seed {options.seed}"
        command += " --data PAGES" * (options.data is not None)
        soak_report.write_document(options.docs, plot, rows, findings, command)
    return int(bool(findings) or not all(verdict.is_flat for verdict in verdicts))


if __name__ == "__main__":
    exit_with(main)
