"""Open shards by their index; local shards without one are scanned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ocr.errors import ConfigError
from ocr.shards.index import RAW, READY, Shard, ShardIndex, StoredSample, image_extension, index_name, scan_tar
from ocr.shards.locations import is_remote
from ocr.shards.source import ShardSource
from ocr.shards.storage import Storage


def index_location(urls: Sequence[str]) -> str:
    """Where the index of shards is, or should be.

    >>> index_location(["s3://bucket/train-000000.tar"])
    's3://bucket/train-index.json'
    """
    base, slash, name = urls[0].rpartition("/")
    return f"{base}{slash}{index_name(name)}"


def can_be_opened(urls: Sequence[str], storage: Storage) -> bool:
    """Whether samples can be read at random: there is an index, or all shards are local and can be scanned."""
    return not any(is_remote(url) for url in urls) or storage.exists(index_location(urls))


def open_shards(urls: Sequence[str], storage: Storage) -> ShardSource:
    """The pages of shards."""
    location = index_location(urls)
    text = storage.read(location)
    if text is None:
        return ShardSource(scan_index(urls, storage), urls, storage)
    index = ShardIndex.from_json(text, location)
    return ShardSource(_select(index, urls, location), urls, storage)


def _select(index: ShardIndex, urls: Sequence[str], location: str) -> ShardIndex:
    """The part of an index that describes these shards."""
    numbers = {shard.name: number for number, shard in enumerate(index.shards)}
    wanted = []
    for url in urls:
        name = url.rpartition("/")[2]
        if name not in numbers:
            raise ConfigError(f"{url} is not in {location}. Convert again, or name the shards of one conversion")
        wanted.append(numbers[name])
    if wanted == list(range(len(index.shards))):
        return index
    renumbered = {number: position for position, number in enumerate(wanted)}
    samples = tuple(replace(s, shard=renumbered[s.shard]) for s in index.samples if s.shard in renumbered)
    return replace(index, shards=tuple(index.shards[number] for number in wanted), samples=samples)


def scan_index(urls: Sequence[str], storage: Storage) -> ShardIndex:
    """The index of shards that have none, from the shards themselves."""
    shards, samples = [], []
    for number, url in enumerate(urls):
        path = storage.local(url)
        with path.open("rb") as stream:
            found = [
                StoredSample(key, f"{key}.{image_extension(members) or 'npy'}", number, members, "", "")
                for key, members in scan_tar(stream, url)
            ]
        shards.append(Shard(path.name, path.stat().st_size, "", len(found)))
        samples += found
    kind = RAW if all(image_extension(sample.members) for sample in samples) else READY
    return ShardIndex("", kind, True, "", "", tuple(shards), tuple(samples))
