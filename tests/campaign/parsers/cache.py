"""Files of the cache: the description, rows, dense pages, and tables of rows. Checksums are made right again, so that
what they would refuse reaches the readers behind them."""

from __future__ import annotations

import json
import struct
import tempfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from ocr.cache.row_format import ROW_BYTES, Row
from ocr.cache.store import Store
from ocr.cache.store_folder import DamagedStoreError, _about_digest
from ocr.errors import DataError
from ocr.pipeline.dense import DensePage
from ocr.pipeline.image_header import check_pixel_count
from ocr.pipeline.kept_table import KeptTable
from ocr.pipeline.signature import Signature
from ocr.row_table import MAGIC, RowTableWriter
from tests.campaign.cases import CrashError, Parser, register
from tests.campaign.pages import MAX_PIXELS, noise

FORMS = ("raw", "dense")
_HEADER = struct.Struct("<8sQQ")


@lru_cache(maxsize=2)
def cache_files(form: str) -> dict[str, bytes]:
    """The files of a cache of four pages."""
    import cache_worker

    with tempfile.TemporaryDirectory() as place:
        folder = cache_worker.write_pages(Path(place) / "pages", 4)
        transform = cache_worker.fixed(normalize="device")
        dataset = cache_worker.open_pages(folder, Path(place) / "cache", transform, cache_form=form)
        dataset.fill_cache(threads=1)
        (store,) = (path for path in (Path(place) / "cache").iterdir() if not path.name.startswith("."))
        return {path.name: path.read_bytes() for path in store.iterdir()}


def store_folder(form: str, folder: Path) -> Path:
    """A cache of its own for a block of inputs."""
    place = folder / form
    if not place.exists():
        place.mkdir()
        for name, data in cache_files(form).items():
            (place / name).write_bytes(data)
    return place


def use(store: Store) -> bool:
    """Read every sample that has a row, as far as the row can be right."""
    for index in store.ready().tolist()[:8]:
        row = store.row(index)
        record = None if row is None else store.read(index, row)
        if record is not None:
            record.checksum()
            assert row is not None
            store.ranges(index, row)
    return bool(len(store.ready()))


def parse_about(data: bytes, folder: Path) -> bool:
    place = store_folder("raw", folder)
    (place / "about.json").write_bytes(_signed(data))
    try:
        store = Store(place)
    except DamagedStoreError:
        return False
    try:
        return use(store)
    finally:
        store.close()


def _signed(data: bytes) -> bytes:
    try:
        about: Any = json.loads(data)
        about.pop("digest", None)
        return json.dumps(about | {"digest": _about_digest(about)}).encode()
    except (ValueError, AttributeError, TypeError, RecursionError):
        return data


def parse_rows(form: str, data: bytes, folder: Path) -> bool:
    place = store_folder(form, folder)
    rows = bytearray(cache_files(form)["rows"])
    size = ROW_BYTES - 4
    for index, start in enumerate(range(0, min(len(data), 4 * ROW_BYTES), ROW_BYTES)):
        row = data[start : start + ROW_BYTES].ljust(ROW_BYTES, b"\0")
        # The packed row is shorter than its room.
        length = len(_packed())
        row = row[: length - 4] + struct.pack("<I", zlib.crc32(row[: length - 4])) + row[length:]
        rows[(index + 1) * ROW_BYTES : (index + 2) * ROW_BYTES] = row[: size + 4]
    (place / "rows").write_bytes(rows)
    try:
        store = Store(place)
    except DamagedStoreError:
        return False
    try:
        return use(store)
    finally:
        store.close()


@lru_cache(maxsize=1)
def _packed() -> bytes:
    return Row(1, 1, 0, 0, -1, bytes(16), bytes(16), 1, Signature(0, 0, 0, 0)).pack()


def parse_dense(data: bytes, folder: Path) -> bool:
    page = DensePage(np.frombuffer(data, np.uint8))
    try:
        page.check()
        # A blank page of any size takes a few bytes: whoever unpacks one asks for its size before.
        check_pixel_count(page.size, "page", MAX_PIXELS)
        unpacked = page.unpack()
    except DataError:
        return False
    if (unpacked.shape[1], unpacked.shape[0]) != page.size:
        raise CrashError("a page of another size than it says")
    return True


def dense_examples() -> list[bytes]:
    framed = np.zeros((60, 50, 3), np.uint8)
    framed[3:40, 2:44] = noise(37, 42)
    gray = np.repeat(noise(30, 30, 1), 3, axis=2)
    return [DensePage.pack(page).data.tobytes() for page in (noise(), framed, gray)]


def table_bytes() -> bytes:
    writer = RowTableWriter({"shard": "i", "number": "q"})
    for number in range(9):
        writer.append(b"row %d" % number * 3, number % 2, number)
    with tempfile.TemporaryDirectory() as folder:
        writer.save(Path(folder) / "a.rows", {"looked_at": {}, "code": ""})
        return (Path(folder) / "a.rows").read_bytes()


def parse_table(data: bytes, folder: Path) -> bool:
    kept = KeptTable(folder, KeptTable.__module__, "fuzzed")
    if data.startswith(MAGIC) and len(data) > _HEADER.size:
        _, length, _ = _HEADER.unpack_from(data)
        described = data[_HEADER.size : _HEADER.size + length]
        data = _HEADER.pack(MAGIC, length, xxhash.xxh3_64_intdigest(described)) + data[_HEADER.size :]
    from ocr.pipeline.fingerprint import code_digest

    kept.path.write_bytes(data.replace(b'"code": ""', f'"code": "{code_digest(KeptTable.__module__)}"'.encode()))
    table = kept.load(lambda path: None)
    kept.path.unlink()
    if table is None:
        return False
    for index in range(min(len(table), 9)):
        try:
            table.row(index)
        except DataError as error:
            if ".rows" not in str(error):
                raise CrashError(str(error)) from error
    return True


def row_bytes(form: str) -> bytes:
    return cache_files(form)["rows"][ROW_BYTES:]


register(
    Parser(
        "cache-about",
        "description of a cache",
        lambda: [cache_files(form)["about.json"] for form in FORMS],
        parse_about,
        ("ocr/cache/",),
        "json",
        share=20,
    )
)
for _form in FORMS:
    register(
        Parser(
            f"cache-rows-{_form}",
            f"rows of a {_form} cache",
            lambda form=_form: [row_bytes(form)],
            lambda data, folder, form=_form: parse_rows(form, data, folder),
            ("ocr/cache/",),
            share=25,
        )
    )
register(Parser("cache-dense-page", "dense pages", dense_examples, parse_dense, ("ocr/pipeline/dense",), share=30))
register(
    Parser(
        "cache-page-list",
        "tables of rows",
        lambda: [table_bytes()],
        parse_table,
        ("ocr/row_table", "ocr/pipeline/kept_table"),
        share=25,
    )
)
