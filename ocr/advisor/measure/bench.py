"""Benchmark: epochs of one split in several configurations, which take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from omegaconf import DictConfig

from ocr.advisor.catalogue import BASELINE, CATALOGUE, Configuration
from ocr.advisor.measure.bench_data import BenchData, link_pages, prepare, stored_bytes
from ocr.advisor.measure.bench_epochs import DataEpochs, ModelEpochs, bench_overrides, compose
from ocr.advisor.measure.other_processes import CpuOfOthers
from ocr.advisor.measure.pages import open_uncached
from ocr.advisor.measure.process_memory import MemoryWatch
from ocr.advisor.measure.temporary_folder import temporary_folder
from ocr.advisor.measure.timed_batches import Pass
from ocr.cache.folder import cache_root
from ocr.errors import GlyphFeedError
from ocr.jobs.compose import compose_training
from ocr.malloc import keep_freed_memory

ENOUGH_SECONDS = 0.3
MAX_EPOCHS = 5
"""Short epochs are repeated within a turn, at most this often, until they took ENOUGH_SECONDS together."""
Tick = Callable[[str], None]
"""Called with what comes next; with an empty string before something else draws a progress bar."""


class BenchSettings(NamedTuple):
    """What is read, and how often."""

    split: str = "val"
    rounds: int = 3
    pages: int = 256
    folder: str | None = None


@dataclass
class Measurement:
    """One configuration, and what was measured of it."""

    configuration: Configuration
    split: str
    engine: str = ""
    workers: int | None = None
    pages: int = 0
    """Per epoch."""
    prepare_s: float = 0.0
    """Writing maps or shards, once."""
    first_s: float | None = None
    """Includes opening the split, and filling a cache that is filled ahead."""
    later: list[Pass] = field(default_factory=list)
    memory_bytes: int | None = None
    """The largest growth of this process and its workers."""
    stored_bytes: int | None = None
    """Of the cache, the stored maps or the shards."""
    skipped: str | None = None
    """Why it could not run."""

    @property
    def name(self) -> str:
        return self.configuration.name

    @property
    def later_s(self) -> list[float]:
        """Seconds of the epochs after the first."""
        return [epoch.seconds for epoch in self.later] if self.skipped is None else []

    @property
    def cpu_s(self) -> float | None:
        """CPU seconds of a later epoch, summed over all cores."""
        return median(epoch.cpu_seconds for epoch in self.later) if self.later_s else None

    @property
    def median_s(self) -> float | None:
        """Of later epochs."""
        return median(self.later_s) if self.later_s else None

    @property
    def spread(self) -> float | None:
        """From the fastest to the slowest later epoch, as a share of the median; None for a single epoch."""
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
            "overrides": bench_overrides(self.configuration, self.split),
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


class BenchResult(NamedTuple):
    """All measurements, and of which pages."""

    location: str
    pages: int
    all_pages: int
    measurements: list[Measurement]
    others_share: float | None = None
    """Share of the cores that other processes used during the measurement."""

    @property
    def baseline(self) -> str:
        """What the others are compared with: "no cache", or the first that ran if that one did not."""
        ran = [one.name for one in self.measurements if one.skipped is None]
        return BASELINE if BASELINE in ran or not ran else ran[0]


def bench(
    given: Sequence[str],
    configurations: Sequence[Configuration],
    settings: BenchSettings,
    tick: Tick = lambda what: None,
) -> BenchResult:
    """Measure configurations of a user's overrides, in a folder that is removed afterwards."""
    keep_freed_memory()
    config = compose_training(given)
    with temporary_folder(cache_root(settings.folder or config.cache.folder)) as root:
        tick("linking pages")
        data = link_pages(config, settings.split, settings.pages, root)
        turns = _Turns(given, settings.split, data, tick)
        turns.warm_up()
        others = CpuOfOthers()
        measurements = [Measurement(configuration, settings.split) for configuration in configurations]
        for turn in range(settings.rounds):
            for one in measurements:
                tick(f"{one.name}, round {turn + 1} of {settings.rounds}")
                if one.skipped is None:
                    turns.try_turn(one, is_first=turn == 0)
        share = others.share()
    return BenchResult(data.location, data.pages, data.all_pages, measurements, share)


class _Turns:
    """The pages, and the turns of the configurations on them."""

    def __init__(self, given: Sequence[str], split: str, data: BenchData, tick: Tick) -> None:
        self._given, self._split, self._data, self._tick = list(given), split, data, tick
        self._configs: dict[str, DictConfig] = {}

    def warm_up(self) -> None:
        """Load libraries and compile kernels in an epoch that is not measured."""
        self._tick("warming up")
        # An error of the pages or the config is reported by the configurations themselves.
        with suppress(Exception):
            DataEpochs(self._compose(CATALOGUE[BASELINE]), self._split).run()

    def try_turn(self, one: Measurement, is_first: bool) -> None:
        """One turn; an error becomes the reason why the configuration is skipped."""
        try:
            if is_first:
                self._prepare(one)
            self._take_turn(one, is_first)
        except (GlyphFeedError, OSError) as error:
            one.skipped = " ".join(str(error).split())
        except Exception as error:
            one.skipped = " ".join(f"{type(error).__name__}: {error}".split())

    def _compose(self, configuration: Configuration) -> DictConfig:
        return compose(configuration, self._given, self._split, self._data)

    def _prepare(self, one: Measurement) -> None:
        config = self._configs[one.name] = self._compose(one.configuration)
        one.engine = str(config.data.engine)
        one.workers = int(config.dataloaders[f"{self._split}_dataloader"].num_workers)
        if needs := one.configuration.needs:
            dataset = open_uncached(self._compose(CATALOGUE[BASELINE]), self._split)
            start = time.perf_counter()
            prepare(needs, dataset, self._split, self._data)
            one.prepare_s = time.perf_counter() - start

    def _take_turn(self, one: Measurement, is_first: bool) -> None:
        """Open the split and run an epoch, which counts in the first turn only, then measure later epochs."""
        if "preload" in one.name or "prenormalize" in one.name:
            self._tick("")
        with MemoryWatch() as watch:
            start = time.perf_counter()
            kind = ModelEpochs if one.configuration.needs == "model" else DataEpochs
            epochs = kind(self._configs[one.name], self._split)
            pages = epochs.run().pages
            if is_first:
                one.first_s, one.pages = time.perf_counter() - start, pages
            watch.stop()
            watch.look()
            later: list[Pass] = []
            while len(later) < MAX_EPOCHS and sum(epoch.seconds for epoch in later) < ENOUGH_SECONDS:
                later.append(epochs.run())
            watch.look()
        one.later += later
        one.memory_bytes = max(one.memory_bytes or 0, watch.growth_bytes)
        needs = one.configuration.needs
        one.stored_bytes = stored_bytes(self._data.cache(one.name), *[self._data.prepared(needs)] * bool(needs))
