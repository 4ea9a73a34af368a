"""The synthetic receipts: where their ink is, what their files hold, and what is refused."""

import hashlib
import io
import json
import math
import string
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ocr.errors import ConfigError
from ocr.formats.read import read_annotations
from ocr.tools.synth import encode_page, render_page, synthesize
from ocr.tools.synth.fonts import FAMILIES, draw_text, fit_text, load_font, text_width
from ocr.tools.synth.layout import Mark, Run
from ocr.tools.synth.page import choose_orientation, page_polygon, set_page
from ocr.tools.synth.paper import blend
from ocr.tools.synth.scene import Scene
from ocr.tools.synth.strip import INK, MARGIN, Strip, ink_box, lay_down
from ocr.tools.synth.warp import PageMap, trace

SMALL = (0.12, 0.2)


def fingerprint(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def ink_on_page(run: Run, scene: Scene) -> NDArray[np.uint8]:
    """The coverage of one line alone, moved as the page's pixels are, (H, W)."""
    paper = np.zeros((scene.paper_height, scene.paper_width, 3), dtype=np.uint8)
    white = Mark(run.mark.coverage, run.mark.x, run.mark.y, (255, 255, 255))
    full = np.ones(max(paper.shape), dtype=np.float32)
    blend(paper, white, full, full)
    return scene.page_map.warp(paper, np.zeros((scene.height, scene.width, 3), dtype=np.uint8))[..., 0]


def side_gaps(coverage: NDArray[np.uint8], polygon: NDArray[np.float64], level: int) -> NDArray[np.float64]:
    """From the top, right, bottom and left side to the nearest pixel of ink, less the margin and half a pixel."""
    ink = shapely.points(np.argwhere(coverage >= level)[:, ::-1])
    half = len(polygon) // 2
    sides = polygon[:half], polygon[half - 1 : half + 1], polygon[half:], polygon[[-1, 0]]
    margin = MARGIN / (1 + 2 * MARGIN) * float(np.hypot(*(polygon[0] - polygon[-1])))
    return np.array([shapely.distance(shapely.LineString(side), ink).min() - margin - 0.5 for side in sides])


def check_outline(coverage: NDArray[np.uint8], polygon: NDArray[np.float64]) -> None:
    """The ink lies a margin inside every side of its polygon, exact to a pixel."""
    ink = shapely.points(np.argwhere(coverage >= INK)[:, ::-1])
    assert shapely.distance(shapely.Polygon(polygon), ink).max() <= 1.0
    # A slanted edge of ink ends somewhere in a pixel: the strong ones bound it from outside, the faint from inside.
    assert side_gaps(coverage, polygon, INK).min() >= -1.5
    assert side_gaps(coverage, polygon, INK // 3).max() <= 0.75


def legible_runs(index: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.float64]]]:
    """The ink and the polygon of every line whose ink survives the resampling."""
    scene, layout = set_page(np.random.default_rng((5, index)), (0.3, 0.5))
    for run in layout.runs:
        coverage = ink_on_page(run, scene)
        if not run.illegible and coverage.max() >= INK:
            yield coverage, page_polygon(run, scene)


@pytest.mark.parametrize("index", range(8))
def test_the_ink_of_every_line_fills_its_polygon_to_a_pixel(index: int) -> None:
    runs = list(legible_runs(index))
    assert len(runs) > 15
    for coverage, polygon in runs:
        check_outline(coverage, polygon)


def test_polygons_are_not_shifted_against_the_ink() -> None:
    gaps = np.array([side_gaps(*run, INK) for index in range(10, 14) for run in legible_runs(index)])
    top, right, bottom, left = np.clip(gaps, -1, 1).mean(axis=0)
    # Corners taken for centres anywhere on the way would show as half a pixel here, a whole one in the difference.
    assert abs(top - bottom) < 0.2
    assert abs(left - right) < 0.2


def test_a_line_that_does_not_move_is_outlined_exactly() -> None:
    coverage = np.zeros((40, 60), dtype=np.uint8)
    coverage[10:20, 5:45] = 255
    box = ink_box(coverage)
    assert box is not None
    polygon = trace(Strip(box), PageMap(np.eye(3)))
    np.testing.assert_allclose(side_gaps(coverage, polygon, INK), 0, atol=1e-5)
    assert ink_box(np.zeros((5, 5), dtype=np.uint8)) is None


MATRICES = {
    "still": np.eye(3),
    "half a pixel": np.array([[1, 0, 7.5], [0, 1, 3.5], [0, 0, 1]]),
    "turned": np.array([[math.cos(0.3), -math.sin(0.3), 90], [math.sin(0.3), math.cos(0.3), 10], [0, 0, 1]]),
    "perspective": np.array([[0.9, 0.1, 10], [0.05, 1.1, 10], [3e-4, -2e-4, 1]]),
}


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES.keys())
@pytest.mark.parametrize("amplitude", [0.0, 14.0])
@pytest.mark.parametrize("radius", [math.inf, 220.0, -180.0])
@pytest.mark.parametrize("angle", [0.0, 0.4])
def test_pixels_and_polygon_go_the_same_way(
    matrix: NDArray[np.float64], amplitude: float, radius: float, angle: float
) -> None:
    glyphs = draw_text("TOTAL 48.20 Eggs", "DejaVuSans-Bold.ttf", 22)
    box = ink_box(glyphs.coverage)
    assert box is not None
    strip = Strip(box, pivot=(100.0, 10.0), origin=(180.0, 130.0), angle=angle, radius=radius)
    coverage, x, y = lay_down(glyphs.coverage, strip)
    paper = np.zeros((260, 380), dtype=np.uint8)
    paper[y : y + coverage.shape[0], x : x + coverage.shape[1]] = coverage
    page_map = PageMap(matrix, amplitude, wavelength=620.0, phase=1.0)
    polygon = trace(strip, page_map)
    check_outline(page_map.warp(paper, np.zeros((420, 520), dtype=np.uint8)), polygon)
    if math.isfinite(radius):
        assert 8 <= len(polygon) <= 14
    elif not amplitude:
        assert len(polygon) == 4


@pytest.mark.parametrize("radius", [math.inf, 90.0, -90.0])
def test_a_strip_goes_to_the_paper_and_back(radius: float) -> None:
    strip = Strip((0, 0, 80, 20), pivot=(40.0, 15.0), origin=(300.0, 200.0), angle=-0.7, radius=radius)
    points = np.random.default_rng(0).uniform((0, 0), (80, 20), size=(50, 2))
    np.testing.assert_allclose(strip.from_paper(strip.to_paper(points)), points, atol=1e-9)


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_workers(tmp_path: Path) -> None:
    alone = synthesize(tmp_path / "a", 4, 2, 3, megapixels=SMALL, workers=0, show_progress=False)
    synthesize(tmp_path / "b", 4, 2, 3, megapixels=SMALL, workers=2, show_progress=False)
    synthesize(tmp_path / "c", 4, 2, 4, megapixels=SMALL, workers=0, show_progress=False)
    first = fingerprint(tmp_path / "a")
    assert first == fingerprint(tmp_path / "b")
    assert not set(first.values()) & set(fingerprint(tmp_path / "c").values())
    assert len(set(first.values())) == len(first) == alone.pages + 3


def test_a_page_depends_on_nothing_but_its_number(tmp_path: Path) -> None:
    synthesize(tmp_path / "few", 1, 1, megapixels=SMALL, show_progress=False)
    synthesize(tmp_path / "more", 3, 2, megapixels=SMALL, show_progress=False, workers=1)
    few, more = fingerprint(tmp_path / "few"), fingerprint(tmp_path / "more")
    images = [name for name in few if name.endswith(".jpg")]
    assert len(images) == 2
    assert all(few[name] == more[name] for name in images)


def test_applying_the_exif_orientation_gives_the_upright_page() -> None:
    seen = set()
    for index in range(8):
        page = render_page(0, index, megapixels=SMALL, exif_share=7 / 8)
        stored = Image.open(io.BytesIO(encode_page(page)))
        assert stored.getexif().get(0x0112, 1) == page.orientation
        height, width = page.image_hwc.shape[:2]
        assert stored.size == ((height, width) if page.orientation >= 5 else (width, height))
        upright = np.asarray(ImageOps.exif_transpose(stored), dtype=np.int16)
        assert np.abs(upright - page.image_hwc).mean() < 9
        seen.add(page.orientation)
    assert seen == set(range(1, 9))


def test_the_share_of_turned_pages_is_as_asked() -> None:
    def orientations(share: float) -> list[int]:
        return [choose_orientation(1, "val", index, share) for index in range(12)]

    assert orientations(0.0) == [1] * 12
    assert 1 not in orientations(1.0)
    assert sum(turned != 1 for turned in orientations(0.25)) == 3


def test_pages_keep_to_their_megapixels_and_polygons_to_their_pages() -> None:
    ignored = words = 0
    kinds = set()
    for index in range(24):
        page = render_page(2, index, megapixels=(0.1, 0.3))
        height, width = page.image_hwc.shape[:2]
        assert 0.098e6 <= width * height <= 0.3e6
        assert 40 <= page.jpeg_quality <= 95
        assert 15 <= len(page.words) <= 100
        for word in page.words:
            points = np.array(word.points)
            assert len(points) == 4 or 8 <= len(points) <= 14
            assert (points >= 0).all()
            assert (points <= (width - 1, height - 1)).all()
            assert shapely.Polygon(points).is_valid
            assert word.ignore or word.text
        words += len(page.words)
        ignored += sum(word.ignore for word in page.words)
        kinds.add(page.kind)
    assert 0.005 < ignored / words < 0.04
    assert kinds == {"crop", "scan", "photo"}


def test_lines_on_a_page_do_not_overlap() -> None:
    for index in range(6):
        polygons = [shapely.Polygon(word.points) for word in render_page(4, index, megapixels=(0.5, 0.5)).words]
        for first, second in pairwise(polygons):
            assert first.intersection(second).area < 0.2 * min(first.area, second.area)


def test_the_folder_reads_back_as_a_dataset(tmp_path: Path) -> None:
    summary = synthesize(tmp_path / "out", 3, 0, 0, megapixels=SMALL, show_progress=False)
    annotations = read_annotations(tmp_path / "out" / "jsons" / "train.json")
    images = sorted(path.name for path in (tmp_path / "out" / "images" / "train").iterdir())
    assert list(annotations.pages) == images == ["0001.jpg", "0002.jpg", "0003.jpg"]
    assert summary.pages == 3
    assert summary.words == sum(len(page.words) for page in annotations.pages.values())
    assert not (tmp_path / "out" / "images" / "val").exists()
    assert not (tmp_path / "out" / "jsons" / "val.json").exists()
    for name, page in annotations.pages.items():
        with Image.open(tmp_path / "out" / "images" / "train" / name) as stored:
            upright = ImageOps.exif_transpose(stored)
            assert upright is not None
            assert page.size == upright.size
    raw = json.loads((tmp_path / "out" / "jsons" / "train.json").read_text())
    word = raw["images"]["0001.jpg"]["words"]["0001"]
    assert set(word) >= {"points", "transcription", "orientation", "language"}


def test_only_its_own_result_is_overwritten_and_only_when_asked(tmp_path: Path) -> None:
    out = tmp_path / "out"
    synthesize(out, 3, 1, megapixels=SMALL, show_progress=False)
    before = fingerprint(out)
    with pytest.raises(ConfigError, match="--overwrite"):
        synthesize(out, 2, 0, megapixels=SMALL, show_progress=False)
    assert fingerprint(out) == before
    synthesize(out, 2, 0, megapixels=SMALL, show_progress=False, overwrite=True)
    assert sorted(path.name for path in out.rglob("*.jpg")) == ["0001.jpg", "0002.jpg"]
    assert not (out / "jsons" / "val.json").exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "jsons").mkdir()
    (tmp_path / "jsons" / "train.json").write_text("{}")
    with pytest.raises(ConfigError, match="another folder"):
        synthesize(tmp_path, 1, 0, megapixels=SMALL, show_progress=False, overwrite=True)
    assert (tmp_path / "jsons" / "train.json").read_text() == "{}"
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        synthesize(tmp_path / "file", 1, 0, megapixels=SMALL, show_progress=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": -1}, "train=-1 must be an integer >= 0"),
        ({"val": -2}, "val=-2 must be an integer >= 0"),
        ({"train": 0, "val": 0}, "nothing to make"),
        ({"seed": -1}, "seed=-1 must be an integer >= 0"),
        ({"megapixels": (2.0, 1.0)}, "smaller one first"),
        ({"megapixels": (0.0, 1.0)}, "megapixels 0.0"),
        ({"workers": -1}, "--workers -1"),
        ({"exif_share": 1.5}, "exif_share 1.5"),
    ],
)
def test_arguments_that_cannot_work_are_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        synthesize(tmp_path / "out", **{"train": 1, "val": 1, "show_progress": False, **arguments})  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_every_typeface_draws_every_letter_and_digit() -> None:
    for face in {name for pairs in FAMILIES.values() for pair in pairs for name in pair}:
        font = load_font(face, 24)
        missing = bytes(font.getmask("\ufffe"))
        drawn = {letter: bytes(font.getmask(letter)) for letter in string.ascii_letters + string.digits + "$%&@#"}
        assert missing not in drawn.values(), face
        assert len(set(drawn.values())) > 55, face


def test_text_is_cut_to_its_slot() -> None:
    face = "DejaVuSansMono.ttf"
    cut = fit_text("GRILLED CROISSANT", face, 20, 90)
    assert "GRILLED CROISSANT".startswith(cut)
    assert text_width(cut, face, 20) <= 90
    assert fit_text("Tea", face, 20, 90) == "Tea"


def test_a_mark_over_the_edge_is_cut_off() -> None:
    paper = np.full((10, 10, 3), 250, dtype=np.uint8)
    full = np.ones(10, dtype=np.float32)
    square = np.full((6, 6), 255, dtype=np.uint8)
    for x, y in ((-3, -3), (7, 7), (40, 0)):
        blend(paper, Mark(square, x, y, (0, 0, 0)), full, full)
    assert (paper[..., 0] == 0).sum() == 18


def test_a_large_thermal_line_shows_its_dots_at_the_size_asked_for() -> None:
    plain = draw_text("TOTAL", "DejaVuSansMono.ttf", 72)
    dots = draw_text("TOTAL", "DejaVuSansMono.ttf", 72, thermal=True)
    assert np.abs(np.subtract(plain.coverage.shape, dots.coverage.shape)).max() <= 6
    assert np.abs(plain.top - dots.top) <= 4
    # Enlarged dots change more gently than outlines drawn at full size.
    steps = [np.abs(np.diff(glyphs.coverage.astype(int), axis=1)).max() for glyphs in (plain, dots)]
    assert steps[1] < steps[0]
