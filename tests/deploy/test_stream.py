"""stream: many pages in their order, bad ones raised or skipped."""

from dataclasses import replace

import numpy as np
import pytest
from locked_pdf import LOCKED_PDF
from PIL import Image
from rejection import rejects

from ocr import Detector
from ocr.deploy.documents import render_pdf_page
from ocr.deploy.inputs import pages_of
from ocr.deploy.stream import PageStream
from ocr.errors import ConfigError, ImageError

# A page of 72 x 36 points with one text field, which looks like a black box.
FORM_PDF = b"""%PDF-1.4
1 0 obj <</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[4 0 R]>>>> endobj
2 0 obj <</Type/Pages/Kids[3 0 R]/Count 1>> endobj
3 0 obj <</Type/Page/Parent 2 0 R/MediaBox[0 0 72 36]/Annots[4 0 R]>> endobj
4 0 obj <</Type/Annot/Subtype/Widget/FT/Tx/T(a)/V(b)/F 4/Rect[6 6 66 30]/AP<</N 5 0 R>>>> endobj
5 0 obj <</Type/XObject/Subtype/Form/BBox[0 0 60 24]/Length 22>> stream
0 0 0 rg 0 0 60 24 re f
endstream endobj
trailer <</Root 1 0 R/Size 6>>
%%EOF
"""


@pytest.fixture(scope="module")
def detector(checkpoint):
    return Detector.load(checkpoint)


@pytest.fixture
def folder(page, tmp_path):
    for number in range(5):
        Image.fromarray(page[number * 4 :]).save(tmp_path / f"page{number}.png")
    return tmp_path


def sizes(pages) -> list[int]:
    return [found.height for found in pages]


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_a_folder_and_a_glob_are_streamed_in_the_order_of_names(detector, folder, batch_size):
    for source in (folder, f"{folder}/*.png", [folder / "page0.png", f"{folder}/page[1-4].png"]):
        pages = list(detector.stream(source, batch_size=batch_size))
        assert sizes(pages) == [140, 136, 132, 128, 124]
        for found in pages:
            alone = detector(found.name)
            assert len(alone) == len(found)
            assert all(np.allclose(*pair, atol=0.5) for pair in zip(alone.polygons, found.polygons, strict=True))


def test_pages_of_other_shapes_keep_their_place_and_do_not_wait_for_the_end(detector, page, monkeypatch):
    letterbox = replace(detector.preparation.letterbox, shape="page")
    monkeypatch.setattr(detector, "preparation", replace(detector.preparation, letterbox=letterbox))
    drawn = []

    def sources():
        for number in range(24):
            drawn.append(number)
            yield page[: 64 if number % 3 else 96]

    stream = detector.stream(sources(), batch_size=2)
    first = next(stream)
    assert first.height == 96
    assert len(drawn) < 24
    assert sizes(stream) == [64 if number % 3 else 96 for number in range(1, 24)]


def test_a_bad_page_ends_the_stream_with_its_name_or_is_skipped_and_listed(detector, folder):
    (folder / "page1.png").write_bytes(b"not an image")
    with rejects(ImageError, path=folder / "page1.png"):
        list(detector.stream(folder))
    stream = detector.stream(folder, batch_size=2, on_bad_sample="skip")
    assert sizes(stream) == [140, 132, 128, 124]
    assert [name.rpartition("/")[2] for name in stream.skipped] == ["page1.png"]


def test_every_page_that_is_skipped_is_listed_whatever_its_name(detector, page):
    stream = detector.stream([b"one", page, b"two", b"three"], on_bad_sample="skip")
    assert sizes(stream) == [140]
    assert list(stream.skipped) == ["bytes", "bytes (2)", "bytes (3)"]
    assert [reason.partition("starting b")[2][:5] for reason in stream.skipped.values()] == ["'one'", "'two'", "'thre"]


def test_an_image_that_pillow_has_not_read_yet_may_come_twice_or_be_damaged(detector, page, tmp_path):
    large = np.tile(page, (4, 4, 1))
    Image.fromarray(large).save(tmp_path / "a.png")
    opened = Image.open(tmp_path / "a.png")
    assert sizes(detector.stream([opened] * 8, readers=4)) == [560] * 8
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "b.png").write_bytes(whole[: len(whole) // 2])
    stream = detector.stream([Image.open(tmp_path / "b.png"), page], on_bad_sample="skip")
    assert sizes(stream) == [140]
    assert list(stream.skipped) == [str(tmp_path / "b.png")]


def test_a_stream_that_is_closed_ends_its_threads(detector, folder):
    import threading

    stream = detector.stream(folder, batch_size=1)
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("decode", "boxes"))]


def test_an_empty_folder_a_glob_without_a_match_and_a_bad_setting_are_refused(detector, tmp_path):
    with rejects(ConfigError, path=tmp_path):
        list(detector.stream(tmp_path))
    with rejects(ConfigError, path=f"{tmp_path}/*.jpg"):
        list(detector.stream(f"{tmp_path}/*.jpg"))
    with rejects(ConfigError, setting="batch_size", value=0):
        detector.stream(tmp_path, batch_size=0)


class TestPDF:
    @pytest.fixture
    def document(self, page, tmp_path):
        pytest.importorskip("pypdfium2")
        pages = [Image.fromarray(page), Image.fromarray(page[:70])]
        pages[0].save(tmp_path / "scan.pdf", save_all=True, append_images=pages[1:], resolution=200)
        return tmp_path / "scan.pdf"

    def test_every_page_of_a_pdf_is_found_in_pixels_at_200_dpi(self, detector, document):
        for source in (document, document.read_bytes()):
            pages = detector(source)
            # pdfium rounds sides up.
            assert [(found.number, found.width, found.height) for found in pages] == [(1, 100, 141), (2, 100, 71)]
            assert pages[1].draw().shape == (71, 100, 3)
        assert "page 2" in repr(pages[1])
        assert pages[0].to_dict()["page"] == 1

    def test_what_is_written_in_the_fields_of_a_form_is_on_the_page(self):
        pytest.importorskip("pypdfium2")
        picture = render_pdf_page(FORM_PDF, "form.pdf", 0, 10_000_000)
        assert picture.shape == (100, 200, 3)
        assert not picture[20:80, 20:180].any()
        assert (picture[:16] == 255).all()

    def test_pdfs_and_images_are_streamed_together(self, detector, document, folder):
        names = [(found.name.rpartition("/")[2], found.number) for found in detector.stream(folder)]
        assert names == [*((f"page{number}.png", None) for number in range(5)), ("scan.pdf", 1), ("scan.pdf", 2)]

    def test_a_damaged_pdf_is_named_and_can_be_skipped(self, detector, document, folder):
        document.write_bytes(b"%PDF-1.4 damaged")
        with rejects(ImageError, path=document):
            detector(document)
        stream = detector.stream([document, folder / "page0.png"], on_bad_sample="skip")
        assert sizes(stream) == [140]
        assert list(stream.skipped) == [str(document)]

    def test_an_encrypted_pdf_asks_to_remove_its_password(self, detector, tmp_path):
        pytest.importorskip("pypdfium2")
        (tmp_path / "locked.pdf").write_bytes(LOCKED_PDF)
        with rejects(ImageError, path=tmp_path / "locked.pdf") as caught:
            detector(tmp_path / "locked.pdf")
        assert "password" in str(caught.value.value)


@pytest.mark.parametrize("tile", ["auto", 64])
def test_a_watcher_sees_every_page_whole_with_its_map_before_it_is_given_out(checkpoint, folder, tile):
    detector = Detector.load(checkpoint, tile=tile)
    seen = {}

    def watch(page, sample, prob_map):
        seen[page.name] = (sample.shape, sample.image.shape[:2], prob_map)

    stream = PageStream(detector, pages_of(folder), batch_size=2, watch=watch)
    for found in stream:
        shape, sides, prob_map = seen[found.name]
        assert shape == (found.width, found.height)
        assert sides == prob_map.shape
        alone = detector.maps(detector.prepare(found.source).image[None])[0]
        assert np.allclose(prob_map, alone, atol=1e-4)
    assert len(seen) == 5
