"""Shards and stored maps: damage, conversions that are killed or out of room, and lines to an object store."""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.reliability.campaign.cache_faults import FILL_SECONDS, limit_files
from benchmarks.reliability.campaign.cases import Case, Child, FindingError, damages, difference, fault
from benchmarks.reliability.campaign.changes import damage
from benchmarks.reliability.campaign.pages import (
    SHARDS,
    Prepared,
    convert,
    files_of,
    items,
    open_pages,
    transforms,
    write_pages,
)
from ocr.datasets import OCRWebDataset
from ocr.errors import GlyphFeedError, OutputError
from ocr.shards import storage
from ocr.tools.preprocess import preprocess_maps

NEEDS, BUCKET = ("boto3", "s3fs", "moto"), "campaign"


def with_shards(folder: Path, count: int = 5) -> Prepared:
    pages = write_pages(folder / "pages", count)
    made = {kind: convert(pages, folder / kind, **settings) for kind, settings in SHARDS.items()}
    return Prepared(pages, made, items(open_pages(pages, normalize="device")))


def read_shards(case: Case, shards: Path, on_bad_sample: str, vanish_at: int = -1) -> None:
    """All samples are right, or skipped and counted, or an error names the shards."""
    pattern, expected, found = f"{shards}/val-{{000000..000002}}.tar", case.prepared.expected, list[Any]()
    try:
        dataset = OCRWebDataset(pattern, transforms(), on_bad_sample=on_bad_sample)
        if len(dataset) != len(expected) and (shards / "val-index.json").is_file():
            raise FindingError("silent skip", f"{len(dataset)} samples of {len(expected)}")
        for index in range(len(dataset)):
            if index == vanish_at:
                shutil.rmtree(shards)
            found += items([dataset[index]])
    except GlyphFeedError as error:
        case.refused(error, str(shards))
        case.compare(found, expected[: len(found)], skipped=sum(one is None for one in found))
        return
    case.compare(found, expected, skipped=dataset.ledger.totals()["skipped"])


@damages("shard", "a shard or its index", 60, with_shards)
def damaged(case: Case, name: str) -> None:
    shards = Path(shutil.copytree(case.prepared.made[case.rng.choice([*SHARDS])], case.folder / "shards"))
    damage(case.rng.choice(sorted(shards.iterdir())), case.rng, name)
    read_shards(case, shards, case.rng.choice(("raise", "skip")))


@fault("disk-gone-shards", "the disk of shards vanishes during an epoch", 25, with_shards)
def gone_shards(case: Case) -> None:
    shards = Path(shutil.copytree(case.prepared.made[case.rng.choice([*SHARDS])], case.folder / "shards"))
    read_shards(case, shards, case.rng.choice(("raise", "skip")), vanish_at=case.rng.randrange(5))


def with_maps(folder: Path) -> Prepared:
    pages = write_pages(folder / "pages", 3)
    preprocess_maps(open_pages(pages), workers=1, show_progress=False)
    return Prepared(pages, {}, items(open_pages(pages)))


@fault("maps-damage", "stored maps: any damage", 40, with_maps)
def maps(case: Case) -> None:
    data = Path(shutil.copytree(case.prepared.pages, case.folder / "pages"))
    chosen = case.rng.choice(sorted(data.rglob("*.npz")))
    damage(chosen, case.rng)
    try:
        dataset = open_pages(data, preload_maps=case.rng.random() < 0.5)
        found = items(dataset)
    except GlyphFeedError as error:
        case.refused(error, chosen.name)
        return
    case.counts["counted"] += dataset.ledger.totals().get("maps_stale", 0)
    case.compare(found, case.prepared.expected)


# -- conversions


@dataclass(frozen=True)
class Conversion:
    """Pages, and the shards of a conversion that nothing disturbs."""

    pages: Path
    expected: dict[str, bytes]

    def run(self, out: Path, workers: int = 1, **settings: Any) -> None:
        convert(self.pages, out, workers, samples_per_shard=1, **settings)

    def finish(self, case: Case, out: Path, **settings: Any) -> None:
        """Convert what is left, and compare every byte."""
        self.run(out, **settings)
        if where := difference(files_of(out), self.expected):
            raise FindingError("wrong sample", f"other bytes than from a conversion without a break: {where}")
        case.counts["samples"] += len(self.expected)


def prepare_conversion(folder: Path) -> Conversion:
    pages = write_pages(folder / "pages", 4)
    return Conversion(pages, files_of(convert(pages, folder / "expected", samples_per_shard=1)))


def assert_no_lie(out: Path) -> None:
    """What an index vouches for is there, and no shard is half there."""
    for index in out.glob("*-index.json"):
        for shard in json.loads(index.read_text())["shards"]:
            if hashlib.sha256((out / shard["name"]).read_bytes()).hexdigest() != shard["sha256"]:
                raise FindingError("wrong sample", f"{shard['name']} is not what its index says")
    for path in out.glob("val-*.tar"):
        if not path.read_bytes().endswith(b"\0" * 1024):
            raise FindingError("silent skip", f"{path.name} has no end")


@fault("kill-convert", "a conversion is killed and begun again", 40, prepare_conversion)
def kill_convert(case: Case) -> None:
    out = case.folder / "out"
    Child(case, case.prepared.run, out, case.rng.choice((1, 2))).kill_after(case.rng.uniform(0, FILL_SECONDS))
    assert_no_lie(out)
    case.prepared.finish(case, out)


@fault("convert-damage", "a conversion killed, its files damaged, and begun again", 30, prepare_conversion)
def damaged_conversion(case: Case) -> None:
    out = case.folder / "out"
    Child(case, case.prepared.run, out).kill_after(case.rng.uniform(0.02, FILL_SECONDS))
    if left := sorted(path for path in out.glob("*") if path.is_file()):
        damage(case.rng.choice(left), case.rng, case.rng.choice(("flip", "cut", "garbage")))
    try:
        case.prepared.finish(case, out)
    except GlyphFeedError as error:
        case.refused(error, str(out))
        case.prepared.finish(case, out, overwrite=True)


@fault("disk-full-convert", "the disk of a conversion is full", 25, prepare_conversion)
def full_conversion(case: Case) -> None:
    out, limit = case.folder / "out", int(10 ** case.rng.uniform(3.7, 4.5))

    def run() -> None:
        limit_files(limit)
        try:
            case.prepared.run(out)
        except OutputError as error:
            case.refused(error, str(out))

    Child(case, run).wait()
    case.prepared.finish(case, out)


# -- an object store


class Line(socketserver.ThreadingTCPServer):
    """A TCP line to a server that is cut once, or flips a bit once, after so many bytes came back."""

    daemon_threads = True

    def __init__(self, port: int, after: int = 1 << 40, flip: int | None = None) -> None:
        import s3fs

        super().__init__(("127.0.0.1", 0), self._carry)  # type: ignore[arg-type]
        self._port, self._after, self._flip, self._carried = port, after, flip, list[socket.socket]()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        # Every new file system goes through this line.
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{self.server_address[1]}"
        s3fs.S3FileSystem.clear_instance_cache()

    def __exit__(self, *_: object) -> None:
        """Also ends the connections, and with them the threads that carry them."""
        self.shutdown()
        for one in self._carried:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def _carry(self, client: socket.socket, *_: object) -> None:
        self._carried.append(client)
        with socket.create_connection(("127.0.0.1", self._port)) as server, suppress(OSError):
            chosen = selectors.DefaultSelector()
            chosen.register(client, selectors.EVENT_READ, server)
            chosen.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _events in chosen.select():
                    data = bytearray(key.fileobj.recv(1 << 16))  # type: ignore[union-attr]
                    if not data or (key.fileobj is server and self._is_cut(data)):
                        return
                    key.data.sendall(data)

    def _is_cut(self, data: bytearray) -> bool:
        at, self._after = self._after, self._after - len(data)
        if not 0 <= at < len(data):
            return False
        if self._flip is None:
            return True
        data[at] ^= 1 << self._flip
        return False


class Store:
    """A server that holds shards of every kind, and the samples in them."""

    def __init__(self, folder: Path) -> None:
        import boto3

        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{self.port}'])"
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._server = subprocess.Popen([sys.executable, "-c", command], **quiet)  # type: ignore[call-overload]
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                break
            time.sleep(0.1)
        os.environ |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
        os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "NO_PROXY": "127.0.0.1"}
        client, prepared = boto3.client("s3"), with_shards(folder, 4)
        client.create_bucket(Bucket=BUCKET)
        for kind in SHARDS:
            for name, data in files_of(prepared.made[kind]).items():
                client.put_object(Bucket=BUCKET, Key=f"{kind}/{name}", Body=data)
        storage.FIRST_PAUSE_SECONDS = 0.01
        self.expected = prepared.expected

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()


def connected(folder: Path) -> Store:
    """With the thread already that fsspec starts on first use, and keeps."""
    store = Store(folder)
    items(open_remote("raw", folder / "kept"))
    return store


def open_remote(kind: str, kept: Path, **settings: Any) -> OCRWebDataset:
    pattern = f"s3://{BUCKET}/{kind}/val-{{000000..000001}}.tar"
    return OCRWebDataset(pattern, transforms(), shard_folder=kept, **settings)


@fault("line-cut", "the line to an object store is cut", 20, connected, *NEEDS)
def cut_line(case: Case) -> None:
    with Line(case.prepared.port, int(10 ** case.rng.uniform(1, 4.7))):
        dataset = open_remote(case.rng.choice([*SHARDS]), case.folder / "kept")
        case.compare(items(dataset), case.prepared.expected)


@fault("line-lies", "the line to an object store flips a bit", 30, connected, *NEEDS)
def lying_line(case: Case) -> None:
    kind, on_bad_sample = case.rng.choice([*SHARDS]), case.rng.choice(("raise", "skip"))
    with Line(case.prepared.port, int(10 ** case.rng.uniform(2, 4.7)), flip=case.rng.randrange(8)):
        try:
            dataset = open_remote(kind, case.folder / "kept", on_bad_sample=on_bad_sample)
            found = items(dataset)
        except GlyphFeedError as error:
            case.refused(error, f"{BUCKET}/{kind}")
            return
        case.compare(found, case.prepared.expected, skipped=dataset.ledger.totals()["skipped"])


@fault("kill-fetch", "who fetches shards is killed", 20, Store, *NEEDS)
def kill_fetch(case: Case) -> None:
    kind, kept = case.rng.choice([*SHARDS]), case.folder / "kept"

    def fetch() -> None:
        case.compare(items(open_remote(kind, kept)), case.prepared.expected)

    with Line(case.prepared.port):
        # Each in a process of its own: a fork of one that has spoken to a store waits for threads that it has not.
        Child(case, fetch).kill_after(case.rng.uniform(0, 0.8))
        Child(case, fetch).wait()
