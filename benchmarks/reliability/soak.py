"""A soak: one process trains, validates, caches, predicts and asks a service, round after round; what grows is shown.

python -m benchmarks.reliability.soak --minutes 120 --seed 20 --out DIR                              # synthetic pages
python -m benchmarks.reliability.soak --minutes 120 --out DIR --data PAGES --docs docs/reliability.md
python -m benchmarks.reliability.soak --round 17 --seed 20 --out DIR        # one round alone, as a finding names it

Each round does everything once, in a random order. Epochs are interrupted and resumed, pages and labels are edited, and
other processes that share the cache are killed. Batches are compared with uncached ones, bit for bit. After each
round memory, descriptors, threads and disk are a line of DIR/soak.csv. The exit status is 1 if a sample was wrong,
something failed, or anything is not flat between the second quarter of the soak and the last.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gc
import io
import json
import logging
import multiprocessing
import os
import platform
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import date
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import torch
from PIL import Image, ImageDraw

from benchmarks.commands import served
from benchmarks.documents import read_part, replace_part, table_lines
from benchmarks.reliability.campaign.cases import FindingError, difference
from benchmarks.reliability.campaign.model_faults import Client, check_words
from benchmarks.reliability.campaign.pages import TINY
from ocr.atomic import replacing
from ocr.cache.store import open_store
from ocr.datasets import DBTransforms, OCRDataset
from ocr.deploy.detector import Detector
from ocr.errors import ConfigError, GlyphFeedError
from ocr.formats.names import IMAGE_EXTENSIONS
from ocr.loader import Loader
from ocr.models.detector import TextDetector
from ocr.models.load import save_detector
from ocr.models.loss import DBLoss
from ocr.models.settings import DetectorSettings
from ocr.pipeline.device import Normalize
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.suffix import ColourJitter, RandomFlip, RandomRotate, TextAwareCrop
from ocr.system import process_tree, usable_cores
from ocr.tools.cache import clear, ls
from ocr.tools.synth import synthesize

TRAIN, VAL, SIZE, BATCH, STEPS, PREDICTED = 32, 12, 320, 4, 3, 2
BUDGET_BYTES, OVERSHOOT = 3_000_000, 1.1
"""Of the cache, which has not room for the pages in all their sizes; a process counts others only now and then."""
OTHER_SIZES = (0.5, 0.625, 0.75, 0.875)
"""Of the pages that are cached besides, which come and go."""
KILL_SECONDS = 4.0
"""Other processes die at most so long after their start, most of them in the first second."""
REFUSALS = (400, 408, 415, 422, 429)
MIN_ROUNDS = 12
"""Three in each quarter: of fewer, a median says little."""
ACTIVITIES = ("read", "validate", "train", "fill", "predict", "serve")
Figures = dict[str, float]

# -- pages


class Pages:
    """A copy of the pages, and their originals in memory: each edit starts from those, so that edits do not add up."""

    def __init__(self, folder: Path, cache: Path, seed: int, size: int = SIZE) -> None:
        self.folder, self.cache, self.size, self.seed = folder, cache, size, seed
        self.files = {split: images_of(folder / "images" / split) for split in ("train", "val")}
        self.labels = {split: folder / "jsons" / f"{split}.json" for split in self.files}
        paths = [*self.labels.values(), *(path for paths in self.files.values() for path in paths)]
        self._original = {path: path.read_bytes() for path in paths}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_original": {}}  # Other processes do not edit.

    def open(self, split: str, cached: bool = True, random: bool = False, share: float = 1.0) -> OCRDataset:
        """A split; `share` of the usual size of pages."""
        stages = [Letterbox(round(self.size * share))]
        if random:
            stages += [TextAwareCrop(), RandomFlip(), RandomRotate(), stages[0], ColourJitter(p=0.8)]
        kept: dict[str, Any] = {"cache": "auto", "cache_folder": self.cache, "cache_max_bytes": BUDGET_BYTES}
        return OCRDataset(
            self.folder / "images" / split,
            self.labels[split],
            DBTransforms([*stages, Normalize()], normalize="device"),
            seed=self.seed,
            **(kept if cached else {"cache": "off"}),
        )

    def batches(self, split: str, epoch: int = 0, share: float = 1.0) -> list[Any]:
        """An epoch as it should be: made now, of what is on disk."""
        is_training = split == "train" and share == 1
        dataset = self.open(split, cached=False, random=is_training, share=share)
        loader = Loader(dataset, BATCH, 0, shuffle=is_training, seed=self.seed)
        loader.set_epoch(epoch)
        return list(loader)

    def edit(self, rng: Random) -> None:
        """Change a page or a label; a dataset that is opened after it must give another sample."""
        split = rng.choice(sorted(self.files))
        number = rng.randrange(len(self.files[split]))
        page, labels, before = self.files[split][number], self.labels[split], self._sample(split, number)
        path, data = page, page.read_bytes()
        while data == path.read_bytes():  # The same change might be drawn twice.
            path = rng.choice((page, labels))
            original = self._original[path]
            data = painted(original, rng) if path == page else moved(original, page.name, rng)
        with replacing(path) as stream:
            stream.write(data)
        if not difference(before, self._sample(split, number)):
            raise FindingError("wrong sample", f"an edit of {path} is not seen")

    def _sample(self, split: str, number: int) -> Any:
        return self.open(split, cached=False)[number]


def images_of(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_EXTENSIONS)
    if len(found) < 2 * BATCH:
        problem = f"{folder} has {len(found)} pages. A soak needs {2 * BATCH}"
        raise ConfigError(problem, setting="--data", value=len(found), path=folder)
    return found


def make_pages(folder: Path, data: Path | None, seed: int) -> None:
    """Synthetic pages, or a copy of the first ones of a dataset."""
    if data is None:
        synthesize(folder, train=TRAIN, val=VAL, seed=seed, megapixels=(0.3, 1.0), workers=1, show_progress=False)
        return
    (folder / "jsons").mkdir(parents=True)
    for split, count in (("train", TRAIN), ("val", VAL)):
        words = json.loads((data / "jsons" / f"{split}.json").read_bytes())["images"]
        chosen = [path for path in images_of(data / "images" / split) if path.name in words][:count]
        (folder / "images" / split).mkdir(parents=True)
        for path in chosen:
            shutil.copyfile(path, folder / "images" / split / path.name)
        labels = {"images": {path.name: words[path.name] for path in chosen}}
        (folder / "jsons" / f"{split}.json").write_text(json.dumps(labels))


def painted(original: bytes, rng: Random) -> bytes:
    """A page with a rectangle on it."""
    image = Image.open(io.BytesIO(original))
    kind, exif, image = image.format, image.getexif(), image.convert("RGB")
    left, top = (rng.randrange(side // 2) for side in image.size)
    box = left, top, left + image.width // 3, top + image.height // 3
    ImageDraw.Draw(image).rectangle(box, fill=tuple(rng.randrange(256) for _ in range(3)))
    stream = io.BytesIO()
    image.save(stream, kind, exif=exif)
    return stream.getvalue()


def moved(original: bytes, name: str, rng: Random) -> bytes:
    """Labels with the words of one page moved."""
    annotation = json.loads(original)
    right, down = (rng.choice((-1, 1)) * rng.uniform(2, 20) for _ in range(2))
    for word in annotation["images"][name]["words"].values():
        word["points"] = [[x + right, y + down] for x, y in word["points"]]
    return json.dumps(annotation).encode()


# -- other processes that share the cache


def elsewhere(pages: Pages, what: str, split: str, number: int, is_killed: bool, error: Path) -> None:
    """The program of one of them; `number` chooses threads to read with, or a size to fill."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    logging.basicConfig(filename=error.with_name("soak.log"))
    try:
        if what == "read":
            loader = Loader(pages.open(split, random=split == "train"), BATCH, (0, 2)[number % 2])
            while [*loader] and is_killed:
                pass
        elif what == "fill":
            pages.open(split, share=OTHER_SIZES[number]).fill_cache()
        elif what == "clear":
            clear(yes=True, folder=pages.cache)
        else:
            ls(folder=pages.cache)
    except BaseException:
        error.write_text(traceback.format_exc())
        sys.exit(1)


class Others:
    """Short-lived processes, forked by a server that has all libraries and no threads, and mostly killed."""

    def __init__(self, pages: Pages, out: Path) -> None:
        self._pages, self._error = pages, out / "error.txt"
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([name for name in sys.modules if name.startswith("ocr.")])
        self._started: list[tuple[Any, threading.Timer]] = []

    def start(self, rng: Random) -> None:
        """One or two of them."""
        self._error.unlink(missing_ok=True)
        for _ in range(rng.choice((1, 2))):
            (what,) = rng.choices(("read", "fill", "ls", "clear"), (50, 30, 15, 5))
            split, number, seconds = rng.choice(("train", "val")), rng.randrange(4), KILL_SECONDS * rng.random() ** 2
            is_killed = what != "ls" and rng.random() < 0.75
            given = (self._pages, what, split, number, is_killed, self._error)
            process = self._context.Process(target=elsewhere, args=given)
            timer = threading.Timer(seconds, process.kill if is_killed else int)
            process.start()
            timer.start()
            self._started.append((process, timer))

    def ended(self) -> list[tuple[int, str]]:
        """Status and error of those that were started last; no timer is left, which is a thread of this process."""
        statuses = []
        for process, timer in self._started:
            process.join()
            timer.cancel()
            timer.join()
            statuses.append(process.exitcode)
            process.close()
        self._started.clear()
        return [(status, self._error.read_text() if status == 1 else "") for status in statuses]


# -- the process that is watched


class Resident:
    """Datasets, loaders, a detector and a model that live as long as the soak."""

    def __init__(self, pages: Pages, out: Path, port: int) -> None:
        self.pages, self.client, self._out = pages, Client(port), out
        self.counts, self._epoch = Counter[str](), 0
        train, settings = pages.open("train", random=True), {"shuffle": True, "seed": pages.seed}
        self._loaders = [
            Loader(train, BATCH, 2, **settings),
            Loader(train, BATCH, 2, "processes", multiprocessing_context="fork", **settings),
        ]
        self._feed = Loader(train, BATCH, 2, device="cpu", **settings)
        self._validation, self._detector = Loader(pages.open("val"), BATCH, 2), Detector.load(threads=1)
        torch.manual_seed(pages.seed)
        self._model, self._loss = TextDetector(**TINY), DBLoss()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), 1e-4)

    def read(self, rng: Random) -> None:
        """An epoch of random samples, half of the time interrupted and resumed; threads, or processes now and then."""
        loader, found = self._loaders[rng.random() < 0.25], []
        self._epoch += 1
        loader.set_epoch(self._epoch)
        if rng.random() < 0.5:
            stop = rng.randrange(1, len(loader))
            for batch in loader:
                found.append(batch)
                if len(found) == stop:
                    state = loader.state_dict()
                    break
            loader.load_state_dict(state)
            self.counts["interrupted"] += 1
        self._compare([*found, *loader], self.pages.batches("train", self._epoch))

    def validate(self, rng: Random) -> None:
        """An epoch without random stages."""
        self._compare(list(self._validation), self.pages.batches("val"))

    def train(self, rng: Random) -> None:
        """A few steps of a small model, then the epoch is interrupted and the weights are written."""
        self._epoch += 1
        self._feed.set_epoch(self._epoch)
        for _, batch in zip(range(STEPS), self._feed, strict=False):
            loss, _ = self._loss(self._model(batch["images"]), batch)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        self.counts["interrupted"] += 1
        settings = DetectorSettings(TINY, letterbox={"size": self.pages.size})
        save_detector(self._out / "trained.safetensors", self._model, settings)

    def fill(self, rng: Random) -> None:
        """A dataset that is opened, cached in another size, and closed; caches beyond the budget are removed."""
        split, share = rng.choice(("train", "val")), rng.choice(OTHER_SIZES)
        dataset = self.pages.open(split, share=share)
        dataset.fill_cache(threads=2)
        self._compare(list(Loader(dataset, BATCH, 2)), self.pages.batches(split, share=share))

    def predict(self, rng: Random) -> None:
        """Text on a few pages, in threads; now and then with a detector that is loaded again."""
        if rng.random() < 0.1:
            self._detector = Detector.load(threads=1)
        paths = rng.sample(self.pages.files["val"], PREDICTED)
        found = [page.name for page in self._detector.stream(paths, batch_size=2)]
        if found != list(map(str, paths)):
            raise FindingError("wrong sample", f"predictions of {found} instead of {paths}")

    def serve(self, rng: Random) -> None:
        """Pages from two clients at once, one alone whose answer is compared, garbage, and an upload cut off."""
        bodies = [path.read_bytes() for path in rng.sample(self.pages.files["val"], PREDICTED)]
        with ThreadPoolExecutor(2) as clients:
            answers = [*clients.map(self.client.detect, bodies), self.client.detect(bodies[0])]
        if {answer.status for answer in answers} != {200}:
            raise FindingError("crash", f"the service said {[answer.status for answer in answers]}")
        self.counts["compared"] += 1
        check_words(answers[-1].body, json.dumps({"pages": [self._detector(bodies[0]).to_dict()]}).encode())
        refused = self.client.detect(rng.randbytes(rng.randrange(1, 100_000)))
        if refused.status not in REFUSALS:
            raise FindingError("crash", f"the service said {refused.status} to garbage")
        self.client.cut_upload(10_000, rng.randbytes(rng.randrange(1, 9_000)), rng)

    def _compare(self, found: list[Any], expected: list[Any]) -> None:
        if len(found) != len(expected):
            raise FindingError("silent skip", f"{len(found)} batches instead of {len(expected)}")
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            self.counts["compared"] += len(other["image_filename"])
            if where := difference(one, other):
                raise FindingError("wrong sample", f"batch {number} differs at {where}: {other['image_filename']}")


# -- rounds


def reading(process: int, name: str) -> Figures:
    """What a process has now. Own memory is without pages of files, which the system can take back."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    megabytes = {line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines}
    figures = {
        "own memory, MB": round(megabytes["Pss_Anon"] + megabytes["Pss_Shmem"], 1),
        "descriptors": len(os.listdir(f"/proc/{process}/fd")),
        "threads": len(os.listdir(f"/proc/{process}/task")),
        "child processes": len(process_tree(process)) - 1,
        "mappings": Path(f"/proc/{process}/maps").read_text(encoding="utf-8").count("\n"),
    }
    return {f"{name}: {what}": value for what, value in figures.items()}


def disk_reading(out: Path, cache: Path) -> Figures:
    """Bytes and files below the folder, and shared memory that is named after one of our processes."""
    sizes = []
    for path in out.rglob("*"):
        with suppress(OSError):  # Removed since by another process.
            sizes += [path.stat().st_blocks * 512] if path.is_file() else []
    shared = re.compile(rf"(?<!\d)({'|'.join(map(str, process_tree(os.getpid())))})(?!\d)")
    return {
        "disk, MB": round(sum(sizes) / 1e6, 1),
        "cache, MB": round(open_store(cache).used_bytes() / 1e6, 1),
        "files": len(sizes),
        "files in /dev/shm": sum(bool(shared.search(name)) for name in os.listdir("/dev/shm")),
    }


def run_round(number: int, seed: int, resident: Resident, others: Others, findings: list[str]) -> None:
    """Everything once, with an edit or two in between."""
    rng, counts, where = Random(f"{seed}:{number}"), resident.counts, f"--seed {seed} --round {number}"
    others.start(rng)
    steps = [*ACTIVITIES, *["edit"] * rng.choice((1, 2))]
    rng.shuffle(steps)
    for step in steps:
        counts["edits"] += step == "edit"
        try:
            (resident.pages.edit if step == "edit" else getattr(resident, step))(rng)
        except Exception as error:  # The soak continues; its exit status is 1.
            counts["wrong"] += getattr(error, "kind", "") == "wrong sample"
            findings.append(f"{where}, {step}: {type(error).__name__}: {error}")
    for status, text in others.ended():
        counts["processes"] += 1
        counts["kills"] += status == -signal.SIGKILL
        if status not in (0, -signal.SIGKILL):
            findings.append(f"{where}, another process ended with {status}: {text}")


def run(options: argparse.Namespace, out: Path, findings: list[str]) -> tuple[list[Figures], Counter[str]]:
    """Rounds until the time or their number is over."""
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=out / "soak.log", format="%(asctime)s %(message)s")
    make_pages(out / "pages", options.data, options.seed)
    pages, rows = Pages(out / "pages", out / "cache", options.seed), list[Figures]()
    os.environ["GLYPHFEED_CACHE"] = str(pages.cache)  # Of other processes too: nothing is kept elsewhere.
    with served("--threads", "1") as (port, service), (out / "soak.csv").open("w", newline="") as stream:
        others, resident, begun = Others(pages, out), Resident(pages, out, port), time.monotonic()
        for number in range(1, options.rounds + 1) if options.round is None else (options.round,):
            run_round(number, options.seed, resident, others, findings)
            gc.collect()
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)  # Only what is in use counts as growth.
            figures: Figures = {"minutes": round((time.monotonic() - begun) / 60, 3)}
            figures |= (
                reading(os.getpid(), "resident") | reading(service.pid, "service") | disk_reading(out, pages.cache)
            )
            if figures["cache, MB"] > OVERSHOOT * BUDGET_BYTES / 1e6:
                findings.append(f"after round {number} the cache takes {figures['cache, MB']:.1f} MB: too much")
            rows.append(figures)
            writer = csv.DictWriter(stream, [*figures])
            if len(rows) == 1:
                writer.writeheader()
            writer.writerow(figures)
            stream.flush()
            print(f"round {number}, {figures['minutes']:.1f} min, {len(findings)} findings", flush=True)
            if figures["minutes"] >= options.minutes:
                break
    return rows, resident.counts


# -- the result


class Rule(NamedTuple):
    """How much larger the median of the last quarter can be than the median of the second: a share, or a number."""

    column: str
    share: float
    more: float

    def judge(self, rows: Sequence[Figures]) -> tuple[list[str], bool]:
        """A row of the table, and whether it is flat. The first quarter does not count: libraries load, caches fill."""
        quarter = len(rows) // 4
        second, last = rows[quarter : 2 * quarter], rows[-quarter:]
        early, late = (median(row[self.column] for row in part) for part in (second, last))
        hours = (median(row["minutes"] for row in last) - median(row["minutes"] for row in second)) / 60
        is_flat = late - early <= max(self.share * early, self.more)
        shown = [f"{early:,.1f}", f"{late:,.1f}", f"{(late - early) / max(hours, 1e-9):+,.1f}"]
        return [self.column, *shown, f"+{self.share:.0%} or {self.more:g}", "yes" if is_flat else "no"], is_flat


LIMITS = {
    "own memory, MB": (0.05, 24),
    "descriptors": (0, 1),
    "threads": (0, 1),
    "child processes": (0, 0),
    "mappings": (0.1, 32),
}
RULES = [
    *(Rule(f"{name}: {what}", *limits) for what, limits in LIMITS.items() for name in ("resident", "service")),
    *(Rule("disk, MB", 0.1, 8), Rule("files", 0.1, 4), Rule("files in /dev/shm", 0, 0)),
]
HEADINGS = ("", "second quarter", "last quarter", "change per hour", "allowed", "flat")


def lines_of(rows: Sequence[Figures], counts: Counter[str], findings: Sequence[str]) -> tuple[list[str], bool]:
    """What was done, what went wrong, and the table; and whether all is well."""
    verdicts = [rule.judge(rows) for rule in RULES] if len(rows) >= MIN_ROUNDS else []
    table = table_lines(HEADINGS, [cells for cells, _ in verdicts])
    summary = (
        f"{len(rows)} rounds in {rows[-1]['minutes']:.0f} minutes: {counts['compared']:,} samples and answers "
        f"compared, {counts['wrong']} wrong; {counts['interrupted']:,} epochs interrupted, {counts['edits']} edits, "
        f"{counts['processes']} other processes, {counts['kills']} of them killed; {len(findings)} findings."
    )
    short = [f"Fewer than {MIN_ROUNDS} rounds: too short to judge."]
    is_well = not findings and all(is_flat for _, is_flat in verdicts)
    return [summary, *(f"- {finding}" for finding in findings), "", *(table if verdicts else short)], is_well


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120, help="how long (default: 120)")
    parser.add_argument("--rounds", type=int, default=10**9, help="end after so many rounds")
    parser.add_argument("--round", type=int, help="this round alone")
    parser.add_argument("--seed", type=int, default=20, help="of all random choices (default: 20)")
    parser.add_argument("--out", type=Path, required=True, help="new folder: pages, cache, soak.csv")
    parser.add_argument("--data", type=Path, help="dataset whose pages are copied, instead of synthetic pages")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="write the table into docs/reliability.md")
    options = parser.parse_args(arguments)
    out, findings = options.out.resolve(), list[str]()
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{options.out} is not empty. Choose a new folder", setting="--out", path=out)
    if options.docs:
        read_part(options.docs, "soak")  # A document without the marks is refused before the hours begin.
    rows, counts = run(options, out, findings)
    lines, is_well = lines_of(rows, counts, findings)
    print("\n".join(lines))
    if options.docs:
        command = f"python -m benchmarks.reliability.soak --minutes {options.minutes:g} --seed {options.seed}"
        command += " --data PAGES" * (options.data is not None)
        machine = f"{date.today().isoformat()}, {usable_cores()} CPU cores, Python {platform.python_version()}"
        replace_part(options.docs, "soak", [f"{machine}, `{command}`:", "", *lines])
    return int(not is_well)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GlyphFeedError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; soak.csv has the rounds so far")
