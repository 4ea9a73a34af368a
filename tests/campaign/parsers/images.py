"""Images of every codec, and PDFs: decoded, or refused by name; the size in the header is that of the page."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

from ocr.deploy.inputs import pages_of
from ocr.errors import ImageError
from ocr.pipeline.decode import Decode
from ocr.pipeline.image_header import size_in_header
from ocr.pipeline.page_rows import NO_POLYGONS
from ocr.pipeline.sample import Sample
from tests.campaign.cases import CrashError, Parser, refused, register
from tests.campaign.pages import MAX_PIXELS, images, noise

TOKENS = {
    "jpeg": (b"\xff\xd8", b"\xff\xc0", b"\xff\xc2", b"\xff\xc4", b"\xff\xdb", b"\xff\xda", b"\xff\xe1", b"\xff\xd9"),
    "png": (b"IHDR", b"IDAT", b"PLTE", b"tRNS", b"iCCP", b"eXIf", b"zTXt", b"acTL", b"fcTL", b"IEND"),
    "webp": (b"VP8X", b"VP8L", b"VP8 ", b"ALPH", b"ANIM", b"ANMF", b"EXIF"),
    "tiff": (
        b"\x00\x01\x03\x00",
        b"\x01\x01\x04\x00",
        b"\x12\x01\x03\x00",
        b"MM\0*",
        b"II+\0",
        b"\x42\x01",
        b"\x44\x01",
    ),
    "jpeg2000": (b"\xff\x4f\xff\x51", b"\xff\x52", b"\xff\x5c", b"\xff\x90", b"jp2h", b"ihdr", b"colr", b"jp2c"),
    "pdf": (b"/Page", b"/Kids", b"/Count 99999", b"/MediaBox [0 0 1e9 1e9]", b"stream", b"endobj", b"/Length", b"xref"),
}
decode = Decode(max_pixels=MAX_PIXELS)


def parse(name: str, data: bytes, folder: Path) -> bool:
    path = f"some/a.{name}"
    try:
        page = decode(Sample(0, f"a.{name}", path, NO_POLYGONS, annotated=False, encoded=data))
    except ImageError as error:
        return refused(error, path)
    if page.image.ndim != 3 or page.image.shape[2] != 3 or page.image.dtype != "uint8":
        raise CrashError(f"a page of {page.image.dtype} {page.image.shape}")
    if (page.image.shape[1], page.image.shape[0]) != page.shape:
        raise CrashError(f"{page.image.shape} pixels of a page of {page.shape}")
    told = size_in_header(io.BytesIO(data), path, MAX_PIXELS)
    if told != page.shape:
        raise CrashError(f"{told} in the header of a page of {page.shape}")
    return True


def parse_pdf(data: bytes, folder: Path) -> bool:
    path = folder / "a.pdf"
    path.write_bytes(data)
    try:
        for _, page in zip(range(3), pages_of(path), strict=False):
            found = page.read(decode)
            if found.image.shape[0] * found.image.shape[1] > MAX_PIXELS:
                raise CrashError(f"{found.image.shape} pixels")
    except ImageError as error:
        return refused(error, path.name)
    finally:
        path.unlink()
    return True


def pdf_examples() -> list[bytes]:
    from service_client import pdf

    return [pdf(noise(60, 80)), pdf(noise(30, 20), noise(20, 30))]


for _name, _examples in images():
    register(
        Parser(
            f"image-{_name}",
            f"images, {_name}",
            lambda examples=_examples: examples,
            partial(parse, _name),
            ("ocr/pipeline/image_header", "ocr/pipeline/decode", "/PIL/"),
            share=40,
            tokens=TOKENS.get(_name, ()),
        )
    )
register(
    Parser(
        "pdf",
        "PDFs",
        pdf_examples,
        parse_pdf,
        ("ocr/deploy/pdf", "ocr/deploy/inputs"),
        share=15,
        needs=("pypdfium2",),
        tokens=TOKENS["pdf"],
    )
)
