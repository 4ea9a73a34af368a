"""OCRWebStream: remote shards without an index, read one after the other as they arrive."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from ocr.datasets.shard_dataset import ShardDataset
from ocr.datasets.transforms import DBTransforms, as_transforms
from ocr.errors import DataError
from ocr.loader.order import rank_and_world_size
from ocr.loader.stream_order import Handle
from ocr.pipeline.batch import Item, Slot
from ocr.pipeline.ledger import COUNTS
from ocr.pipeline.padding import Padding
from ocr.pipeline.sample import Sample
from ocr.pipeline.targets import Targets
from ocr.shards.open import index_location, scan_shards
from ocr.shards.prefetch import Prefetcher
from ocr.shards.storage import Storage

log = logging.getLogger(__name__)
STREAM_BUFFER = 1000
_POSITION_BITS = 32


class OCRWebStream(IterableDataset[Item]):
    """Pages of shards whose samples are unknown until they are fetched; only the shards themselves are kept.

    `ocr.Loader` makes batches of it with any number of threads; iterated directly, or in torch's DataLoader, it yields
    the items of this worker of this rank. Without an index every node fetches all shards.
    """

    cache = None

    def __init__(
        self,
        urls: Sequence[str],
        storage: Storage,
        transform: DBTransforms,
        *,
        shuffle_buffer: int | None = None,
        seed: int = 0,
        targets: Targets | None = None,
        on_bad_sample: str = "raise",
        cache: str = "off",
        cache_folder: Any = None,
        cache_max_bytes: Any = None,
        cache_form: Any = None,
        cache_max_total_bytes: Any = None,
        **settings: Any,
    ) -> None:
        self.urls, self.storage = list(urls), storage
        self.transform, self.targets = as_transforms(transform), targets or Targets()
        self.shuffle_buffer, self.seed, self.on_bad_sample = shuffle_buffer, seed, on_bad_sample
        self.epoch = 0
        self.ledger = StreamLedger()
        self._settings = settings | {"targets": self.targets, "seed": seed, "on_bad_sample": on_bad_sample}
        self._lock = threading.Lock()
        lost = "its length is unknown and nothing is cached" if cache != "off" else "its length is unknown"
        log.info("%s is not there: the shards are streamed, %s", index_location(urls), lost)

    @property
    def padding(self) -> Padding | None:
        """What is around a page in its batch; None if all pages have one size."""
        return self.transform.padding(self.targets)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Item]:
        rank, world_size = rank_and_world_size()
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        share, shares = rank * workers + number, world_size * workers
        for position, handle in enumerate(self.handles(self.seed, self.epoch, self.shuffle_buffer is not None)):
            if position % shares != share:
                self.forget([handle])
            elif (item := self[handle]) is not None:
                yield item

    def handles(self, seed: int, epoch: int, shuffle: bool) -> Iterator[Handle]:
        """All samples of an epoch as they arrive: shards in random order, their samples shuffled in groups."""
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, epoch))))
        order = rng.permutation(len(self.urls)).tolist() if shuffle else list(range(len(self.urls)))
        enough = (self.shuffle_buffer or STREAM_BUFFER) if shuffle else 1
        group: list[Handle] = []
        ahead = Prefetcher(order, lambda shard: self.storage.fetch(self.urls[shard]))
        try:
            for shard in order:
                ahead.reach(shard)
                group += self._open(shard, epoch)
                if len(group) >= enough:
                    yield from _shuffled(group, rng) if shuffle else group
                    group = []
            yield from _shuffled(group, rng) if shuffle else group
        finally:
            ahead.stop()

    def __getitem__(self, handle: Handle) -> Item | None:  # type: ignore[override]
        return self.item(handle)

    def item(self, handle: Handle, epoch: int | None = None) -> Item | None:
        """One sample; a handle belongs to an epoch already."""
        return self._made(handle, lambda part, position: part[position])

    def write(self, handle: Handle, slot_for: Callable[[Sample], Slot], epoch: int | None = None) -> Item | None:
        """Write a sample into its slot of a batch; returns what is listed of it, or None if it is skipped."""
        return self._made(handle, lambda part, position: part.write(position, slot_for))

    def forget(self, handles: Sequence[Handle]) -> None:
        """Announce that these samples will not be asked for."""
        for handle in handles:
            self._count_off(_part_of(handle))

    def name(self, handle: Handle) -> str:
        """The file name of a sample."""
        return _part_of(handle).dataset.name(_position(handle))

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch: other random numbers, and an empty ledger."""
        self.epoch = epoch
        self.ledger.reset()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.urls)} shards from {self.urls[0]}): {self.transform!r}"

    def _made(self, handle: Handle, make: Callable[[ShardDataset, int], Item | None]) -> Item | None:
        part = _part_of(handle)
        item = make(part.dataset, _position(handle))
        self._count_off(part)
        return item

    def _open(self, shard: int, epoch: int) -> list[Handle]:
        """Open a shard; returns the handles of its samples, none if it cannot be read and is skipped."""
        url = self.urls[shard]
        try:
            source = scan_shards([url], self.storage, shard << _POSITION_BITS)
        except DataError as error:
            if self.on_bad_sample == "raise":
                raise
            log.warning("skipped a shard: %s", error)
            self.ledger.left_out.append(url)
            return []
        dataset = ShardDataset(source, self.transform, **self._settings)
        dataset.set_epoch(epoch)
        part = _Part(dataset, len(source))
        return [_PartHandle(shard << _POSITION_BITS | position, part) for position in range(len(source))]

    def _count_off(self, part: _Part) -> None:
        """One sample fewer to come."""
        with self._lock:
            part.left -= 1
            if not part.left:
                self.ledger.add(part.dataset)


@dataclass
class _Part:
    """A shard that is being read in one pass, and how many of its samples are still to come."""

    dataset: ShardDataset
    left: int


class _PartHandle(int):
    """The handle of a sample, which keeps its shard open: passes at once share none, and a broken pass leaves none."""

    part: _Part

    def __new__(cls, number: int, part: _Part) -> Self:
        handle = super().__new__(cls, number)
        handle.part = part
        return handle


def _part_of(handle: Handle) -> _Part:
    assert isinstance(handle, _PartHandle)
    return handle.part


def _position(handle: Handle) -> int:
    return handle & (1 << _POSITION_BITS) - 1


def _shuffled(handles: list[Handle], rng: np.random.Generator) -> list[Handle]:
    return [handles[position] for position in rng.permutation(len(handles)).tolist()]


class StreamLedger:
    """What happened to the samples of the shards that are done."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start a new epoch."""
        self.left_out: list[str] = []
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self._files: dict[str, list[str]] = {}

    def add(self, dataset: ShardDataset) -> None:
        """A shard is done."""
        self._counts.update(dataset.ledger.totals())
        for count in ("recovered", "skipped"):
            self._files.setdefault(count, []).extend(dataset.ledger.files(count))

    def totals(self) -> dict[str, int]:
        """Sums over the epoch so far; a shard that cannot be read counts as one."""
        return dict(self._counts) | {"skipped": self._counts["skipped"] + len(self.left_out)}

    def files(self, count: str) -> list[str]:
        """Names of the samples that contribute to one of the counts."""
        return (self.left_out if count == "skipped" else []) + self._files.get(count, [])
