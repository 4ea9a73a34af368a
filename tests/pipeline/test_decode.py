"""decode: scaled pages keep their geometry, damaged pages are read or named, and nothing too large is opened."""

import io
import struct
import warnings
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rejection import rejects

from ocr.errors import ConfigError, ImageError, ImageSizeError
from ocr.geometry.polygons import Polygons
from ocr.malloc import keep_freed_memory
from ocr.pipeline.decode import ORIENTATION_TAG, Decode, decode_pixels, read_header
from ocr.pipeline.prefix import Letterbox
from ocr.pipeline.sample import Sample

SIZE = 64
WORDS = Polygons.pack([[[11, 7], [95.5, 9.25], [93, 41], [10, 38]], [[100, 100], [130, 100], [115, 128]]])


def encode(page, format="JPEG", orientation=1, **options):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    stream = io.BytesIO()
    Image.fromarray(page).save(stream, format, exif=exif, **options)
    return stream.getvalue()


def blobs(width, height):
    y, x = np.mgrid[:height, :width]
    page = np.stack([127 + 100 * np.sin(x / 90), 127 + 100 * np.cos(y / 71), 127 + 60 * np.sin((x + y) / 93)], axis=-1)
    return page.astype(np.uint8)


def sample_of(data, polygons=WORDS):
    return Sample(0, "a.jpg", "folder/a.jpg", polygons, encoded=data)


def read(data, **settings):
    return Decode(**settings)(sample_of(data))


@pytest.mark.parametrize("orientation", [1, 3, 5, 6])
@pytest.mark.parametrize("size", [(300, 170), (1024, 768), (401, 517), (177, 600)])
def test_a_scaled_page_has_the_geometry_of_the_full_one(size, orientation):
    data = encode(blobs(*size), orientation=orientation)
    full, scaled = (read(data, scaled=how, needed_side=SIZE) for how in ("off", "auto"))
    assert scaled.image.size < full.image.size / 3
    assert scaled.reduced_from == full.shape == scaled.shape
    letterbox = Letterbox(SIZE)
    full, scaled = letterbox(full), letterbox(scaled)
    assert np.array_equal(scaled.polygons.vertices, full.polygons.vertices)
    assert np.array_equal(scaled.polygons.offsets, full.polygons.offsets)
    assert np.array_equal(scaled.inverse_matrix, full.inverse_matrix)
    assert (scaled.shape, scaled.raw_size, scaled.reduced_from) == (full.shape, full.raw_size, None)
    assert scaled.image.shape == full.image.shape == (SIZE, SIZE, 3)


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("size", [(300, 170), (512, 512), (401, 517), (605, 333)])
def test_the_pixels_of_a_scaled_page_are_near_the_averaged_original(size, orientation):
    data = encode(blobs(*size), orientation=orientation, quality=95)
    full = read(data, scaled="off")
    scaled = Letterbox(SIZE, position="top_left")(read(data, scaled="auto", needed_side=SIZE))
    scale = SIZE / max(size)
    width, height = round(full.width * scale), round(full.height * scale)
    expected = cv2.resize(full.image, (width, height), interpolation=cv2.INTER_AREA).astype(int)
    difference = np.abs(scaled.image[:height, :width] - expected)
    assert difference.mean() < 1.5
    assert difference.max() < 16


@given(st.integers(4, 900), st.integers(4, 900), st.integers(1, 130))
def test_a_scaled_page_is_never_smaller_than_needed(width, height, needed_side):
    data = encode(np.zeros((height, width, 3), np.uint8))
    image, _ = decode_pixels(data, read_header(data, "", 10**6), "", needed_side)
    scale = min(1, needed_side / max(width, height))
    assert image.shape[1] >= round(width * scale)
    assert image.shape[0] >= round(height * scale)


@pytest.mark.parametrize(
    ("width", "divisor"), [(2 * SIZE, 2), (4 * SIZE - 1, 2), (4 * SIZE, 4), (8 * SIZE - 1, 4), (8 * SIZE, 8)]
)
def test_a_reduction_that_would_end_just_below_the_need_is_not_taken(width, divisor):
    data = encode(np.zeros((40, width, 3), np.uint8))
    image = decode_pixels(data, read_header(data, "", 10**6), "", SIZE)[0]
    assert image.shape[1] == round(width / divisor) >= SIZE


def test_a_page_less_than_twice_as_large_is_read_in_full():
    just_below, twice = encode(blobs(2 * SIZE - 1, 90)), encode(blobs(2 * SIZE, 90))
    assert read(just_below, needed_side=SIZE).reduced_from is None
    assert np.array_equal(read(just_below, needed_side=SIZE).image, read(just_below, scaled="off").image)
    assert read(twice, needed_side=SIZE).image.shape == (45, SIZE, 3)


def test_without_a_letterbox_to_come_the_page_is_read_in_full():
    data = encode(blobs(300, 200))
    assert np.array_equal(read(data, scaled="auto").image, read(data, scaled="off").image)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
@pytest.mark.parametrize("length", [129, 131, 171, 255, 257, 341, 509, 517, 1031])
def test_a_sharp_edge_at_the_far_side_of_a_scaled_page_stays_within_a_pixel(length, orientation):
    upright = np.full((length, length - 14, 3), 255, np.uint8)
    upright[length - 21 :] = 0
    back = {3: 2, 6: 1, 8: 3}.get(orientation, 0)
    data = encode(np.ascontiguousarray(np.rot90(upright, back)), orientation=orientation, quality=95)
    page = Letterbox(SIZE, position="top_left")(read(data, scaled="auto", needed_side=SIZE))
    scale = SIZE / length
    column = page.image[:, round((length - 14) * scale) // 2, 1]
    assert abs(column.sum() / 255 - (length - 21) * scale) < 1


def test_measuring_gives_the_geometry_without_the_pixels():
    data = encode(blobs(300, 170), orientation=6)
    decode = Decode(needed_side=SIZE)
    measured, decoded = (Letterbox(SIZE)(step(sample_of(data))) for step in (decode.measure, decode))
    assert np.array_equal(measured.polygons.vertices, decoded.polygons.vertices)
    assert np.array_equal(measured.inverse_matrix, decoded.inverse_matrix)
    assert (measured.shape, measured.orientation) == (decoded.shape, 6)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("scaled", "fast"), ("scaled", True), ("annotation_frame", "exif"), ("max_pixels", "1e9"), ("max_pixels", 0)],
)
def test_a_setting_that_cannot_work_is_refused(setting, value):
    with rejects(ConfigError, setting=f"decode.{setting}", value=value):
        Decode(**{setting: value})


def test_a_bare_off_of_yaml_means_off():
    assert Decode(scaled=False) == Decode(scaled="off")


PAGE = blobs(200, 150)
KINDS = {"baseline": {}, "progressive": {"progressive": True}, "restart": {"restart_marker_blocks": 3}}


def insert_before(data, marker, junk=b"\x01\x02\x03\x04\x05"):
    at = data.index(marker)
    return data[:at] + junk + data[at:]


@pytest.mark.parametrize("marker", [b"\xff\xdb", b"\xff\xc0", b"\xff\xc4", b"\xff\xda"])
def test_extraneous_bytes_before_a_marker_are_read_over_and_noted(marker):
    sound = encode(PAGE)
    page = read(insert_before(sound, marker))
    assert "extraneous bytes" in page.recovered
    assert np.array_equal(page.image, read(sound).image)


def test_a_damaged_restart_interval_is_read_as_pillow_reads_it():
    sound = encode(PAGE, **KINDS["restart"])
    scan = sound.index(b"\xff\xda")
    data = sound[:scan] + insert_before(sound[scan:], b"\xff\xd2")
    page = read(data)
    assert page.recovered
    assert np.array_equal(page.image, np.asarray(Image.open(io.BytesIO(data)).convert("RGB")))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [1, 2])
def test_a_jpeg_that_lacks_only_its_end_marker_is_read_whole_and_noted(kind, missing):
    sound = encode(PAGE, orientation=6, **KINDS[kind])
    page = read(sound[:-missing])
    assert page.recovered
    assert np.array_equal(page.image, read(sound).image)


@pytest.mark.parametrize("tail", [b"garbage" * 50, bytes(5000), b"\xff\xd8\xff\xe0"])
def test_bytes_behind_the_end_are_no_damage(tail):
    sound = encode(PAGE)
    page = read(sound + tail)
    assert page.recovered == ""
    assert np.array_equal(page.image, read(sound).image)


def test_a_marker_that_no_decoder_knows_is_left_to_opencv():
    sound = encode(PAGE)
    at = len(sound) - 40
    data = sound[:at] + b"\xff\x55" + sound[at:]
    with pytest.raises(OSError, match="broken data stream"):
        Image.open(io.BytesIO(data)).load()
    page = read(data)
    assert "0x55" in page.recovered
    assert np.array_equal(page.image[:100], read(sound).image[:100])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.4, 0.6, 0.8, 0.95])
def test_a_truncated_jpeg_is_an_error_that_names_the_file(kind, share):
    sound = encode(PAGE, **KINDS[kind])
    start = sound.index(b"\xff\xda") + 20
    cut = start + int((len(sound) - start) * share)
    with rejects(ImageError, value=None, path="folder/a.jpg"):
        read(sound[:cut])


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_a_truncated_gray_or_cmyk_jpeg_is_an_error_too(mode):
    stream = io.BytesIO()
    Image.fromarray(PAGE).convert(mode).save(stream, "JPEG")
    with rejects(ImageError, value=None, path="folder/a.jpg"):
        read(stream.getvalue()[:-200])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("format", "is_opened"), [("PNG", True), ("TIFF", True), ("WEBP", False)])
def test_other_truncated_formats_are_errors_that_name_the_file(format, is_opened):
    data = encode(PAGE, format)
    with rejects(ImageError, value=None if is_opened else data[:8], path="folder/a.jpg"):
        read(data[: len(data) // 2])


def test_an_empty_file_says_so():
    with rejects(ImageError, value=b"", path="folder/a.jpg"):
        read(b"")


@pytest.mark.parametrize("data", [b"no image at all", b"\xff\xd8\xff", b"<html>404</html>" * 99])
def test_what_is_no_image_shows_how_it_begins(data):
    with rejects(ImageError, value=data[:8], path="folder/a.jpg"):
        read(data)


@pytest.mark.parametrize("size", [(1, 1), (3, 500), (500, 3)])
def test_a_page_too_small_for_a_letter_says_its_size(size):
    with rejects(ImageError, setting=None, value=size, path="folder/a.jpg"):
        read(encode(np.zeros((size[1], size[0], 3), np.uint8), "PNG"))


def chunk(name, content, checksum=None):
    sum_ = struct.pack(">I", zlib.crc32(name + content)) if checksum is None else checksum
    return struct.pack(">I", len(content)) + name + content + sum_


def png_claiming(width, height, *extra):
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(extra) + chunk(b"IDAT", zlib.compress(bytes(1000)))


def test_a_decompression_bomb_is_refused_by_its_header():
    with rejects(ImageSizeError, setting="decode.max_pixels", value=(50_000, 50_000), path="folder/a.jpg"):
        read(png_claiming(50_000, 50_000))


@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF"])
def test_a_page_over_the_pixel_limit_names_the_setting(format):
    with rejects(ImageSizeError, setting="decode.max_pixels", value=(200, 150), path="folder/a.jpg"):
        read(encode(PAGE, format), max_pixels=29_999)
    assert read(encode(PAGE, format), max_pixels=30_000).shape == (200, 150)


def test_a_large_page_within_the_limit_brings_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_header(png_claiming(12_000, 12_000), "", 178_956_970).raw_size == (12_000, 12_000)


GAMMA_WITH_A_WRONG_SUM = chunk(b"gAMA", struct.pack(">I", 45_455), b"oops")


def test_a_header_that_only_pillow_refuses_is_left_to_opencv_and_noted():
    sound = encode(PAGE, "PNG")
    page = read(sound[:33] + GAMMA_WITH_A_WRONG_SUM + sound[33:])
    assert np.array_equal(page.image, PAGE)
    assert page.recovered == "Pillow cannot open it"


@pytest.mark.filterwarnings("ignore::UserWarning")
@given(st.sampled_from(["JPEG", "PNG", "WEBP", "TIFF"]), st.data())
def test_no_damage_ends_in_anything_but_a_page_or_an_image_error(format, data):
    damaged = bytearray(encode(PAGE[:30, :40], format))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        page = read(bytes(damaged), max_pixels=10**6)
    except ImageError as error:
        sound = error.path == "folder/a.jpg"
    else:
        sound = page.shape == (page.width, page.height)
    assert sound


def test_the_allocator_is_tuned_only_where_there_is_one_to_tune(monkeypatch):
    tune = keep_freed_memory.__wrapped__
    monkeypatch.setattr("sys.platform", "darwin")
    assert tune() is False
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert tune() is False
