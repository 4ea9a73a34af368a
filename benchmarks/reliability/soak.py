"""A soak: one process trains, validates, caches, predicts and asks a service, round after round; what grows is shown.

python -m benchmarks.reliability.soak --minutes 120 --seed 20 --out DIR                              # synthetic pages
python -m benchmarks.reliability.soak --minutes 120 --out DIR --data PAGES --docs docs/reliability.md
python -m benchmarks.reliability.soak --round 17 --seed 20 --out DIR        # one round alone, as a finding names it

Each round does everything once, in a random order. Epochs are broken off and resumed, pages and labels are edited, and
other processes that share the cache are killed. Batches are compared with uncached ones, bit for bit. After each
round memory, descriptors, threads, disk and speed are a line of DIR/soak.csv. The exit status is 1 if a sample was
wrong, something failed, or anything is not flat between the second quarter of the soak and the last.
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
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch
from PIL import Image, ImageDraw

from benchmarks.documents import read_part, replace_part, table_lines
from benchmarks.pictures import picture
from benchmarks.reliability.campaign.cases import FindingError, difference
from benchmarks.reliability.campaign.model_faults import Client, check_words
from benchmarks.reliability.campaign.pages import TINY
from benchmarks.served import served
from ocr.atomic import replacing
from ocr.cache.folder import disk_bytes, list_stores
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
from ocr.tools.cache.clear import clear
from ocr.tools.cache.report import print_stats
from ocr.tools.cache.verify import verify
from ocr.tools.synth import synthesize

BATCH_SIZE, STEPS, VALIDATIONS, PREDICTED = 4, 3, 5, 2
BUDGET_PAGES, BYTES_PER_PIXEL, OVERSHOOT = 2.5, 3 + 4 + 4 + 1 + 1, 1.1
"""Of all caches together: so many times the pages of both splits; a cache counts others only now and then."""
OTHER_SIZES = (0.5, 0.625, 0.75, 0.875)
"""Of the pages in further caches, which come and go because they do not all fit into the budget."""
KILL_SECONDS, ENDLESS = 4.0, 100_000
"""Other processes die at most so long after their start, most of them in the first second."""
REFUSALS = (400, 408, 415, 422, 429)
MIN_ROUNDS = 12
"""Three in each quarter: of fewer, a median says little."""
ACTIVITIES, PROCESSES = ("read", "validate", "train", "fill", "predict", "serve"), ("resident", "service")
COUNTED = ("broken_off", "edits", "processes", "kills", "compared", "wrong")
SHOWN = ("resident_own_mb", "service_own_mb", "resident_descriptors", "disk_mb", "findings")
Figures = dict[str, float]


# -- pages


class Pages:
    """A copy of the pages, and their originals in memory: each edit starts from those, so that edits do not add up."""

    def __init__(self, folder: Path, cache: Path, size: int, seed: int) -> None:
        self.folder, self.cache, self.size, self.seed = folder, cache, size, seed
        self.files = {split: images_of(folder / "images" / split) for split in ("train", "val")}
        self.labels = {split: folder / "jsons" / f"{split}.json" for split in self.files}
        paths = [*self.labels.values(), *(path for paths in self.files.values() for path in paths)]
        self._original = {path: path.read_bytes() for path in paths}
        self.budget_bytes = round(BUDGET_PAGES * len(paths) * size * size * BYTES_PER_PIXEL)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_original": {}}  # Other processes do not edit.

    def open(self, split: str, cached: bool, random: bool | None = None, share: float = 1.0) -> OCRDataset:
        """A split with its stages, random ones for training; `share` of the usual size of pages."""
        size = round(self.size * share)
        stages = [Letterbox(size)]
        if split == "train" if random is None else random:
            stages += [TextAwareCrop(), RandomFlip(), RandomRotate(), Letterbox(size), ColourJitter(p=0.8)]
        return OCRDataset(
            self.folder / "images" / split,
            self.labels[split],
            DBTransforms([*stages, Normalize()], normalize="device"),
            seed=self.seed,
            cache="auto" if cached else "off",
            cache_folder=self.cache if cached else self.cache.with_name("uncached"),
            cache_max_total_bytes=self.budget_bytes,
        )

    def batches(self, split: str, epoch: int = 0, share: float = 1.0) -> list[Any]:
        """An epoch as it should be: made now, of what is on disk."""
        is_training = split == "train" and share == 1
        dataset = self.open(split, cached=False, random=is_training, share=share)
        loader = Loader(dataset, BATCH_SIZE, 0, shuffle=is_training, seed=self.seed)
        loader.set_epoch(epoch)
        return list(loader)

    def edit(self, rng: Random) -> None:
        """Change a page or a label; a dataset that is opened after it must give another sample."""
        split = rng.choice(sorted(self.files))
        number = rng.randrange(len(self.files[split]))
        page, labels, before = self.files[split][number], self.labels[split], self._sample(split, number)
        path, data = page, page.read_bytes()
        while data == path.read_bytes():  # The same change may be drawn twice.
            path = rng.choice((page, labels))
            original = self._original[path]
            data = painted(original, rng) if path == page else moved(original, page.name, rng)
        with replacing(path) as stream:
            stream.write(data)
        if not difference(before, self._sample(split, number)):
            raise FindingError("wrong sample", f"an edit of {path} is not seen")

    def _sample(self, split: str, number: int) -> Any:
        return self.open(split, cached=False, random=False)[number]


def images_of(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_EXTENSIONS)
    if len(found) < 2 * BATCH_SIZE:
        problem = f"{folder} has {len(found)} pages. A soak needs {2 * BATCH_SIZE}"
        raise ConfigError(problem, setting="--data", value=len(found), path=folder)
    return found


def make_pages(folder: Path, data: Path | None, train: int, val: int, seed: int) -> None:
    """Synthetic pages, or a copy of the first ones of a dataset."""
    if data is None:
        synthesize(folder, train=train, val=val, seed=seed, megapixels=(0.3, 1.0), workers=1, show_progress=False)
        return
    (folder / "jsons").mkdir(parents=True)
    for split, count in (("train", train), ("val", val)):
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


def keep_log(out: Path) -> None:
    logging.basicConfig(filename=out / "soak.log", format="%(asctime)s %(message)s")


def elsewhere(pages: Pages, what: str, split: str, number: int, epochs: int, error: Path) -> None:
    """The program of one of them; `number` chooses threads to read with, or a size to fill."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    keep_log(error.parent)
    try:
        if what == "read":
            loader = Loader(pages.open(split, cached=True), BATCH_SIZE, (0, 2)[number % 2], shuffle=split == "train")
            for _ in range(epochs):
                for _ in loader:
                    pass
        elif what == "fill":
            pages.open(split, cached=True, random=False, share=OTHER_SIZES[number]).fill_cache()
        elif what == "clear":
            clear(pages.cache, (), None, None, dry_run=False, yes=True)
        else:  # `ocr cache stats` and `ocr cache verify`
            print_stats(pages.cache, (), as_json=True)
            with redirect_stdout(io.StringIO()) as told:
                if verify(pages.cache, (), repair=False):
                    raise FindingError("wrong sample", told.getvalue())
    except BaseException:
        error.write_text(traceback.format_exc())
        sys.exit(1)


class Others:
    """Short-lived processes, forked by a server that has all libraries and no threads, and mostly killed."""

    def __init__(self, pages: Pages) -> None:
        self._pages, self._error = pages, pages.cache.with_name("error.txt")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([name for name in sys.modules if name.startswith("ocr.")])
        self._started: list[tuple[Any, threading.Timer]] = []

    def start(self, rng: Random) -> None:
        """One or two of them."""
        self._error.unlink(missing_ok=True)
        for _ in range(rng.choice((1, 2))):
            (what,) = rng.choices(("read", "fill", "look", "clear"), (50, 30, 15, 5))
            split, number, seconds = rng.choice(("train", "val")), rng.randrange(4), KILL_SECONDS * rng.random() ** 2
            is_killed = what != "look" and rng.random() < 0.75
            given = (self._pages, what, split, number, ENDLESS if is_killed else 2, self._error)
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

    def __init__(self, pages: Pages, out: Path, port: int, service: int) -> None:
        self.pages, self.client, self._service, self._out = pages, Client(port), service, out
        self.counts, self._epoch = Counter[str](), 0
        train, settings = pages.open("train", cached=True), {"shuffle": True, "seed": pages.seed}
        self._loaders = [
            Loader(train, BATCH_SIZE, 2, **settings),
            Loader(train, BATCH_SIZE, 2, "processes", multiprocessing_context="fork", **settings),
        ]
        self._feed = Loader(train, BATCH_SIZE, 2, device="cpu", **settings)
        self._validation = Loader(pages.open("val", cached=True), BATCH_SIZE, 2)
        self._detector = Detector.load(threads=1)
        torch.manual_seed(pages.seed)
        self._model, self._loss = TextDetector(**TINY), DBLoss()
        self._optimizer = torch.optim.AdamW(self._model.parameters(), 1e-4)

    def run(self, step: str, rng: Random) -> Figures:
        """Pages per second and per CPU second of one activity."""
        process = self._service if step == "serve" else None
        cpu, start = cpu_seconds(process), time.monotonic()
        pages, check = getattr(self, step)(rng)
        seconds, used = time.monotonic() - start, cpu_seconds(process) - cpu
        check()
        return {f"{step}_pages_s": round(pages / seconds, 2), f"{step}_pages_cpu_s": round(pages / max(used, 1e-3), 2)}

    def read(self, rng: Random) -> tuple[int, Any]:
        """An epoch of random samples, half of the time broken off and resumed; threads, or processes now and then."""
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
            self.counts["broken_off"] += 1
        found += list(loader)
        return len(self.pages.files["train"]), lambda: self._compare(found, self.pages.batches("train", self._epoch))

    def validate(self, rng: Random) -> tuple[int, Any]:
        """Epochs without random stages; one alone takes milliseconds."""
        for _ in range(VALIDATIONS):
            found = list(self._validation)
        pages = VALIDATIONS * len(self.pages.files["val"])
        return pages, lambda: self._compare(found, self.pages.batches("val"))

    def train(self, rng: Random) -> tuple[int, Any]:
        """A few steps of a small model, then the epoch is broken off and the weights are written."""
        self._epoch += 1
        self._feed.set_epoch(self._epoch)
        for _, batch in zip(range(STEPS), self._feed, strict=False):
            loss, _ = self._loss(self._model(batch["images"]), batch)
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        self.counts["broken_off"] += 1
        settings = DetectorSettings(TINY, letterbox={"size": self.pages.size})
        save_detector(self._out / "trained.safetensors", self._model, settings)
        return STEPS * BATCH_SIZE, lambda: None

    def fill(self, rng: Random) -> tuple[int, Any]:
        """A dataset that is opened, cached in another size, and closed; caches beyond the budget are removed."""
        split, share = rng.choice(("train", "val")), rng.choice(OTHER_SIZES)
        dataset = self.pages.open(split, cached=True, random=False, share=share)
        dataset.fill_cache(threads=2)

        def check() -> None:
            self._compare(list(Loader(dataset, BATCH_SIZE, 2)), self.pages.batches(split, share=share))

        return len(dataset), check

    def predict(self, rng: Random) -> tuple[int, Any]:
        """Text on a few pages, in threads; now and then with a detector that is loaded again."""
        if rng.random() < 0.1:
            self._detector = Detector.load(threads=1)
        paths = rng.sample(self.pages.files["val"], PREDICTED)
        found = [page.name for page in self._detector.stream(paths, batch_size=2)]
        if found != list(map(str, paths)):
            raise FindingError("wrong sample", f"predictions of {found} instead of {paths}")
        return len(found), lambda: None

    def serve(self, rng: Random) -> tuple[int, Any]:
        """Pages from two clients at once, one alone whose answer is compared, garbage, and an upload cut off."""
        bodies = [path.read_bytes() for path in rng.sample(self.pages.files["val"], PREDICTED)]
        with ThreadPoolExecutor(2) as clients:
            answers = [*clients.map(self.client.detect, bodies), self.client.detect(bodies[0])]

        def check() -> None:
            if {answer.status for answer in answers} != {200}:
                raise FindingError("crash", f"the service said {[answer.status for answer in answers]}")
            self.counts["compared"] += 1
            check_words(answers[-1].body, json.dumps({"pages": [self._detector(bodies[0]).to_dict()]}).encode())
            refused = self.client.detect(rng.randbytes(rng.randrange(1, 100_000)))
            if refused.status not in REFUSALS:
                raise FindingError("crash", f"the service said {refused.status} to garbage")
            self.client.cut_upload(10_000, rng.randbytes(rng.randrange(1, 9_000)), rng)

        return len(answers), check

    def _compare(self, found: list[Any], expected: list[Any]) -> None:
        if len(found) != len(expected):
            raise FindingError("silent skip", f"{len(found)} batches instead of {len(expected)}")
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            self.counts["compared"] += len(other["image_filename"])
            if where := difference(one, other):
                raise FindingError("wrong sample", f"batch {number} differs at {where}: {other['image_filename']}")


def cpu_seconds(process: int | None) -> float:
    """Of this process and of children that have ended, or of another process."""
    if process is None:
        used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used)
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


# -- rounds


def reading(process: int, name: str) -> Figures:
    """What a process has now. Own memory is without pages of files, which the system can take back."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    megabytes = {line.split(":")[0]: int(line.split()[1]) * 1024 / 1e6 for line in lines}
    figures = {
        "own_mb": round(megabytes["Pss_Anon"] + megabytes["Pss_Shmem"], 1),
        "rss_mb": round(megabytes["Rss"], 1),
        "descriptors": len(os.listdir(f"/proc/{process}/fd")),
        "threads": len(os.listdir(f"/proc/{process}/task")),
        "children": len(process_tree(process)) - 1,
        "mappings": Path(f"/proc/{process}/maps").read_text(encoding="utf-8").count("\n"),
    }
    return {f"{name}_{what}": value for what, value in figures.items()}


def disk_reading(out: Path, pages: Pages) -> Figures:
    """Bytes and files below the folder, and shared memory that is named after one of our processes."""
    sizes = []
    for path in out.rglob("*"):
        with suppress(OSError):  # Removed since by another process.
            sizes += [path.stat().st_blocks * 512] if path.is_file() else []
    shared = "|".join(map(str, process_tree(os.getpid())))
    return {
        "disk_mb": round(sum(sizes) / 1e6, 1),
        "cache_mb": round(sum(map(disk_bytes, list_stores(pages.cache))) / 1e6, 1),
        "budget_mb": round(pages.budget_bytes / 1e6, 1),
        "files": len(sizes),
        "shm_files": sum(bool(re.search(rf"(?<!\d)({shared})(?!\d)", name)) for name in os.listdir("/dev/shm")),
    }


def _release_memory() -> None:
    """Return freed memory to the system, so that only what is in use counts as growth."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def run_round(number: int, seed: int, resident: Resident, others: Others, findings: list[str]) -> Figures:
    """Everything once, with an edit or two in between."""
    rng, speeds, counts = Random(f"{seed}:{number}"), Figures(), resident.counts
    where = f"--seed {seed} --round {number}"
    others.start(rng)
    steps = [*ACTIVITIES, *["edit"] * rng.choice((1, 2))]
    rng.shuffle(steps)
    for step in steps:
        try:
            if step == "edit":
                counts["edits"] += 1
                resident.pages.edit(rng)
            else:
                speeds |= resident.run(step, rng)
        except Exception as error:  # The soak goes on; its exit status is 1.
            counts["wrong"] += getattr(error, "kind", "") == "wrong sample"
            findings.append(f"{where}, {step}: {type(error).__name__}: {error}")
    for status, text in others.ended():
        counts["processes"] += 1
        counts["kills"] += status == -signal.SIGKILL
        if status not in (0, -signal.SIGKILL):
            findings.append(f"{where}, another process ended with {status}: {text}")
    return speeds


def run(options: argparse.Namespace, out: Path, findings: list[str]) -> list[Figures]:
    """Rounds until the time or their number is over."""
    out.mkdir(parents=True, exist_ok=True)
    keep_log(out)
    make_pages(out / "pages", options.data, options.train, options.val, options.seed)
    pages, rows = Pages(out / "pages", out / "cache", options.size, options.seed), list[Figures]()
    os.environ["GLYPHFEED_CACHE"] = str(pages.cache)  # Of other processes too: nothing is kept elsewhere.
    columns = [f"{name}_pages{per}_s" for name in ACTIVITIES for per in ("", "_cpu")]
    with served("--threads", "1") as (port, service), (out / "soak.csv").open("w", newline="") as stream:
        others, resident, begun = Others(pages), Resident(pages, out, port, service.pid), time.monotonic()
        for number in range(1, options.rounds + 1) if options.round is None else (options.round,):
            speeds = run_round(number, options.seed, resident, others, findings)
            _release_memory()
            figures: Figures = {"round": number, "minutes": round((time.monotonic() - begun) / 60, 3)}
            figures |= reading(os.getpid(), "resident") | reading(service.pid, "service") | disk_reading(out, pages)
            figures |= {name: resident.counts[name] for name in COUNTED} | {"findings": len(findings)}
            if figures["cache_mb"] > OVERSHOOT * figures["budget_mb"]:
                findings.append(f"after round {number} caches take {figures['cache_mb']:.0f} MB: too much")
            writer = csv.DictWriter(stream, [*figures, *columns])
            if not rows:
                writer.writeheader()
            rows.append(figures | speeds)
            writer.writerow(rows[-1])
            stream.flush()
            told = ", ".join(f"{name} {figures[name]:g}" for name in SHOWN)
            print(f"round {number}, {figures['minutes']:.1f} min: {told}", flush=True)
            if figures["minutes"] >= options.minutes:
                break
    return rows


# -- the result


@dataclass(frozen=True)
class Rule:
    """How much larger the median of the last quarter may be than the median of the second: a share, or a number."""

    title: str
    column: str
    share: float = 0.0
    more: float = 0.0
    falls: bool = False
    """Smaller is what must not be: speed."""

    def judge(self, rows: Sequence[Figures]) -> tuple[list[str], bool] | None:
        """A row of the table, and whether it is flat; None if the soak was too short. The first quarter does not count:
        libraries load, caches fill, the allocator finds its size."""
        known = [row for row in rows if self.column in row]
        if len(known) < MIN_ROUNDS:
            return None
        quarter = len(known) // 4
        second, last = known[quarter : 2 * quarter], known[-quarter:]
        early, late = (median(row[self.column] for row in part) for part in (second, last))
        hours = (median(row["minutes"] for row in last) - median(row["minutes"] for row in second)) / 60
        is_flat = (early - late if self.falls else late - early) <= max(self.share * early, self.more)
        parts = [f"{self.share:.0%}"] * bool(self.share) + [f"{self.more:g}"] * bool(self.more or not self.share)
        allowed = f"{'-' if self.falls else '+'}{' or '.join(parts)}"
        change = (late - early) / max(hours, 1e-9)
        shown = [f"{early:,.1f}", f"{late:,.1f}", f"{change:+,.1f}"]
        return [self.title, *shown, allowed, "yes" if is_flat else "no"], is_flat


SLOWER = dict.fromkeys(ACTIVITIES, 0.3) | {"fill": 0.6}
"""By which share each may be slower. Of what is to be filled, more or less is there already."""
RULES = (
    *(Rule(f"{name}: own memory, MB", f"{name}_own_mb", 0.05, 24) for name in PROCESSES),
    *(Rule(f"{name}: descriptors", f"{name}_descriptors", more=1) for name in PROCESSES),
    *(Rule(f"{name}: threads", f"{name}_threads", more=1) for name in PROCESSES),
    *(Rule(f"{name}: mappings", f"{name}_mappings", 0.1, 32) for name in PROCESSES),
    *(Rule(f"{name}: child processes", f"{name}_children") for name in PROCESSES),
    Rule("disk, MB", "disk_mb", 0.1, 8),
    Rule("files", "files", 0.1, 4),
    Rule("files in /dev/shm", "shm_files"),
    *(Rule(f"{name}: pages per CPU second", f"{name}_pages_cpu_s", SLOWER[name], falls=True) for name in ACTIVITIES),
)
HEADINGS = ("", "second quarter", "last quarter", "change per hour", "allowed", "flat")


def lines_of(rows: Sequence[Figures], findings: Sequence[str], verdicts: Sequence[Sequence[str]]) -> list[str]:
    """What was done, what went wrong, and the table."""
    last = {name: round(value) for name, value in rows[-1].items()}
    summary = (
        f"{len(rows)} rounds in {last['minutes']} minutes: {last['compared']:,} samples and answers compared, "
        f"{last['wrong']} wrong; {last['broken_off']:,} epochs broken off, {last['edits']} edits, "
        f"{last['processes']} other processes, {last['kills']} of them killed; {len(findings)} findings."
    )
    table = table_lines(HEADINGS, verdicts) if verdicts else [f"Fewer than {MIN_ROUNDS} rounds: too short to judge."]
    return [summary, *(f"- {finding}" for finding in findings), "", *table]


def plot(rows: Sequence[Figures], path: Path) -> None:
    """Small multiples over the minutes."""
    panels = {
        "memory, MB (own: without pages of files)": r"_(own|rss)_mb$",
        "descriptors, threads, child processes": r"_(descriptors|threads|children)$",
        "disk, MB": r"^(disk|cache|budget)_mb$",
        "files; mappings of memory": r"^(shm_)?files$|_mappings$",
        "pages per second": r"_pages_s$",
        "pages per CPU second": r"_pages_cpu_s$",
    }
    with picture(path, 3, 2, figsize=(12, 11), sharex=True) as (_, grid):
        for axes, (title, pattern) in zip(grid.flat, panels.items(), strict=True):
            for column in (name for name in rows[0] if re.search(pattern, name)):
                known = [(row["minutes"], row[column]) for row in rows if column in row]
                label = re.sub("_pages.*|_mb", "", column).replace("_", " ")
                axes.plot(*zip(*known, strict=True), label=label, linewidth=1)
            axes.set_title(title, fontsize=10)
            axes.grid(alpha=0.3)
            axes.set_yscale("log") if "per" in title else axes.set_ylim(bottom=0)
            axes.legend(fontsize=7, ncols=2)
        for axes in grid[-1]:
            axes.set_xlabel("minutes")


OPTIONS: dict[str, tuple[Any, Any, str]] = {
    "minutes": (float, 120, "how long"),
    "rounds": (int, 10**9, "end after so many rounds"),
    "round": (int, None, "this round alone"),
    "seed": (int, 20, "of all random choices"),
    "out": (Path, None, "new folder: pages, cache, soak.csv and soak.png"),
    "data": (Path, None, "dataset whose pages are copied, instead of synthetic pages"),
    "train": (int, 32, "pages for training"),
    "val": (int, 12, "pages for validation"),
    "size": (int, 320, "longer side of pages in a batch"),
    "docs": (Path, None, "write table and plot into docs/reliability.md"),
}


def main() -> int:
    what = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (kind, default, text) in OPTIONS.items():
        shown = text if default is None else f"{text} (default: %(default)s)"
        what.add_argument(f"--{name}", type=kind, default=default, required=name == "out", help=shown)
    options = what.parse_args()
    out, findings = options.out.resolve(), list[str]()
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{options.out} is not empty. Choose a new folder", setting="--out", path=out)
    if options.docs:
        read_part(options.docs, "soak")  # A document without the marks is refused before the hours begin.
    rows = run(options, out, findings)
    verdicts = [verdict for rule in RULES if (verdict := rule.judge(rows))]
    lines = lines_of(rows, findings, [cells for cells, _ in verdicts])
    plot(rows, out / "soak.png")
    print("\n".join(lines))
    if options.docs:
        shutil.copyfile(out / "soak.png", options.docs.parent / "pictures" / "soak.png")
        command = f"python -m benchmarks.reliability.soak --minutes {options.minutes:g} --seed {options.seed}"
        command += " --data PAGES" * (options.data is not None)
        machine = f"{date.today().isoformat()}, {usable_cores()} CPU cores, Python {platform.python_version()}"
        picture = "![Memory, descriptors, threads, disk and speed over the minutes of a soak](pictures/soak.png)"
        replace_part(options.docs, "soak", [f"{machine}, `{command}`:", "", *lines, "", picture])
    return int(bool(findings) or not all(is_flat for _, is_flat in verdicts))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except GlyphFeedError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("interrupted; soak.csv has the rounds so far")
