"""Headers come first: format and size are known, and judged, before any library decodes or allocates."""

import io
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image
from rejection import rejects

from ocr.errors import ImageError, ImageSizeError
from ocr.geometry.polygons import Polygons
from ocr.pipeline.decode import Decode, declared_size, image_format, open_image, read_header
from ocr.pipeline.sample import Sample

PAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (47, 65, 3), dtype=np.uint8))


def encode(format, image=PAGE, **options):
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


KNOWN = {
    "JPEG": lambda: encode("JPEG"),
    "JPEG progressive": lambda: encode("JPEG", progressive=True),
    "JPEG CMYK": lambda: encode("JPEG", PAGE.convert("CMYK")),
    "PNG": lambda: encode("PNG"),
    "BMP": lambda: encode("BMP"),
    "BMP of OS/2": lambda: (
        b"BM" + struct.pack("<IHHIIHHHH", 26 + 47 * 196, 0, 0, 26, 12, 65, 47, 1, 24) + bytes(47 * 196)
    ),
    "WEBP": lambda: encode("WEBP"),
    "WEBP lossless": lambda: encode("WEBP", lossless=True),
    "WEBP extended": lambda: encode("WEBP", exif=Image.Exif().tobytes(), icc_profile=b"x" * 200),
    "TIFF": lambda: encode("TIFF"),
    "TIFF big-endian": lambda: big_endian_tiff(65, 47),
    "GIF": lambda: encode("GIF"),
    "JPEG2000": lambda: encode("JPEG2000"),
    "PPM": lambda: encode("PPM"),
}
SIZE_KNOWN = [name for name in KNOWN if name not in ("GIF", "JPEG2000", "PPM")]


def big_endian_tiff(width, height, *extra):
    """Gray, uncompressed."""
    tags = [(256, 3, width << 16), (257, 4, height), (258, 3, 8 << 16), (259, 3, 1 << 16), (262, 3, 1 << 16)]
    tags += [(273, 4, 200), (277, 3, 1 << 16), (278, 4, height), (279, 4, 47 * 65), *extra]
    entries = b"".join(struct.pack(">HHII", tag, kind, 1, value) for tag, kind, value in tags)
    start = b"MM\0*" + struct.pack(">IH", 8, len(tags)) + entries + bytes(4)
    return start.ljust(200, b"\0") + bytes(47 * 65)


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_format_is_told_by_its_content(name):
    data = KNOWN[name]()
    assert image_format(data[:16]) == name.split()[0]
    assert read_header(data, "a.jpg", 65 * 47).raw_size == (65, 47)
    assert open_image(io.BytesIO(data), name.split()[0]).size == (65, 47)


@pytest.mark.parametrize("name", SIZE_KNOWN)
def test_its_size_is_read_without_decoding(name):
    data = KNOWN[name]()
    assert declared_size(data, name.split()[0]) == (65, 47)
    for length in range(12, min(len(data), 300)):
        # Whatever is cut off: a size, or None, but no exception.
        declared_size(data[:length], name.split()[0])


@pytest.mark.parametrize("format", ["EPS", "PCX", "ICO", "TGA", "SGI", "PDF", "ICNS", "DDS"])
def test_other_formats_of_pillow_are_refused_whatever_their_name(format):
    data = encode(format, PAGE.resize((64, 64)))
    with rejects(ImageError, value=data[:8], path="a.jpg"):
        read_header(data, "a.jpg", 10**6)


def test_an_eps_reaches_no_other_program_through_the_decoder(monkeypatch):
    started = []
    monkeypatch.setattr(subprocess, "check_call", lambda *command, **_: started.append(command))
    monkeypatch.setattr("PIL.EpsImagePlugin.has_ghostscript", lambda: True)
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", "gs")
    data = encode("EPS")
    with rejects(ImageError, value=data[:8], path="a.jpg"):
        Decode()(Sample(0, "a.jpg", "a.jpg", Polygons.pack([]), encoded=data))
    assert started == []


def png_claiming(width, height):
    """Only OpenCV opens it: the sum of its gAMA chunk is wrong."""

    def chunk(name, content, wrong=0):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content) ^ wrong)

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    gamma = chunk(b"gAMA", struct.pack(">I", 45_455), wrong=1)
    return b"\x89PNG\r\n\x1a\n" + header + gamma + chunk(b"IDAT", zlib.compress(bytes(1000)))


def bmp_claiming(width, height):
    """Only OpenCV opens it: Pillow knows no image of two planes."""
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, width, -height, 2, 24, 99, 0, 0, 0, 0, 0)


def webp_claiming(width, height):
    data = bytearray(encode("WEBP"))
    data[26:30] = struct.pack("<HH", width, height)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "side"),
    [
        (png_claiming(30_000, 30_000), 30_000),
        (bmp_claiming(30_000, 30_000), 30_000),
        (big_endian_tiff(30_000, 30_000, (259, 3, 77 << 16)), 30_000),
        (webp_claiming(16_000, 16_000), 16_000),
    ],
    ids=["PNG", "BMP", "TIFF", "WEBP"],
)
def test_a_file_that_pillow_cannot_open_is_judged_by_its_header_before_opencv_sees_it(data, side, monkeypatch):
    seen = []
    monkeypatch.setattr(cv2, "imdecode", lambda *arguments: seen.append(arguments))
    with rejects(ImageSizeError, setting="decode.max_pixels", value=(side, side), path="a.jpg"):
        read_header(data, "a.jpg", 10**6)
    assert seen == []


def test_a_file_whose_size_nobody_declares_is_never_given_to_opencv(monkeypatch):
    seen = []
    monkeypatch.setattr(cv2, "imdecode", lambda *arguments: seen.append(arguments))
    for data in (b"P6 nonsense", b"GIF89a", b"\x89PNG\r\n\x1a\n" + bytes(99), b"v/1\x01" + bytes(99)):
        with rejects(ImageError, value=data[:8], path="a.jpg"):
            read_header(data, "a.jpg", 10**6)
    assert seen == []


def test_a_png_with_a_chunk_larger_than_the_file_is_never_given_to_opencv(monkeypatch):
    sound, wrong_gamma, seen = encode("PNG"), png_claiming(65, 47)[33:49], []
    data = bytearray(sound[:33] + wrong_gamma + sound[33:])
    at = data.index(b"IDAT") - 4
    assert read_header(bytes(data), "a.png", 10**6).format == "OPENCV"
    data[at : at + 4] = struct.pack(">I", 2**32 - 999)
    monkeypatch.setattr(cv2, "imdecode", lambda *arguments: seen.append(arguments))
    with rejects(ImageError, value=b"\x89PNG\r\n\x1a\n", path="a.png"):
        read_header(bytes(data), "a.png", 10**6)
    assert seen == []


@pytest.mark.parametrize("format", ["JPEG", "PNG", "BMP", "GIF", "PPM"])
def test_the_limit_of_the_host_process_neither_applies_nor_changes(format, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    page = Decode(scaled="off")(Sample(0, "a", "a", Polygons.pack([]), encoded=encode(format)))
    assert page.shape == (65, 47)
    assert Image.MAX_IMAGE_PIXELS == 100


@pytest.mark.parametrize("format", ["WEBP", "TIFF"])
def test_where_pillow_applies_it_all_the_same_it_is_named(format, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with rejects(ImageSizeError, setting="PIL.Image.MAX_IMAGE_PIXELS", value=100, path="a.jpg"):
        Decode()(Sample(0, "a", "a.jpg", Polygons.pack([]), encoded=encode(format)))


@pytest.mark.slow
def test_importing_every_module_leaves_pillows_limit_alone():
    code = (
        "import importlib, pkgutil, PIL.Image, ocr\n"
        "before = PIL.Image.MAX_IMAGE_PIXELS\n"
        "for name in ('ocr.pipeline', 'ocr.formats', 'ocr.geometry', 'ocr.tools.doctor', 'ocr.tools.synth'):\n"
        "    for module in pkgutil.iter_modules(importlib.import_module(name).__path__, name + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(before, PIL.Image.MAX_IMAGE_PIXELS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = done.stdout.split()
    assert before == after != "None"
