"""Benchmark: epochs of one split in several configurations, which take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from omegaconf import DictConfig

from ocr.advisor.catalogue import BASELINE, Configuration
from ocr.advisor.measure.bench_data import Places, link_pages, prepare, stored_bytes
from ocr.advisor.measure.bench_epochs import DataEpochs, Epoch, ModelEpochs, compose
from ocr.advisor.measure.other_processes import Others
from ocr.advisor.measure.process_memory import MemoryWatch
from ocr.advisor.measure.temporary_folder import temporary_folder
from ocr.cache.folder import cache_root
from ocr.datasets.build import build_dataset
from ocr.errors import GlyphFeedError
from ocr.jobs.compose import compose_training
from ocr.malloc import keep_freed_memory

ENOUGH_SECONDS = 0.3
MOST_EPOCHS = 5
"""Epochs of a turn, where they are so short that one tells little."""
Tick = Callable[[str], None]
"""Called with what comes next; with nothing where somebody else draws on the screen."""


class Settings(NamedTuple):
    """What is read, and how often."""

    split: str = "val"
    rounds: int = 3
    pages: int = 256
    folder: str | None = None


@dataclass
class Row:
    """One configuration, and what was measured of it."""

    configuration: Configuration
    split: str
    engine: str = ""
    workers: int | None = None
    pages: int = 0
    """Of an epoch."""
    prepare_s: float = 0.0
    """Writing maps or shards, once."""
    first_s: float | None = None
    """Opening the split included, and with it filling a cache that is filled ahead."""
    later: list[Epoch] = field(default_factory=list)
    memory_bytes: int | None = None
    """By how much this process and its workers grew, at most."""
    stored_bytes: int | None = None
    """Of the cache, the stored maps or the shards."""
    skipped: str | None = None

    @property
    def name(self) -> str:
        return self.configuration.name

    @property
    def later_s(self) -> list[float]:
        """Seconds of the epochs after the first."""
        return [epoch.seconds for epoch in self.later] if self.skipped is None else []

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of a later epoch, on however many cores."""
        return median(epoch.cpu_seconds for epoch in self.later) if self.later_s else None

    @property
    def median_s(self) -> float | None:
        """Of later epochs."""
        return median(self.later_s) if self.later_s else None

    @property
    def spread(self) -> float | None:
        """From the fastest to the slowest later epoch, as a share of the median; one epoch alone has none."""
        if not self.median_s or len(self.later_s) < 2:
            return None
        return (max(self.later_s) - min(self.later_s)) / self.median_s

    @property
    def pages_per_s(self) -> float | None:
        return self.pages / self.median_s if self.median_s else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        ran = self.skipped is None
        return {
            "name": self.name,
            "about": self.configuration.about,
            "overrides": self.configuration.overrides_of(self.split),
            "split": self.split,
            "engine": self.engine,
            "workers": self.workers,
            "pages": self.pages if ran else None,
            "prepare_s": self.prepare_s if ran else None,
            "first_s": self.first_s if ran else None,
            "later_s": self.later_s,
            "median_s": self.median_s,
            "cpu_s": self.cpu_s,
            "spread": self.spread,
            "pages_per_s": self.pages_per_s,
            "memory_bytes": self.memory_bytes if ran else None,
            "stored_bytes": self.stored_bytes if ran else None,
            "skipped": self.skipped,
        }


class Result(NamedTuple):
    """All rows, and what they are about."""

    place: str
    pages: int
    all_pages: int
    rows: list[Row]
    others_share: float | None = None
    """Of the cores, that other programs had meanwhile."""

    @property
    def baseline(self) -> str:
        """The configuration that the others are compared with: the first that ran, where the usual one did not."""
        ran = [row.name for row in self.rows if row.skipped is None]
        return BASELINE if BASELINE in ran or not ran else ran[0]


def bench(
    given: Sequence[str],
    configurations: Sequence[Configuration],
    settings: Settings,
    tick: Tick = lambda what: None,
) -> Result:
    """Measure configurations of a user's overrides, in a folder that is removed again."""
    keep_freed_memory()
    config = compose_training(given, "ocr bench")
    with temporary_folder(cache_root(settings.folder or config.cache.folder)) as root:
        tick("linking pages")
        places = link_pages(config, settings.split, settings.pages, root)
        course = _Course(given, settings.split, places, tick)
        course.warm_up()
        others = Others()
        rows = [Row(configuration, settings.split) for configuration in configurations]
        for turn in range(settings.rounds):
            for row in rows:
                tick(f"{row.name}, round {turn + 1} of {settings.rounds}")
                if row.skipped is None:
                    course.try_turn(row, is_first=turn == 0)
        share = others.share()
    return Result(places.place, places.pages, places.all_pages, rows, share)


class _Course:
    """The pages, and the turns of the configurations on them."""

    def __init__(self, given: Sequence[str], split: str, places: Places, tick: Tick) -> None:
        self._given, self._split, self._places, self._tick = list(given), split, places, tick
        self._configs: dict[str, DictConfig] = {}

    def warm_up(self) -> None:
        """Libraries are loaded and kernels compiled by an epoch that nobody measures."""
        self._tick("warming up")
        plain = Configuration(BASELINE, "", ("data.cache=off",))
        # What is wrong with the pages or the config is told by the rows.
        with suppress(Exception):
            DataEpochs(compose(plain, self._given, self._split, self._places), self._split).run()

    def try_turn(self, row: Row, is_first: bool) -> None:
        """One turn; whatever goes wrong is the row's reason."""
        try:
            if is_first:
                self._prepare(row)
            self._take_turn(row, is_first)
        except (GlyphFeedError, OSError) as error:
            row.skipped = " ".join(str(error).split())
        except Exception as error:
            row.skipped = " ".join(f"{type(error).__name__}: {error}".split())

    def _prepare(self, row: Row) -> None:
        config = compose(row.configuration, self._given, self._split, self._places)
        self._configs[row.name] = config
        row.engine = str(config.data.engine)
        row.workers = int(config.dataloaders[f"{self._split}_dataloader"].num_workers)
        needs = row.configuration.needs
        if needs:
            folder = Configuration(row.name, "", ("data.cache=off", "use_stored_maps=false"))
            dataset = build_dataset(compose(folder, self._given, self._split, self._places), self._split)
            start = time.perf_counter()
            prepare(needs, dataset, self._split, self._places)
            row.prepare_s = time.perf_counter() - start

    def _take_turn(self, row: Row, is_first: bool) -> None:
        """An epoch after opening, which is measured in the first turn only, and later ones."""
        if "preload" in row.name or "prenormalize" in row.name:
            self._tick("")
        with MemoryWatch() as watch:
            start = time.perf_counter()
            epochs = self._open(row)
            pages = epochs.run().pages
            if is_first:
                row.first_s, row.pages = time.perf_counter() - start, pages
            watch.stop()
            watch.look()
            later: list[Epoch] = []
            while len(later) < MOST_EPOCHS and sum(epoch.seconds for epoch in later) < ENOUGH_SECONDS:
                later.append(epochs.run())
            watch.look()
        row.later += later
        row.memory_bytes = max(row.memory_bytes or 0, watch.growth_bytes)
        needs = row.configuration.needs
        row.stored_bytes = stored_bytes(self._places.cache(row.name), *[self._places.made(needs)] * bool(needs))

    def _open(self, row: Row) -> DataEpochs | ModelEpochs:
        kind = ModelEpochs if row.configuration.needs == "model" else DataEpochs
        return kind(self._configs[row.name], self._split)
