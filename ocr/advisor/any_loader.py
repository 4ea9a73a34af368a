"""advise: where the time of any loader and step goes, and what would make its epochs faster."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from torch.utils.data import DataLoader, IterableDataset

from ocr.advisor.measure.any_loader import measure_loader, takes_every_item
from ocr.advisor.measure.machine import describe_machine
from ocr.advisor.measure.stream import count_batches, measure_stream
from ocr.advisor.measure.timed_batches import run_epoch
from ocr.advisor.remedies.advice import Advice, Remedy
from ocr.advisor.remedies.loader_remedies import LoaderRemedies
from ocr.advisor.remedies.stream_remedies import StreamRemedies
from ocr.advisor.report.advice_result import to_result
from ocr.advisor.report.advice_screen import print_advice
from ocr.advisor.report.html_page import render_report, write_report
from ocr.cache.folder import cache_root
from ocr.checks import check_integer
from ocr.errors import ConfigError
from ocr.system import usable_cores

ITEMS = 16
ROUNDS = 2

Step = Callable[[Any], object]


def advise(
    loader: Iterable[Any], step: Step | None = None, *, items: int = ITEMS, verify: bool = False, show: bool = True
) -> LoaderAdvice:
    """Measure a loader and the step that takes its batches, and predict what would make an epoch faster.

    `loader` is a torch DataLoader of a map-style dataset; of a stream or any other iterable only waiting and computing
    are told apart. `step(batch)` is what your loop does with a batch. With `verify`, whole epochs of the present loader
    and of every remedy are run, and compared with the predictions. `show` prints the result; a notebook shows a report.
    """
    check_integer("items", items, 1)
    _check_given(loader, step)
    cores = usable_cores()
    remedies: LoaderRemedies | StreamRemedies
    if isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset):
        found, remedies = _advise_loader(loader, step, items, cores)
    else:
        found, remedies = _advise_stream(loader, step, cores, verify)
    if verify:
        _verify(found, remedies, step)
    advice = LoaderAdvice(found)
    if show:
        advice.show()
    return advice


@dataclass(frozen=True)
class LoaderAdvice:
    """What `advise` found."""

    advice: Advice

    @property
    def sentence(self) -> str:
        """The verdict."""
        return self.advice.sentence

    @property
    def bottleneck(self) -> str:
        """What limits an epoch: a stage of the loader, or the model."""
        present = self.advice.present.later
        return present.stage or present.bottleneck

    @property
    def remedies(self) -> list[Remedy]:
        """Best first."""
        return self.advice.remedies

    def show(self, console: Console | None = None) -> None:
        """The tables, on the screen."""
        print_advice(self.advice, console or Console())

    def write(self, path: str | Path) -> None:
        """The report, as one HTML page."""
        write_report([self._result], Path(path))

    @cached_property
    def _result(self) -> dict[str, Any]:
        return to_result(self.advice, "ocr.advisor.advise(loader, step)", describe_machine(cache_root()), "", {}, [])

    def _repr_html_(self) -> str:
        page = escape(render_report([self._result]))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 50em; border: 0"></iframe>'


def _check_given(loader: object, step: object) -> None:
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise ConfigError(
            f"loader={loader!r:.80} gives no batches: give a DataLoader, or anything that can be iterated",
            setting="loader",
            value=loader,
        )
    if step is not None and not callable(step):
        raise ConfigError(
            f"step={step!r:.80} cannot be called: give the function that your loop calls with a batch",
            setting="step",
            value=step,
        )


def _advise_loader(loader: DataLoader[Any], step: Step | None, items: int, cores: int) -> tuple[Advice, LoaderRemedies]:
    costs = measure_loader(loader, step, items, cores)
    remedies = LoaderRemedies(loader, costs, cores, step)
    shape = (costs.items, costs.batch_size, loader.num_workers)
    place, demands = type(loader.dataset).__name__, remedies.present.later.pipeline.demands
    advice = Advice(place, *shape, demands, costs.consumer, remedies.present, remedies.all(), unit="item")
    if not takes_every_item(loader):
        advice.left_out["ocr.Loader"] = "it takes every item once per epoch, and the sampler of this loader does not"
    return advice, remedies


def _advise_stream(
    batches: Iterable[Any], step: Step | None, cores: int, verify: bool
) -> tuple[Advice, StreamRemedies]:
    """Of batches that come from anywhere: what making and using them take, and whether both happen at once."""
    costs = measure_stream(batches, step, count_batches(batches, by_reading=verify))
    remedies = StreamRemedies(batches, costs, cores)
    place, shape, present = type(batches).__name__, (costs.batches, 1, int(costs.overlaps)), remedies.present
    demands, others, spans = present.later.pipeline.demands, remedies.all(), costs.spans
    return Advice(place, *shape, demands, costs.consumer, present, others, timeline=spans, unit="batch"), remedies


def _verify(advice: Advice, remedies: LoaderRemedies | StreamRemedies, step: Step | None) -> None:
    """Whole epochs of the present loader and of every remedy, in turns; the fastest counts, after a first one."""
    chosen = [advice.present, *advice.remedies]
    with TemporaryDirectory(prefix="glyphfeed-advise-") as folder:
        tried = {remedy.name: remedies.build(remedy, Path(folder)) for remedy in chosen}
        seconds: dict[str, list[float]] = {name: [] for name in tried}
        for _ in range(1 + ROUNDS):
            for name, each in tried.items():
                seconds[name].append(run_epoch(each, step)[0])
        tried.clear()
        gc.collect()
    advice.verified += [(one.name, one.later.epoch_seconds, min(seconds[one.name][1:])) for one in chosen]
