"""Pages of any size: whole as before, in windows where text would be lost, and in several scales."""

import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from rejection import rejects

from ocr import Detector
from ocr.deploy.inputs import pages_of
from ocr.deploy.runtimes import open_model
from ocr.errors import ConfigError
from ocr.pipeline.decode import Decode

SIZE = 96
DECODE = """
import sys
from ocr.deploy.inputs import pages_of
from ocr.pipeline.decode import Decode

def resident_bytes():
    with open("/proc/self/statm") as stream:
        return 4096 * int(stream.read().split()[1])

(page,) = pages_of(sys.argv[1])
before = resident_bytes()
sample = page.read(Decode())
print((resident_bytes() - before) / sample.image.nbytes)
"""


class DarkPixels:
    """A runtime whose text is every dark pixel: it sees bars of two pixels, and nothing in what averages to gray.

    It is less sure of dark gray."""

    def __init__(self) -> None:
        self.shapes = []

    def __call__(self, pages_bhwc: np.ndarray) -> np.ndarray:
        self.shapes.append(pages_bhwc.shape)
        darkness = pages_bhwc[..., 0]
        return np.where(darkness < 30, 0.9, np.where(darkness < 60, 0.7, 0)).astype(np.float32)


@pytest.fixture
def build(checkpoint):
    model = open_model(checkpoint)
    letterbox = {"size": SIZE, "shape": "page", "interpolation": "area", "fill": 255}
    settings = replace(model.info.settings, letterbox=letterbox)

    def detector(shape: str = "page", **options) -> Detector:
        changed = replace(settings, letterbox=letterbox | {"shape": shape})
        return Detector(replace(model, runtime=DarkPixels(), info=replace(model.info, settings=changed)), **options)

    return detector


def striped(side: int, thickness: int, gap: int) -> np.ndarray:
    """A page of dark bars on white, as many as fit."""
    page = np.full((side, side, 3), 255, dtype=np.uint8)
    for top in range(gap, side - thickness - gap, thickness + gap):
        page[top : top + thickness, 3 * gap : side - 3 * gap] = 0
    return page


def bars(side: int, thickness: int, gap: int) -> int:
    return len(range(gap, side - thickness - gap, thickness + gap))


@pytest.mark.parametrize("shape", ["page", "square"])
def test_small_text_of_a_large_page_is_found_in_windows_and_a_bar_is_one_box(build, shape):
    page = striped(1000, 9, 16)
    assert len(build(shape, tile=None)(page)) < 5
    detector = build(shape)
    found = detector(page)
    assert len(found) == bars(1000, 9, 16)
    edges = np.array([[*polygon.min(axis=0), *polygon.max(axis=0)] for polygon in found.polygons])
    assert np.allclose(edges[:, [0, 2]], [48, 952], atol=9)
    assert np.allclose(edges[:, 1], [16 + 25 * number for number in range(len(found))], atol=9)
    assert all(max(shape[1:3]) <= SIZE for shape in detector.runtime.shapes)


def test_a_large_page_with_large_text_is_done_as_before(build):
    page = striped(1000, 110, 100)
    whole, auto = build(tile=None)(page), build()(page)
    assert len(whole) == bars(1000, 110, 100)
    assert all(map(np.array_equal, whole.polygons, auto.polygons))


def test_noise_that_looks_like_text_in_a_finer_size_does_not_replace_the_text_of_the_whole_page(build):
    page = striped(1000, 14, 24)
    page[page == 0] = 50
    page[:700] = striped(1000, 110, 100)[:700]
    whole, auto = build(tile=None)(page), build()(page)
    assert len(whole) == 3
    assert all(map(np.array_equal, whole.polygons, auto.polygons))


def test_a_page_that_is_shrunk_by_8_at_most_is_seen_once(build):
    page = striped(8 * SIZE, 9, 16)
    detector = build()
    detector(page)
    assert detector.runtime.shapes == [(1, SIZE, SIZE, 3)]


def test_a_tile_is_a_number_of_pixels_of_the_page(build):
    page = striped(500, 9, 16)
    detector = build(tile=250)
    assert len(detector(page)) == bars(500, 9, 16)
    assert detector.runtime.shapes == [(1, SIZE, SIZE, 3)] * 9
    assert len(build(tile=500)(page)) < 5


def test_a_stream_gives_large_and_small_pages_in_their_order(build):
    detector = build()
    pages = [striped(1000 - 30 * (number % 2) - 300 * (number == 1), 9, 16) for number in range(4)]
    alone = [detector(page) for page in pages]
    streamed = list(detector.stream(iter(pages), batch_size=2))
    assert [found.height for found in streamed] == [page.shape[0] for page in pages]
    for one, other in zip(alone, streamed, strict=True):
        assert len(one) == len(other)
        assert all(map(np.array_equal, one.polygons, other.polygons))


def test_a_jpeg_is_decoded_as_finely_as_its_windows_need(build, tmp_path):
    page = striped(1000, 9, 16)
    Image.fromarray(page).save(tmp_path / "page.jpg", quality=95)
    assert len(build()(tmp_path / "page.jpg")) == bars(1000, 9, 16)


def test_a_large_png_is_decoded_once_and_is_released_before_its_finest_map_is_made(build, tmp_path, monkeypatch):
    Image.fromarray(striped(3100, 9, 16)).save(tmp_path / "page.png", compress_level=1)
    detector, reads = build(), []
    decode = Decode.__call__

    def counted(self, sample):
        reads.append(sample.path)
        return decode(self, sample)

    monkeypatch.setattr(Decode, "__call__", counted)
    tracemalloc.start()
    try:
        found = detector(tmp_path / "page.png")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == bars(3100, 9, 16)
    assert len(reads) == 1
    # The finest view is as large as the page, its map 4/3 of that.
    assert peak < 2.7 * 3100 * 3100 * 3


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
def test_what_decoding_a_large_page_took_besides_its_pixels_is_given_back(tmp_path):
    file = tmp_path / "page.png"
    Image.new("RGB", (7000, 7000), "white").save(file, compress_level=1)
    done = subprocess.run([sys.executable, "-c", DECODE, str(file)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 1.5


def test_maps_of_several_scales_are_averaged_on_the_grid_of_the_first(build):
    for shape in ("page", "square"):
        page = np.full((150, 90, 3), 255, dtype=np.uint8)
        page[40:80, 20:70] = 0
        detector = build(shape, scales=[1, 0.75, 1.5])
        (source,) = pages_of(page)
        views = detector.prepare_views(source)
        assert [view.image.shape[0] for view in views] == [96, 96, 160]
        averaged = detector.maps_of_views([views])[0]
        assert averaged.shape == views[0].image.shape[:2]
        (box,) = detector(page).polygons
        (expected,) = build(shape)(page).polygons
        assert np.allclose(np.sort(box, axis=0), np.sort(expected, axis=0), atol=4)
        (streamed,) = detector.stream([page])
        assert np.array_equal(streamed.polygons[0], box)
    single = detector.maps(views[0].image[None])[0]
    assert np.abs(averaged - single).max() > 0.1
    assert np.abs(averaged - single).mean() < 0.02


def test_scales_apply_to_windows_too(build):
    detector = build(scales=[1, 1.5])
    assert len(detector(striped(1000, 9, 16))) == bars(1000, 9, 16)
    assert max(shape[1] for shape in detector.runtime.shapes) == 160


@pytest.mark.parametrize(("setting", "value"), [("tile", "all"), ("tile", 10), ("scales", []), ("scales", [1, -2])])
def test_a_tile_or_scale_that_cannot_work_is_named(build, setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        build(**{setting: value})


def test_windows_give_the_same_boxes_whatever_runs_below(checkpoint, onnx_file, page):
    one, other = (Detector.load(path, tile=64)(page) for path in (checkpoint, onnx_file))
    assert len(one) == len(other) > 1
    assert all(np.allclose(*pair, atol=0.5) for pair in zip(one.polygons, other.polygons, strict=True))
