"""Tiny pages, shards, maps and models that the classes damage; each is made once per process."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import convert_pages
import numpy as np
from convert_pages import convert, write_pages
from PIL import Image

from ocr.formats.maps import pack_maps
from ocr.tools.convert.shard_receipt import IndexReceipts, done_file, read_index, write_done

MAX_PIXELS = 1_000_000
"""Of a page, as decode.max_pixels."""
SHARD, INDEX = "val-000000.tar", "val-index.json"
RECEIPT = done_file(Path(SHARD)).name
TINY = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}
KINDS: dict[str, dict[str, Any]] = {
    "raw": {},
    "ready": {"ready": True, "form": "raw"},
    "dense": {"ready": True, "form": "dense"},
}


def noise(height: int = 40, width: int = 48, channels: int = 3) -> np.ndarray:
    """A small page, the same each time."""
    return np.random.default_rng(height).integers(0, 256, (height, width, channels), dtype=np.uint8)


@lru_cache(maxsize=8)
def shard_bytes(kind: str) -> dict[str, bytes]:
    """The files of two pages as `ocr convert` writes them: shard, index and receipt."""
    with tempfile.TemporaryDirectory() as folder:
        data = write_pages(Path(folder) / "pages", convert_pages.NAMES[:2])
        convert(data, out := Path(folder) / "out", workers=1, **KINDS[kind])
        index = read_index(out / INDEX)
        assert index is not None
        # A conversion that is not finished has a receipt of each shard in place of the index.
        write_done(out / SHARD, IndexReceipts(index, convert_pages.NAMES[:2])[0])
        return convert_pages.files(out)


@lru_cache(maxsize=2)
def map_bytes(compress: bool) -> bytes:
    """A file of stored maps."""
    maps = [np.zeros((24, 32), kind) for kind in (np.float32, np.float32, np.bool_, np.bool_)]
    maps[0][4:9, 3:20] = 1
    stream = io.BytesIO()
    pack_maps(stream, tuple(maps), "a fingerprint", compress)
    return stream.getvalue()


def encode(format: str, **options: Any) -> bytes:
    """A small image in some format; `mode` converts it first."""
    image = Image.fromarray(noise()).convert(options.pop("mode", "RGB"))
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def images() -> Iterator[tuple[str, list[bytes]]]:
    """Name of every codec, and images of all its kinds."""
    gray = Image.fromarray(noise(channels=1)[:, :, 0].astype(np.uint16) << 8)
    deep = io.BytesIO()
    gray.save(deep, "PNG")
    other = Image.fromarray(255 - noise())
    yield (
        "jpeg",
        [
            encode("JPEG", exif=turned()),
            encode("JPEG", mode="L"),
            encode("JPEG", mode="CMYK"),
            encode("JPEG", progressive=True),
            encode("JPEG", subsampling=0, restart_marker_rows=1),
        ],
    )
    yield (
        "png",
        [
            encode("PNG", exif=turned()),
            encode("PNG", mode="P"),
            encode("PNG", mode="RGBA"),
            encode("PNG", mode="1"),
            deep.getvalue(),
        ],
    )
    yield (
        "webp",
        [
            encode("WEBP"),
            encode("WEBP", lossless=True, exif=turned()),
            encode("WEBP", mode="RGBA"),
            encode("WEBP", save_all=True, append_images=[other]),
        ],
    )
    yield (
        "tiff",
        [
            encode("TIFF"),
            *(encode("TIFF", compression=kind) for kind in ("tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")),
            encode("TIFF", mode="1", compression="group4"),
            encode("TIFF", mode="L", tiffinfo={274: 6}),
            encode("TIFF", mode="P"),
            encode("TIFF", big_tiff=True),
        ],
    )
    yield "bmp", [encode("BMP"), encode("BMP", mode="P"), encode("BMP", mode="1"), encode("BMP", mode="RGBA")]
    yield "gif", [encode("GIF"), encode("GIF", save_all=True, append_images=[other]), encode("GIF", mode="L")]
    yield "jpeg2000", [encode("JPEG2000"), encode("JPEG2000", mode="L"), encode("JPEG2000", no_jp2=True)]
    plain = b"P2\n# text\n4 4\n255\n" + b" ".join(b"%d" % value for value in range(16))
    yield "ppm", [encode("PPM"), encode("PPM", mode="L"), encode("PPM", mode="1"), plain, plain.replace(b"P2", b"P1")]
