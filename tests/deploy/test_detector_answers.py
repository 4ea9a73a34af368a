"""Detector: one result for every kind of input."""

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rejection import rejects

from ocr import Detector
from ocr.deploy.inputs import pages_of
from ocr.deploy.page import TextPage, TextPages
from ocr.deploy.runtimes import open_model
from ocr.errors import ConfigError, GlyphFeedError, ImageError, ImageSizeError, OutputError
from ocr.evaluation.boxes import Detections
from ocr.geometry.polygons import Polygons
from ocr.models.settings import Provenance


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
    [42, io.BytesIO(b"first\nsecond"), {"scan.jpg": b"page"}],
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
        lambda: Detector.load(checkpoint, polygons="round"),
        lambda: Detector.load(checkpoint, max_pixels=100)(page),
    ]
    texts = []
    for call in calls:
        with pytest.raises(GlyphFeedError) as caught:
            call()
        texts.append(str(caught.value))
    snapshot("deploy_errors", "\n".join(texts))


def test_tensors_and_batches_are_pages(detector, page):
    expected = detector(page)
    channels_first = torch.from_numpy(np.moveaxis(page, 2, 0).copy())
    assert same(detector(channels_first), expected)
    assert same(detector(torch.from_numpy(page)), expected)
    for batch in (np.stack([page, page]), torch.stack([channels_first] * 2)):
        assert [len(found) for found in detector(batch)] == [len(expected)] * 2
    with rejects(ConfigError, value=np.float32):
        detector(channels_first.float())


def test_one_page_gives_a_page_and_many_give_a_list(detector, page, tmp_path):
    for number in range(2):
        Image.fromarray(page).save(tmp_path / f"{number}.png")
    (tmp_path / "notes.txt").write_text("not a page")
    for many in (tmp_path, f"{tmp_path}/*.png", [page, page], (tmp_path / name for name in ("0.png", "1.png"))):
        found = detector(many)
        assert isinstance(found, TextPages)
        assert [len(one) for one in found] == [len(detector(page))] * 2
    assert isinstance(detector(tmp_path / "0.png"), TextPage)
    assert len(detector.pages(tmp_path / "0.png")) == 1
    assert detector.page(tmp_path / "0.png").name == str(tmp_path / "0.png")
    for several in (tmp_path, [], [page, page]):
        with rejects(ConfigError, value=several):
            detector.page(several)


def test_a_page_iterates_over_its_text_with_outline_quadrilateral_and_score(detector, page):
    found = detector(page)
    texts = list(found)
    assert len(texts) == len(found) == len(found.boxes) > 1
    for text, polygon, score in zip(texts, found.polygons, found.scores, strict=True):
        assert np.array_equal(text.polygon, polygon)
        assert text.score == pytest.approx(float(score))
        x, y = text.box.T
        # Clockwise from the top left, with y downwards.
        assert text.box.sum(axis=1).argmin() == 0
        assert np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)) > 0


def test_a_page_without_text_is_a_page(checkpoint, page):
    empty = Detector.load(checkpoint, boxes={"box_thresh": 1.0})(page)
    assert (list(empty), empty.boxes.shape, bool(empty), empty.crops()) == ([], (0, 4, 2), True, [])
    assert empty.to_coco()["annotations"] == []


def test_a_crop_is_the_text_straightened(detector):
    letters = np.full((120, 200, 3), 255, dtype=np.uint8)
    letters[40:60, 50:150, 0] = np.linspace(0, 200, 100, dtype=np.uint8)
    turned = np.array(Image.fromarray(letters).rotate(20, Image.Resampling.BICUBIC, fillcolor="white"))
    corners = np.array([[50, 40], [150, 40], [150, 60], [50, 60]], dtype=np.float32)
    angle = np.deg2rad(-20)
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    outline = ((corners - (100, 60)) @ matrix.T + (100, 60)).astype(np.float32)
    for pixels, box in ((letters, corners), (turned, outline[[2, 3, 0, 1]]), (turned, outline[::-1])):
        (source,) = pages_of(pixels)
        found = Detections(Polygons.pack([box]), np.ones(1, dtype=np.float32))
        (crop,) = TextPage(source, 200, 120, found, detector.decode).crops()
        assert crop.shape == (20, 100, 3)
        assert np.abs(crop[4:-4, 4:-4].astype(int) - letters[44:56, 54:146]).mean() < 6


def test_json_and_coco_hold_every_box_of_every_page(detector, page, tmp_path):
    found = detector([page, np.ascontiguousarray(page[::-1])])
    one = found[0]
    assert json.loads(one.to_json(tmp_path / "one.json")) == one.to_dict() == json.loads(read(tmp_path / "one.json"))
    # Arrays share a name.
    assert list(json.loads(found.to_json())["images"]) == ["array", "array (2)"]
    coco = found.to_coco(tmp_path / "coco.json")
    assert coco == json.loads(read(tmp_path / "coco.json"))
    assert [image["file_name"] for image in coco["images"]] == ["array", "array (2)"]
    assert [entry["id"] for entry in coco["annotations"]] == list(range(1, len(found[0]) + len(found[1]) + 1))
    for entry, text in zip(coco["annotations"], [text for page in found for text in page], strict=True):
        (outline,) = entry["segmentation"]
        assert np.allclose(outline, text.polygon.ravel(), atol=0.006)
        left, top, width, height = entry["bbox"]
        assert np.allclose([left, top], text.polygon.min(axis=0), atol=0.006)
        assert np.allclose([left + width, top + height], text.polygon.max(axis=0), atol=0.02)
        assert entry["score"] == pytest.approx(text.score, abs=1e-4)
    assert one.to_coco()["annotations"] == coco["annotations"][: len(one)]


def test_a_table_has_a_row_per_box(detector, page):
    pytest.importorskip("pandas")
    found = detector([page, page])
    table = found.to_pandas()
    assert list(table.columns) == ["name", "page", "left", "top", "right", "bottom", "score", "polygon"]
    assert len(table) == 2 * len(found[0])
    assert table.left[0] == found[0].polygons[0][:, 0].min()
    assert len(found[0].to_pandas()) == len(found[0])


def test_a_notebook_shows_the_drawn_page_within_its_width(detector):
    png_bytes = detector(np.zeros((100, 3000, 3), dtype=np.uint8))._repr_png_()
    assert Image.open(io.BytesIO(png_bytes)).size == (1200, 40)


def test_a_detector_is_moved_with_all_that_it_finds(checkpoint, page):
    detector = Detector.load(checkpoint)
    expected = detector(page)
    assert detector.to("cpu") is detector
    assert same(detector(page), expected)
    if not torch.cuda.is_available():
        with rejects(ConfigError, setting="device", value="cuda"):
            detector.to("cuda")
        assert same(detector(page), expected)


def test_boxes_are_quadrilaterals_by_default_if_the_labels_of_the_training_were(checkpoint, page):
    model = open_model(checkpoint)

    def kind(trained_on, **options):
        data = {} if trained_on is None else {"polygons": trained_on}
        boxes = {name: value for name, value in model.info.settings.boxes.items() if name != "use_polygon"}
        settings = replace(model.info.settings, boxes=boxes, provenance=Provenance(data=data))
        detector = Detector(replace(model, info=replace(model.info, settings=settings)), **options)
        corners = {len(polygon) for polygon in detector(page).polygons}
        return "quad" if corners == {4} else "curved"

    assert [kind(known) for known in ("quad", "curved", None)] == ["quad", "curved", "curved"]
    assert [kind("quad", polygons=chosen) for chosen in ("quad", "curved")] == ["quad", "curved"]
    assert kind(None, boxes={"use_polygon": False}) == "quad"
    with rejects(ConfigError, setting="polygons", value="round"):
        kind("quad", polygons="round")


def test_the_bundled_detector_is_found_by_its_name_and_gives_quadrilaterals(page):
    detector = Detector.load("glyphfeed")
    assert detector.info.settings == Detector.load().info.settings
    assert detector.info.settings.trained_on == "quad"
    assert not detector.boxes.use_polygon


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
