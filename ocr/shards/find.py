"""Find shards and their index; local shards without one are scanned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ocr.errors import ConfigError
from ocr.shards.index import RAW, READY, Shard, ShardIndex, StoredSample, image_extension, index_name, scan_tar
from ocr.shards.source import ShardSource
from ocr.shards.storage import Storage, is_remote


def index_place(urls: Sequence[str]) -> str:
    """Where the index of shards lies.

    >>> index_place(["s3://bucket/train-000000.tar"])
    's3://bucket/train-index.json'
    """
    base, slash, name = urls[0].rpartition("/")
    return f"{base}{slash}{index_name(name)}"


def can_be_opened(urls: Sequence[str], storage: Storage) -> bool:
    """Whether samples can be read at random: an index lies there, or the shards can be scanned at once."""
    return not any(is_remote(url) for url in urls) or storage.exists(index_place(urls))


def open_shards(urls: Sequence[str], storage: Storage) -> ShardSource:
    """The pages of shards."""
    place = index_place(urls)
    text = storage.read(place)
    if text is None:
        return ShardSource(scan_index(urls, storage), urls, storage)
    index = ShardIndex.from_json(text, place)
    return ShardSource(_select(index, urls, place), urls, storage)


def _select(index: ShardIndex, urls: Sequence[str], place: str) -> ShardIndex:
    """The part of an index that is about these shards."""
    numbers = {shard.name: number for number, shard in enumerate(index.shards)}
    wanted = []
    for url in urls:
        name = url.rpartition("/")[2]
        if name not in numbers:
            raise ConfigError(f"{url} is not in {place}. Convert anew, or name the shards of one conversion")
        wanted.append(numbers[name])
    if wanted == list(range(len(index.shards))):
        return index
    renumbered = {number: position for position, number in enumerate(wanted)}
    samples = tuple(replace(s, shard=renumbered[s.shard]) for s in index.samples if s.shard in renumbered)
    return replace(index, shards=tuple(index.shards[number] for number in wanted), samples=samples)


def scan_index(urls: Sequence[str], storage: Storage) -> ShardIndex:
    """What the shards themselves tell, where no index lies beside them."""
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
