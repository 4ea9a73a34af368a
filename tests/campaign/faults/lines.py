"""Lines to an object store that are cut, or change bytes on the way; fetches that are killed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import convert_pages
from cache_worker import items
from convert_pages import convert, write_pages
from object_store import Line, s3_server

from ocr.datasets import OCRWebDataset
from ocr.errors import GlyphFeedError
from ocr.shards import storage
from tests.campaign.cases import Case, fault
from tests.campaign.compared import Child, compare, compare_unless_skipped, killed_after, without_path
from tests.campaign.pages import KINDS

NEEDS = ("boto3", "s3fs", "moto")
BUCKET = "campaign"
NAMES = convert_pages.NAMES[:4]


@dataclass
class Store:
    """A server that holds shards of every kind, and the samples in them."""

    server: Any
    port: int
    expected: list[Any]

    def close(self) -> None:
        self.server.__exit__(None, None, None)


def prepare(folder: Path) -> Store:
    import boto3

    pages = write_pages(folder / "pages", NAMES)
    server = s3_server()
    port = server.__enter__()
    _set_environment(port)
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}")
    client.create_bucket(Bucket=BUCKET)
    for kind, settings in KINDS.items():
        convert(pages, folder / kind, workers=1, samples_per_shard=2, **settings)
        for file in sorted((folder / kind).iterdir()):
            client.put_object(Bucket=BUCKET, Key=f"{kind}/{file.name}", Body=file.read_bytes())
    storage.FIRST_PAUSE_SECONDS = 0.01
    return Store(server, port, [without_path(item) for item in items(convert_pages.open_pages(pages))])


def prepare_connected(folder: Path) -> Store:
    """With the thread already that fsspec starts on first use, and keeps."""
    store = prepare(folder)
    read("raw", folder / "kept")
    return store


def _set_environment(port: int) -> None:
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }


class LyingLine(Line):
    """Changes one byte of what comes back, after so many bytes."""

    def __init__(self, port: int, after: int, rng: Random) -> None:
        self._after, self._rng, self.lies = after, rng, 0
        super().__init__(port)

    def changed(self, data: bytes) -> bytes:
        """One bit is flipped, once."""
        if self.lies or self._after >= len(data):
            self._after -= len(data)
            return data
        self.lies += 1
        wrong = bytearray(data)
        wrong[max(0, self._after)] ^= 1 << self._rng.randrange(8)
        return bytes(wrong)


@contextmanager
def connected(line: Line) -> Iterator[None]:
    """Every new file system goes through this line."""
    import s3fs

    os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{line.port}"
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield
    finally:
        line.close()


def open_shards(kind: str, kept: Path, **settings: Any) -> OCRWebDataset:
    return OCRWebDataset(
        f"s3://{BUCKET}/{kind}/val-{{000000..000001}}.tar", convert_pages.transforms(), shard_folder=kept, **settings
    )


def read(kind: str, kept: Path) -> list[Any]:
    return [without_path(item) for item in items(open_shards(kind, kept))]


@fault("line-cut", "the line to an object store is cut", share=20, prepare=prepare_connected, needs=NEEDS)
def cut_line(case: Case) -> None:
    line = Line(case.prepared.port)
    with connected(line):
        line.cut(int(10 ** case.rng.uniform(1, 4.7)))
        compare(case, read(case.rng.choice([*KINDS]), case.folder / "kept"), case.prepared.expected)


@fault("line-lies", "the line to an object store flips a bit", share=30, prepare=prepare_connected, needs=NEEDS)
def lying_line(case: Case) -> None:
    line = LyingLine(case.prepared.port, int(10 ** case.rng.uniform(2, 4.7)), case.rng)
    kind, on_bad_sample = case.rng.choice([*KINDS]), case.rng.choice(("raise", "skip"))
    with connected(line):
        try:
            dataset = open_shards(kind, case.folder / "kept", on_bad_sample=on_bad_sample)
            found = [None if item is None else without_path(item) for item in items(dataset)]
        except GlyphFeedError as error:
            case.refusal(error, f"{BUCKET}/{kind}")
            return
        skipped = dataset.ledger.totals()["skipped"]
        compare_unless_skipped(case, found, case.prepared.expected, skipped)


@fault("kill-fetch", "who fetches shards is killed", share=20, prepare=prepare, needs=NEEDS)
def kill_fetch(case: Case) -> None:
    line, kind, kept = Line(case.prepared.port), case.rng.choice([*KINDS]), case.folder / "kept"
    with connected(line):
        # Each in a process of its own: a fork of one that has spoken to a store waits for threads that it has not.
        killed_after(case, case.rng.uniform(0, 0.8), read, kind, kept)
        Child(case, read_and_compare, kind, kept, case.prepared.expected).wait()
        case.tally.samples += len(case.prepared.expected)


def read_and_compare(kind: str, kept: Path, expected: list[Any]) -> None:
    compare(Case(None, kept, None), read(kind, kept), expected)  # type: ignore[arg-type]
