"""Shards: the index, tar files without one, the JSON and arrays in them, and the receipts of a conversion."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from ocr.errors import GlyphFeedError
from ocr.pipeline.image_header import check_pixel_count
from ocr.shards.index import end_tar, write_member
from ocr.shards.open import open_shards, scan_shards
from ocr.shards.source import ShardSource
from ocr.shards.storage import Storage
from ocr.tools.convert.shard_receipt import ShardReceipt
from tests.campaign.cases import CrashError, Parser, refused, register
from tests.campaign.pages import INDEX, KINDS, MAX_PIXELS, RECEIPT, SHARD, encode, shard_bytes

TRACED = ("ocr/shards/", "ocr/formats/json_stream", "ocr/pipeline/metadata", "ocr/row_table")
NPY_TOKENS = (b"'descr': '<f4'", b"'|O'", b"'shape': (-1, 2)", b"(1,)", b"True", b"\x93NUMPY", b"'<U9'", b"(" * 300)
NPY_TOKENS += (b"'shape': (99999999999,)", b"[('a', '<i4')]", b"#", b"'''", b"\\", b"-" * 3000, b"1e9")


def read_all(source: ShardSource) -> bool:
    """Ask everything about every sample that a dataset asks."""
    for index in range(len(source)):
        page = source.read(index)
        source.entry(index)
        source.signature(index)
        source.annotation_digest(index)
        if not np.isfinite(page.polygons.vertices).all():
            raise CrashError("polygons that are not finite")
        if page.dense is not None:
            check_pixel_count(page.dense.size, page.path, MAX_PIXELS)
        if source.is_ready:
            page.unpacked()
    return True


def parse_index(kind: str, data: bytes, folder: Path) -> bool:
    shard = folder / SHARD
    if not shard.exists():
        shard.write_bytes(shard_bytes(kind)[SHARD])
    (folder / INDEX).write_bytes(data)
    try:
        return read_all(open_shards([str(shard)], Storage(folder / "kept")))
    except GlyphFeedError as error:
        return refused(error, str(folder))


def parse_tar(data: bytes, folder: Path) -> bool:
    (folder / SHARD).write_bytes(data)
    try:
        return read_all(scan_shards([str(folder / SHARD)], Storage(folder / "kept")))
    except GlyphFeedError as error:
        return refused(error, SHARD)


def members_of(kind: str) -> dict[str, bytes]:
    """Extension and bytes of the members of the first sample."""
    source = io.BytesIO(shard_bytes(kind)[SHARD])
    import tarfile

    with tarfile.open(fileobj=source) as tar:
        first = [member for member in tar if member.name.startswith("00000000.")]
        return {member.name.partition(".")[2]: tar.extractfile(member).read() for member in first}  # type: ignore[union-attr]


def parse_member(kind: str, extension: str, data: bytes, folder: Path) -> bool:
    """A shard without an index, one of whose members is damaged."""
    stream = io.BytesIO()
    for name, member in members_of_once(kind).items():
        write_member(stream, f"00000000.{name}", data if name == extension else member)
    end_tar(stream)
    return parse_tar(stream.getvalue(), folder)


_members: dict[str, dict[str, bytes]] = {}


def members_of_once(kind: str) -> dict[str, bytes]:
    if kind not in _members:
        _members[kind] = members_of(kind)
        if "json" in _members[kind]:  # What the digest of the arrays refuses does not reach the readers.
            without = re.sub(rb'"arrays": ?"[0-9a-f]*"', b'"arrays":""', _members[kind]["json"])
            _members[kind]["json"] = without
    return _members[kind]


def parse_receipt(data: bytes, folder: Path) -> bool:
    receipt = ShardReceipt.from_json(data)
    if receipt is not None:
        receipt.to_json()
    return receipt is not None


def tar_examples() -> list[bytes]:
    image, stream = encode("JPEG"), io.BytesIO()
    for number in range(2):
        write_member(stream, f"{number:08d}.jpg", image)
        write_member(stream, f"{number:08d}.json", b'{"polygons": [[[1, 2], [9, 2], [9, 8]]]}')
    end_tar(stream)
    return [stream.getvalue(), *(shard_bytes(kind)[SHARD] for kind in KINDS)]


def one(get: Callable[[], bytes]) -> Callable[[], list[bytes]]:
    return lambda: [get()]


for _kind in KINDS:
    register(
        Parser(
            f"shard-index-{_kind}",
            f"index of {_kind} shards",
            one(lambda kind=_kind: shard_bytes(kind)[INDEX]),
            partial(parse_index, _kind),
            TRACED,
            "json",
            share=20,
        )
    )
    register(
        Parser(
            f"shard-json-{_kind}",
            f"JSON in {_kind} shards",
            one(lambda kind=_kind: members_of_once(kind)["json"]),
            partial(parse_member, _kind, "json"),
            TRACED,
            "json",
            share=20,
        )
    )
for _kind, _extension in (("ready", "image.npy"), ("ready", "thresh_map.npy"), ("dense", "image.npy")):
    register(
        Parser(
            f"shard-{_kind}-{_extension.partition('.')[0].replace('_', '-')}",
            f"arrays in {_kind} shards, {_extension}",
            one(lambda kind=_kind, extension=_extension: members_of_once(kind)[extension]),
            partial(parse_member, _kind, _extension),
            (*TRACED, "ocr/pipeline/dense"),
            share=20,
            tokens=NPY_TOKENS,
        )
    )
register(Parser("shard-tar", "tar files without an index", tar_examples, parse_tar, TRACED, share=30))
register(
    Parser(
        "shard-receipt",
        "receipts of a conversion",
        lambda: [shard_bytes(kind)[RECEIPT] for kind in KINDS],
        parse_receipt,
        ("ocr/tools/convert/shard_receipt", "ocr/shards/"),
        "json",
        share=20,
    )
)
