"""What a loader needs of a dataset: items of any kind, or pages that are written straight into a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ocr.pipeline.batch import Batch, Item, Slot
from ocr.pipeline.device import Normalize
from ocr.pipeline.ledger import Ledger
from ocr.pipeline.padding import Padding
from ocr.pipeline.sample import Sample
from ocr.pipeline.stage import Sizes
from ocr.pipeline.targets import Targets

CachedBatch = tuple[Batch, NDArray[np.int64]]
"""A batch that is a view of the cache, and one ledger row per sample, noted when the batch is handed out."""


@runtime_checkable
class ItemDataset(Protocol):
    """Any map-style dataset; None stands for an item to leave out."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Item | None: ...


@runtime_checkable
class HasEpochs(Protocol):
    """A dataset whose items differ between epochs."""

    def set_epoch(self, epoch: int) -> None:
        """Start an epoch."""


class Transform(Protocol):
    """How the pages of a dataset are normalised."""

    @property
    def normalization(self) -> Normalize | None:
        """The normalisation of the model's input; None if there is none."""

    @property
    def host_normalization(self) -> Normalize | None:
        """The normalisation that is applied on the host; None if images stay uint8 until the device."""


@runtime_checkable
class Pages(HasEpochs, Protocol):
    """Pages that are written straight into the slots of a batch; `index` is a position or the handle of a stream."""

    @property
    def transform(self) -> Transform: ...

    @property
    def targets(self) -> Targets: ...

    def __getitem__(self, index: int, /) -> Item | None: ...

    def name(self, index: int, /) -> str:
        """The file name of a sample."""

    def item(self, index: int, epoch: int | None, /) -> Item | None:
        """A sample of an epoch by itself; with None, of the epoch that was set."""

    def write(self, index: int, slot_for: Callable[[Sample], Slot], epoch: int | None, /) -> Item | None:
        """Write a sample of an epoch into its slot; returns what a batch lists of it, None if the page is skipped."""


@runtime_checkable
class IndexedPages(Pages, Protocol):
    """Pages whose number is known, and whose batches may be views of a cache."""

    @property
    def ledger(self) -> Ledger: ...

    def __len__(self) -> int: ...

    def peek(self, indices: Sequence[int]) -> CachedBatch | None:
        """The batch of these samples as views of the cache; None if they must be made or copied."""

    def can_view(self, indices: Sequence[int]) -> bool:
        """Whether a batch of these samples is a view of the cache as soon as it holds them."""

    def is_current(self, indices: Sequence[int]) -> bool:
        """Whether a batch that was peeked before this epoch holds what its samples are now."""

    def keep(self, index: int) -> str:
        """Store a sample in the cache: "hit", "miss" or "invalid" as it was found, "" if the page is skipped."""

    def settle(self) -> None:
        """Add this epoch's hits and misses so far to the statistics of the cache."""


@runtime_checkable
class MayPad(Protocol):
    """A dataset whose pages may keep their own shape."""

    @property
    def padding(self) -> Padding | None:
        """What is around a page in its batch; None if all pages have one size."""


@runtime_checkable
class HasPageShapes(MayPad, Protocol):
    """The same, with the sizes of all pages known."""

    def planned_sizes(self) -> Sizes:
        """The (width, height) that each page will have in a batch, without its padding."""


@runtime_checkable
class ReadsAhead(Protocol):
    """A dataset that tells the system ahead of time what it will read."""

    def read_ahead(self, samples: NDArray[np.signedinteger[Any]] | range) -> Callable[[int], None] | None:
        """For a pass over these samples, what to call with the size of each batch in turn; None if not needed."""


@runtime_checkable
class ShardedPages(IndexedPages, Protocol):
    """Pages in shards, which define the order of an epoch and are fetched ahead."""

    def epoch_order(self, seed: int, epoch: int, shuffle: bool) -> NDArray[np.signedinteger[Any]]:
        """The order of all samples in an epoch; each rank takes one piece of it."""

    def expect(self, samples: NDArray[np.signedinteger[Any]] | range) -> None:
        """Announce the samples of a pass, in order, so that their shards are fetched ahead."""


@runtime_checkable
class StreamedPages(Pages, Protocol):
    """Pages whose number is unknown until all shards have arrived."""

    def handles(self, seed: int, epoch: int, shuffle: bool) -> Iterator[int]:
        """One handle per sample of an epoch, as they arrive."""

    def forget(self, handles: Sequence[int]) -> None:
        """Announce that these samples will not be asked for."""


LoadableDataset = ItemDataset | IndexedPages | StreamedPages
