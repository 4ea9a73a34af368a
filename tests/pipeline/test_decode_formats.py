"""decode with `scaled="off"`: Pillow's pixels bit for bit, upright, whatever the format."""

import io
import struct
import warnings
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from ocr.geometry.orientation import upright_size
from ocr.geometry.polygons import Polygons
from ocr.pipeline.decode import ORIENTATION_TAG, Decode, read_header
from ocr.pipeline.sample import Sample


def picture(width=65, height=47):
    y, x = np.mgrid[:height, :width]
    page = np.stack([x * 5 + y, y * 3, x * y // 7], axis=-1) % 256
    page[height // 4 : height // 2, width // 3 : width // 2] = (220, 30, 60)
    return Image.fromarray(page.astype(np.uint8))


def encode(image, format, **options):
    stream = io.BytesIO()
    image.save(stream, format, **options)
    return stream.getvalue()


def oriented(value):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = value
    return exif


def read(data):
    return Decode(scaled="off")(Sample(0, "a.img", "a.img", Polygons.pack([]), encoded=data))


def assert_is_pillows(data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        sample = read(data)
    assert sample.image.dtype == np.uint8
    assert np.array_equal(sample.image, expected)
    assert sample.recovered == ""


JPEGS = {
    "4:2:0": {"subsampling": "4:2:0"},
    "4:2:2": {"subsampling": "4:2:2"},
    "4:4:4": {"subsampling": "4:4:4"},
    "4:1:1": {"subsampling": "4:1:1"},
    "progressive": {"progressive": True},
    "restart markers": {"restart_marker_blocks": 3},
    "quality 20": {"quality": 20},
    "stored as RGB": {"keep_rgb": True},
}


@pytest.mark.parametrize("size", [(64, 48), (65, 47), (17, 130), (4, 5)])
@pytest.mark.parametrize("options", JPEGS.values(), ids=JPEGS)
def test_jpeg_pixels_are_pillows(options, size):
    assert_is_pillows(encode(picture(*size), "JPEG", **options))


@pytest.mark.parametrize("mode", ["L", "CMYK"])
@pytest.mark.parametrize("size", [(64, 48), (65, 47)])
def test_gray_and_cmyk_jpeg_pixels_are_pillows(mode, size):
    assert_is_pillows(encode(picture(*size).convert(mode), "JPEG"))


def test_the_first_picture_of_a_stereo_jpeg_is_read():
    data = encode(picture(), "MPO", save_all=True, append_images=[picture().rotate(180)])
    assert read_header(data, "", 10**6).format == "MPO"
    assert_is_pillows(data)


OTHERS = {
    "PNG RGB": lambda: encode(picture(), "PNG"),
    "PNG gray": lambda: encode(picture().convert("L"), "PNG"),
    "PNG palette": lambda: encode(picture().quantize(32), "PNG"),
    "PNG 1-bit": lambda: encode(picture().convert("1"), "PNG"),
    "PNG 48-bit": lambda: with_opencv(".png", np.uint16),
    "WebP": lambda: encode(picture(), "WEBP"),
    "WebP lossless": lambda: encode(picture(), "WEBP", lossless=True),
    "TIFF RGB": lambda: encode(picture(), "TIFF"),
    "TIFF LZW": lambda: encode(picture(), "TIFF", compression="tiff_lzw"),
    "TIFF gray": lambda: encode(picture().convert("L"), "TIFF"),
    "TIFF fax": lambda: encode(picture().convert("1"), "TIFF", compression="group4"),
    "TIFF CMYK": lambda: encode(picture().convert("CMYK"), "TIFF"),
    "BMP": lambda: encode(picture(), "BMP"),
    "BMP palette": lambda: encode(picture().quantize(32), "BMP"),
    "GIF": lambda: encode(picture(), "GIF"),
    "JPEG 2000": lambda: encode(picture(), "JPEG2000"),
}


def with_opencv(extension, dtype):
    scale = np.iinfo(dtype).max // 255
    return cv2.imencode(extension, np.asarray(picture())[:, :, ::-1].astype(dtype) * scale)[1].tobytes()


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_formats_have_pillows_pixels(make):
    assert_is_pillows(make())


def with_alpha(mode):
    image = picture().convert(mode)
    image.putalpha(Image.fromarray(np.arange(65 * 47, dtype=np.uint8).reshape(47, 65)))
    return image


CLEAR = {
    "PNG": lambda: encode(with_alpha("RGB"), "PNG"),
    "PNG gray": lambda: encode(with_alpha("L"), "PNG"),
    "PNG palette, one colour clear": lambda: encode(picture().quantize(32), "PNG", transparency=3),
    "PNG palette, half clear": lambda: encode(picture().quantize(32), "PNG", transparency=bytes(range(0, 256, 8))),
    "PNG, one colour clear": lambda: encode(picture(), "PNG", transparency=(220, 30, 60)),
    "TIFF": lambda: encode(with_alpha("RGB"), "TIFF"),
    "TIFF gray": lambda: encode(with_alpha("L"), "TIFF"),
    "WebP": lambda: encode(with_alpha("RGB"), "WEBP", lossless=True, exact=True),
    "GIF": lambda: encode(picture().quantize(32), "GIF", transparency=3),
}


@pytest.mark.parametrize("make", CLEAR.values(), ids=CLEAR)
def test_what_is_transparent_shows_white_paper(make):
    data = make()
    rgba = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA")).astype(float)
    share = rgba[:, :, 3:] / 255
    assert share.min() < 1
    expected = rgba[:, :, :3] * share + 255 * (1 - share)
    assert np.abs(read(data).image - expected).max() <= 1


@pytest.mark.parametrize(("format", "byte_order"), [("PNG", "<"), ("TIFF", "<"), ("TIFF", ">")])
def test_16_bit_gray_is_scaled_and_not_clipped(format, byte_order):
    values = np.linspace(0, 65535, 60 * 50).reshape(50, 60).astype(f"{byte_order}u2")
    sample = read(encode(Image.fromarray(values), format))
    assert np.array_equal(sample.image, np.repeat((values >> 8).astype(np.uint8)[:, :, None], 3, axis=2))
    assert len(np.unique(sample.image)) == 256


GRAY = np.linspace(0, 255, 60 * 50).reshape(50, 60)


@pytest.mark.parametrize(
    "values",
    [
        (GRAY * 16).astype(np.uint16),
        (GRAY * 2**23).astype(np.int32),
        GRAY.astype(np.int32),
        (GRAY / 255).astype(np.float32),
        GRAY.astype(np.float32),
        np.where(GRAY < 3, np.nan, GRAY / 255).astype(np.float32),
    ],
    ids=["12 bits in 16", "31 bits", "8 bits in 32", "0 to 1", "0 to 255", "no number"],
)
def test_wide_gray_of_a_tiff_is_scaled_to_bytes(values):
    page = read(encode(Image.fromarray(values), "TIFF")).image
    known = ~np.isnan(values.astype(float))
    assert np.abs(page[:, :, 0][known] - GRAY[known]).max() <= 1
    assert (page[~known] == 0).all()


def test_unsigned_gray_of_32_bits_has_no_negative_values():
    values = (GRAY * 2**24).astype(np.uint32)
    signed = encode(Image.fromarray(values.view(np.int32)), "TIFF")
    stored = signed.replace(struct.pack("<HHIH", 339, 3, 1, 2), struct.pack("<HHIH", 339, 3, 1, 1))
    assert stored != signed
    assert np.abs(read(stored).image[:, :, 0] - GRAY).max() <= 1


def test_a_48_bit_tiff_keeps_its_upper_bytes():
    data = with_opencv(".tiff", np.uint16)
    assert np.array_equal(read(data).image, np.asarray(picture()))


EXIF_FORMATS = {"JPEG": {}, "PNG": {}, "WEBP": {}, "TIFF": {}, "TIFF LZW": {"compression": "tiff_lzw"}}


def turned(raw, orientation):
    return {
        1: raw,
        2: raw[:, ::-1],
        3: raw[::-1, ::-1],
        4: raw[::-1],
        5: raw.transpose(1, 0, 2),
        6: np.rot90(raw, -1),
        7: raw[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(raw),
    }[orientation]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", EXIF_FORMATS)
def test_each_orientation_is_applied_exactly_once(format, orientation):
    name, options = format.split()[0], EXIF_FORMATS[format]
    plain = encode(picture(), name, **options)
    data = encode(picture(), name, exif=oriented(orientation), **options)
    sample = read(data)
    assert np.array_equal(
        sample.image, np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
    )
    assert np.array_equal(sample.image, turned(np.asarray(Image.open(io.BytesIO(plain)).convert("RGB")), orientation))
    assert (sample.orientation, sample.raw_size) == (orientation, (65, 47))
    assert sample.shape == (sample.width, sample.height) == upright_size(orientation, 65, 47)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_orientation_that_does_not_exist_counts_as_none(format, orientation):
    sample = read(encode(picture(), format, exif=oriented(orientation)))
    assert (sample.orientation, sample.shape, sample.recovered) == (1, (65, 47), "")


def exif_tag(kind, count, value):
    entry = struct.pack("<HHI", ORIENTATION_TAG, kind, count) + value.ljust(4, b"\0")
    return b"Exif\0\0II*\0\x08\0\0\0\x01\0" + entry + b"\0\0\0\0"


def jpeg_with_exif(payload):
    plain = encode(picture(), "JPEG")
    return plain[:2] + b"\xff\xe1" + struct.pack(">H", len(payload) + 2) + payload + plain[2:]


DAMAGED_EXIF = {
    "text": exif_tag(2, 2, b"6"),
    "letters": exif_tag(2, 3, b"ab"),
    "bytes": exif_tag(7, 2, b"\6"),
    "not a number": exif_tag(11, 1, struct.pack("<f", float("nan"))),
    "infinity": exif_tag(11, 1, struct.pack("<f", float("inf"))),
    "fraction out of the file": exif_tag(5, 1, b"\xff\xff\xff\x7f"),
    "cut": exif_tag(3, 1, b"\6")[:20],
    "empty": b"Exif\0\0",
    "noise": b"Exif\0\0" + bytes(range(7, 90)),
    "noise behind a header": b"Exif\0\0II*\0" + bytes(range(7, 90)),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("payload", DAMAGED_EXIF.values(), ids=DAMAGED_EXIF)
def test_damaged_exif_neither_turns_the_page_nor_changes_its_decoder(payload):
    data = jpeg_with_exif(payload)
    assert read(data).orientation == 1
    assert_is_pillows(data)


def test_an_orientation_in_another_number_type_counts():
    assert read(jpeg_with_exif(exif_tag(3, 1, b"\6"))).orientation == 6
    assert read(jpeg_with_exif(exif_tag(4, 1, b"\6"))).orientation == 6


def png_chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def test_the_orientation_of_a_png_is_found_behind_its_pixels_too():
    plain, exif = encode(picture(), "PNG"), png_chunk(b"eXIf", oriented(6).tobytes()[6:])
    data = plain[:-12] + exif + plain[-12:]
    sample = read(data)
    assert sample.orientation == 6
    assert np.array_equal(sample.image, np.rot90(np.asarray(picture()), -1))


def test_the_header_of_a_png_is_read_without_its_pixels():
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 8000, 8, 2, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"IDAT", b"not a zlib stream")
    assert read_header(data, "a.png", 10**9).raw_size == (9000, 8000)
