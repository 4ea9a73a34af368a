"""Detector: one result for every kind of input."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rejection import rejects

from ocr import Detector
from ocr.deploy.inputs import pages_of
from ocr.deploy.runtimes import open_model
from ocr.errors import ConfigError, GlyphFeedError, ImageError, ImageSizeError, OutputError


@pytest.fixture(scope="module")
def detector(checkpoint):
    return Detector.load(checkpoint)


def png(image: Image.Image, **options) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG", **options)
    return stream.getvalue()


def same(one, other) -> bool:
    equal = len(one) == len(other) and all(map(np.array_equal, one.polygons, other.polygons))
    return equal and np.array_equal(one.scores, other.scores)


def test_a_path_bytes_an_array_and_a_pillow_image_give_the_same_boxes(detector, page, tmp_path):
    expected = detector(page)
    assert len(expected) > 1
    encoded = png(Image.fromarray(page))
    (tmp_path / "page.png").write_bytes(encoded)
    for source in (encoded, tmp_path / "page.png", str(tmp_path / "page.png"), Image.fromarray(page)):
        assert same(detector(source), expected)


def test_boxes_are_in_the_upright_frame_of_a_page_that_is_stored_turned(detector, page):
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = png(Image.fromarray(np.ascontiguousarray(np.rot90(page))), exif=exif)
    expected = detector(page)
    for source in (stored, Image.open(io.BytesIO(stored))):
        found = detector(source)
        assert (found.width, found.height) == (100, 140)
        assert same(found, expected)


@pytest.mark.parametrize("mode", ["L", "I;16", "RGBA", "CMYK", "1", "P", "LA"])
def test_an_image_of_any_mode_is_read_as_from_its_file(detector, page, mode, tmp_path):
    gray = Image.fromarray(page).convert("L")
    image = Image.fromarray(np.asarray(gray).astype(np.uint16) << 8) if mode == "I;16" else gray.convert(mode)
    image.save(tmp_path / "page.tif")
    found = detector(image)
    assert len(found)
    assert same(found, detector(tmp_path / "page.tif"))


def test_gray_alpha_and_16_bit_arrays_are_pages_too(detector, page):
    gray = np.ascontiguousarray(page[:, :, 0])
    expected = detector(np.repeat(gray[:, :, None], 3, axis=2))
    for array in (gray, gray[:, :, None], gray.astype(np.uint16) << 8, np.dstack([gray] * 3 + [gray])):
        assert same(detector(array), expected)


@pytest.mark.parametrize(
    "source",
    [42, torch.zeros((8, 8, 3), dtype=torch.uint8), io.BytesIO(b"first\nsecond"), {"scan.jpg": b"page"}],
    ids=lambda source: type(source).__name__,
)
def test_what_is_not_a_page_is_refused(detector, source):
    for find in (detector, lambda pages: list(detector.stream(pages))):
        with pytest.raises(ConfigError) as caught:
            find(source)
        assert caught.value.value is source


@pytest.mark.parametrize(
    ("array", "wrong"),
    [(np.zeros((8, 8), dtype=np.float32), np.float32), (np.zeros((8, 8, 2), dtype=np.uint8), (8, 8, 2))],
)
def test_an_array_of_another_type_or_shape_is_refused(detector, array, wrong):
    for find in (detector, lambda pages: list(detector.stream(pages))):
        with rejects(ConfigError, value=wrong):
            find(array)


def test_a_missing_file_and_one_that_is_not_an_image_are_named(detector, checkpoint, tmp_path):
    with rejects(ImageError, path=tmp_path / "nowhere.png"):
        detector(tmp_path / "nowhere.png")
    with rejects(ImageError, path="page\0.png"):
        detector("page\0.png")
    with rejects(ImageError, path="bytes"):
        detector(b"no image at all")
    with rejects(ImageSizeError, value=(20, 20)):
        Detector.load(checkpoint, max_pixels=100)(np.zeros((20, 20, 3), dtype=np.uint8))


def test_an_iterable_gives_a_list_in_its_order(detector, page):
    turned = np.ascontiguousarray(page[::-1])
    pages = detector([page, turned, page])
    expected = [detector(source) for source in (page, turned, page)]
    assert not same(expected[0], expected[1])
    for found, alone in zip(pages, expected, strict=True):
        # Convolutions of a batch may sum in another order.
        assert np.allclose(found.scores, alone.scores, atol=1e-4)


def test_settings_of_boxes_can_be_changed_and_a_mistyped_one_is_named(checkpoint, page):
    assert len(Detector.load(checkpoint, boxes={"box_thresh": 1.0})(page)) == 0
    with rejects(ConfigError, setting="boxes.tresh", value=0.4):
        Detector.load(checkpoint, boxes={"tresh": 0.4})


@pytest.mark.parametrize(("shape", "margin"), [("square", (124, 116, 104)), ("page", (7, 7, 7))])
def test_a_page_is_filled_up_to_a_size_that_the_model_takes(checkpoint, shape, margin):
    model = open_model(checkpoint)
    letterbox = {"size": 100, "shape": shape, "fill": 7}
    changed = replace(model.info, settings=replace(model.info.settings, letterbox=letterbox))
    (source,) = pages_of(np.full((200, 50, 3), 255, dtype=np.uint8))
    image = Detector(replace(model, info=changed)).prepare(source).image
    assert image.shape == (128, 128 if shape == "square" else 64, 3)
    assert image[-1, -1].tolist() == list(margin)
    assert image[99, 50 if shape == "square" else 0].tolist() == [255, 255, 255]


def test_a_page_is_drawn_in_full_size_and_the_array_that_was_given_stays_as_it_is(detector, page, tmp_path):
    before = page.copy()
    picture = detector(page).draw(tmp_path / "found.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "found.png")), picture)
    assert picture.shape == page.shape
    assert not np.array_equal(picture, page)
    assert np.array_equal(page, before)


@pytest.mark.parametrize("name", ["found", "found.txt"])
def test_a_drawing_with_a_name_that_says_no_kind_of_picture_is_refused(detector, page, tmp_path, name):
    with rejects(OutputError, path=tmp_path / name):
        detector(page).draw(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_drawing_that_is_too_large_for_a_jpeg_is_told(detector, tmp_path):
    found = detector(np.zeros((4, 70_000, 3), dtype=np.uint8))
    with rejects(OutputError, path=tmp_path / "found.jpg"):
        found.draw(tmp_path / "found.jpg")


def test_a_found_page_as_a_dict_has_the_words_of_the_native_format(detector, page):
    found = detector(page)
    plain = found.to_dict()
    assert (plain["name"], plain["img_w"], plain["img_h"]) == ("array", 100, 140)
    assert list(plain["words"]) == [f"{number:04d}" for number in range(1, len(found) + 1)]
    first = plain["words"]["0001"]
    assert np.allclose(first["points"], found.polygons[0], atol=0.005)
    assert first["score"] == pytest.approx(found.scores[0], abs=1e-4)


def test_a_file_that_is_no_model_is_refused_before_any_page(tmp_path):
    with rejects(ConfigError, path=tmp_path / "nowhere.onnx"):
        Detector.load(tmp_path / "nowhere.onnx")
    with rejects(ConfigError, value=[], path=tmp_path):
        Detector.load(tmp_path)
    (tmp_path / "model.bmp").write_bytes(b"BM")
    with rejects(ConfigError, value=".bmp", path=tmp_path / "model.bmp"):
        Detector.load(tmp_path / "model.bmp")


def test_wording_of_errors_of_a_deployed_detector(checkpoint, detector, page, tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    Path("text.png").write_bytes(b"no image")
    Path("empty.pdf").write_bytes(b"%PDF-1.4 damaged")
    Path("model.bmp").write_bytes(b"BM")
    Path("model.engine").write_bytes(b"")
    Path("thesis").mkdir()
    Path("thesis/thesis.tex").write_text("years of work")
    calls = [
        lambda: detector("nowhere.png"),
        lambda: detector("text.png"),
        lambda: detector(b"no image at all"),
        lambda: detector("empty.pdf"),
        lambda: detector(np.zeros((8, 8), dtype=np.float32)),
        lambda: detector(np.zeros((8, 8, 2), dtype=np.uint8)),
        lambda: detector({"scan.jpg": b"page"}),
        lambda: list(detector.stream("thesis")),
        lambda: detector(page).draw("found.txt"),
        lambda: Detector.load("nowhere.onnx"),
        lambda: Detector.load("thesis"),
        lambda: Detector.load("model.bmp"),
        lambda: Detector.load("model.engine"),
        lambda: Detector.load(checkpoint, boxes={"tresh": 0.4}),
        lambda: Detector.load(checkpoint, tile=10),
        lambda: Detector.load(checkpoint, scales=2),
        lambda: Detector.load(checkpoint, max_pixels=100)(page),
    ]
    texts = []
    for call in calls:
        with pytest.raises(GlyphFeedError) as caught:
            call()
        texts.append(str(caught.value))
    snapshot("deploy_errors", "\n".join(texts))
