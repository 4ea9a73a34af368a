"""Large pages: whole, or in windows where text would be lost."""

import subprocess
import sys
import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from rejection import rejects

from ocr import Detector
from ocr.deploy.runtimes import open_model
from ocr.deploy.tiles import map_in_windows, window_shares, window_starts
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


def test_a_large_page_with_large_text_is_done_whole(build):
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


@pytest.mark.parametrize("tile", ["all", 10])
def test_a_tile_that_cannot_work_is_named(build, tile):
    with rejects(ConfigError, setting="tile", value=tile):
        build(tile=tile)


def test_windows_give_the_same_boxes_whatever_runs_below(checkpoint, onnx_file, page):
    one, other = (Detector.load(path, tile=64)(page) for path in (checkpoint, onnx_file))
    assert len(one) == len(other) > 1
    assert all(np.allclose(*pair, atol=0.5) for pair in zip(one.polygons, other.polygons, strict=True))


@pytest.mark.parametrize(("length", "window"), [(64, 64), (96, 64), (128, 96), (320, 96), (4000, 960), (2016, 992)])
def test_windows_cover_a_side_overlap_and_count_as_one(length, window):
    length = -(-length // 32) * 32
    starts = window_starts(length, window)
    assert starts[0] == 0
    assert starts[-1] == length - min(length, window)
    assert all(start % 32 == 0 for start in starts)
    assert all(0 < after - before <= window - window // 4 + 32 for before, after in pairwise(starts))
    total = np.zeros(length)
    for start, share in zip(starts, window_shares(starts, window, length), strict=True):
        total[start : start + window] += share
        assert (share > 0).all()
    assert np.allclose(total, 1, atol=1e-6)


def test_a_map_in_windows_is_that_of_the_whole_image_if_the_model_looks_at_single_pixels():
    image = np.random.default_rng(0).integers(0, 256, (224, 416, 3), dtype=np.uint8)
    seen = []

    def find_maps(part: np.ndarray) -> np.ndarray:
        seen.append(part.shape)
        return part[..., 0].astype(np.float32) / 255

    merged = map_in_windows(image, 96, find_maps)
    assert merged.dtype == np.float32
    assert np.allclose(merged, image[..., 0] / 255, atol=1e-6)
    assert set(seen) == {(1, 96, 96, 3)}
    assert map_in_windows(image, 224, find_maps).shape == (224, 416)
    assert seen[-1] == (1, 224, 224, 3)


def test_the_border_of_a_window_hardly_counts():
    image = np.zeros((64, 160, 3), dtype=np.uint8)

    def find_maps(part: np.ndarray) -> np.ndarray:
        maps = np.ones(part.shape[:3], dtype=np.float32)
        maps[:, :, -1] = 0  # What padding does to the last column of a window.
        return maps

    merged = map_in_windows(image, 96, find_maps)
    assert merged[:, 95].min() > 0.95
    assert merged[:, 159].max() == 0
