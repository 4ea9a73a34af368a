"""Pages of TIFFs and PDFs: all are found, by path and by bytes; damaged files are named and leave nothing open."""

import io
import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin
from rejection import rejects

from ocr.deploy.detector import Detector
from ocr.deploy.documents import count_pdf_pages, render_pdf_page, tiff_pages
from ocr.deploy.inputs import is_single, pages_of
from ocr.errors import ImageError
from ocr.pipeline.decode import Decode

ORIENTATION, SUBFILE_TYPE = 274, 254
LEFT_SIDE_UP, THUMBNAIL = 6, 1


def picture(number: int) -> Image.Image:
    """A page that is told from others by its size and its gray."""
    return Image.new("RGB", (40 + 4 * number, 60), (50 * number,) * 3)


def saved(*pictures: Image.Image, tags: dict[int, int] | None = None, **options) -> bytes:
    stream = io.BytesIO()
    info = TiffImagePlugin.ImageFileDirectory_v2()
    for tag, value in (tags or {}).items():
        info[tag] = value
    first, *others = pictures
    first.save(stream, "TIFF", save_all=True, append_images=others, tiffinfo=info, **options)
    return stream.getvalue()


def changed(data: bytes, place: int, number: int) -> bytes:
    return data[:place] + struct.pack("<L", number) + data[place + 4 :]


def successor(data: bytes, page: int) -> int:
    """Where the description of a page has the place of the next one."""
    place = list(tiff_pages(data, "x"))[page]
    (entries,) = struct.unpack_from("<H", data, place)
    return place + 2 + 12 * entries


def read(content) -> list[tuple[int | None, int, int]]:
    """Number, width and gray of every page."""
    pages = [(page.number, page.read(Decode()).image) for page in pages_of(content)]
    return [(number, image.shape[1], int(image[30, 20, 0])) for number, image in pages]


@pytest.mark.parametrize("options", [{}, {"big_tiff": True}, {"compression": "tiff_lzw"}])
def test_every_page_has_its_own_number_size_and_pixels(tmp_path, options):
    data = saved(*map(picture, range(4)), **options)
    (tmp_path / "fax.tif").write_bytes(data)
    expected = [(1, 40, 0), (2, 44, 50), (3, 48, 100), (4, 52, 150)]
    assert read(data) == read(tmp_path / "fax.tif") == expected
    assert not is_single(data)
    assert not is_single(str(tmp_path / "fax.tif"))


def test_a_tiff_of_one_page_is_an_image_like_others():
    data = saved(picture(2))
    assert read(data) == [(None, 48, 100)]
    assert is_single(data)


def test_most_significant_byte_first():
    """Written by hand: one row of gray pixels on each of two pages."""

    def description(width: int, strip: int, following: int) -> bytes:
        entries = {256: width, 257: 4, 258: 8, 259: 1, 262: 1, 273: strip, 277: 1, 278: 4, 279: 4 * width}
        packed = b"".join(struct.pack(">HHLL", tag, 4, 1, value) for tag, value in entries.items())
        return struct.pack(">H", len(entries)) + packed + struct.pack(">L", following)

    size = len(description(0, 0, 0))
    pixels = [bytes([10]) * 4 * 6, bytes([200]) * 4 * 9]
    strips = [8 + 2 * size, 8 + 2 * size + len(pixels[0])]
    head = b"MM\0*" + struct.pack(">L", 8)
    data = head + description(6, strips[0], 8 + size) + description(9, strips[1], 0) + b"".join(pixels)
    pages = [page.read(Decode()).image for page in pages_of(data)]
    assert [image.shape for image in pages] == [(4, 6, 3), (4, 9, 3)]
    assert [set(image.ravel().tolist()) for image in pages] == [{10}, {200}]


def test_each_page_is_turned_as_it_says():
    data = saved(picture(0), picture(1), tags={ORIENTATION: LEFT_SIDE_UP})
    shapes = [page.read(Decode()).shape for page in pages_of(data)]
    assert shapes[0] == (60, 40)
    assert len(shapes) == 2


def test_smaller_copies_are_no_pages():
    """The first of two pictures is said to be a thumbnail."""
    data = saved(picture(0), picture(1), tags={SUBFILE_TYPE: 0})
    kind = next(tiff_pages(data, "x")) + 2 + 8
    assert read(changed(data, kind, THUMBNAIL)) == [(None, 44, 50)]


def test_a_detector_gives_a_list_and_names_each_page(checkpoint, page, tmp_path):
    detector = Detector.load(checkpoint)
    Image.fromarray(page).save(tmp_path / "a.tiff", save_all=True, append_images=[Image.fromarray(page[:96])])
    found = detector(tmp_path / "a.tiff")
    assert [(one.number, one.height) for one in found] == [(1, 140), (2, 96)]
    assert np.array_equal(found[0].polygons, detector(page).polygons)


class TestDamage:
    def test_pages_before_the_damage_are_read_and_the_rest_is_told(self):
        data = saved(*map(picture, range(3)))
        *good, bad = pages_of(changed(data, successor(data, 1), len(data) + 99))
        assert [page.read(Decode()).image.shape[1] for page in good] == [40, 44]
        with rejects(ImageError, value=None, path="bytes"):
            bad.read(Decode())

    def test_pages_in_a_circle_end(self):
        data = saved(*map(picture, range(2)))
        first = next(tiff_pages(data, "x"))
        *good, bad = pages_of(changed(data, successor(data, 1), first))
        assert [page.read(Decode()).image.shape[1] for page in good] == [40, 44]
        with rejects(ImageError, value=first, path="bytes"):
            bad.read(Decode())

    @pytest.mark.parametrize("length", range(4, 40, 5))
    def test_a_file_that_ends_in_its_header_is_refused_as_an_image(self, length):
        (only,) = pages_of(saved(picture(1), compression="tiff_lzw")[:length])
        assert only.number is None
        with pytest.raises(ImageError):
            only.read(Decode())


def without_pages() -> bytes:
    """A PDF whose catalogue refers to no list of pages; of the same length, so that its table of objects is right."""
    stream = io.BytesIO()
    Image.new("RGB", (40, 30)).save(stream, "PDF")
    return stream.getvalue().replace(b"/Pages 4 0 R", b"/Pages 4.0 R")


def open_files(below: Path) -> list[str]:
    """Files of a folder that this process has open."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    return [path for path in found if path.startswith(str(below))]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_pdf_without_pages_is_named_and_closed(tmp_path):
    pytest.importorskip("pypdfium2")
    file = tmp_path / "empty.pdf"
    file.write_bytes(without_pages())
    for content in (str(file), without_pages()):
        with rejects(ImageError, value="it has no pages", path="empty.pdf"):
            count_pdf_pages(content, "empty.pdf")
        with rejects(ImageError, value="it has no pages", path="empty.pdf"):
            render_pdf_page(content, "empty.pdf", 0, 10**6)
    assert open_files(tmp_path) == []


def test_a_pdf_that_is_damaged_or_gone_is_named_with_the_reason(tmp_path):
    pytest.importorskip("pypdfium2")
    file = tmp_path / "bad.pdf"
    with rejects(ImageError, path="bad.pdf") as gone:
        count_pdf_pages(str(file), "bad.pdf")
    assert str(file) in str(gone.value.value)
    file.write_bytes(b"%PDF-1.4\nnothing")
    with rejects(ImageError, path="bad.pdf") as damaged:
        count_pdf_pages(str(file), "bad.pdf")
    assert "format" in str(damaged.value.value)
