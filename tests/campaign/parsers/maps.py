"""Stored maps: the archive, and the arrays in it with the checksums of the archive made right again."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from ocr.errors import MapError
from ocr.formats.maps import NAMES, read_fingerprint, read_maps
from tests.campaign.cases import CrashError, Parser, refused, register
from tests.campaign.pages import map_bytes
from tests.campaign.parsers.shards import NPY_TOKENS

SIZE = (32, 24)
ZIP_TOKENS = (
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"\x0e\x00",
    b"\x0c\x00",
    b"\x5d\x00",
    b".npy",
)


def parse(data: bytes, folder: Path) -> bool:
    file = folder / "a.npz"
    file.write_bytes(data)
    try:
        read_fingerprint(file)
        _, maps = read_maps(file, size=SIZE)
        read_maps(file)
    except MapError as error:
        return refused(error, file.name)
    if maps is None or len(maps) != len(NAMES) or any(array.shape != (SIZE[1], SIZE[0]) for array in maps):
        raise CrashError(f"not the maps of a page: {maps}")
    return True


def member(name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(map_bytes(False))) as archive:
        return archive.read(f"{name}.npy")


def parse_member(name: str, data: bytes, folder: Path) -> bool:
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(map_bytes(False))) as old, zipfile.ZipFile(stream, "w") as new:
        for each in old.namelist():
            new.writestr(each, data if each == f"{name}.npy" else old.read(each))
    return parse(stream.getvalue(), folder)


register(
    Parser(
        "maps-file",
        "files of stored maps",
        lambda: [map_bytes(False), map_bytes(True)],
        parse,
        ("ocr/formats/maps", "/zipfile"),
        share=40,
        tokens=ZIP_TOKENS,
    )
)
for _name in ("fingerprint", "thresh_map"):
    register(
        Parser(
            f"maps-{_name.replace('_', '-')}",
            f"stored maps, {_name}.npy",
            lambda name=_name: [member(name)],
            lambda data, folder, name=_name: parse_member(name, data, folder),
            ("ocr/formats/maps", "numpy/lib/_format_impl", "numpy/lib/format"),
            share=20,
            tokens=NPY_TOKENS,
        )
    )
