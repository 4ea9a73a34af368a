"""Labels lie on ink: every polygon of a page holds the ink of its text, tightly, and nothing is shifted."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray

from ocr.tools.synth.capture_style import Scene
from ocr.tools.synth.fonts import draw_text
from ocr.tools.synth.kinds import set_page
from ocr.tools.synth.layout import UNITS, Run, Units
from ocr.tools.synth.page import is_visible, page_polygon
from ocr.tools.synth.text_path import INK, PageMap, Strip, ink_box, lay_down, trace


def ink_on_page(run: Run, scene: Scene) -> NDArray[np.uint8]:
    """The coverage of one label's text alone, moved as the page's pixels are, (H, W)."""
    paper = np.zeros((scene.paper_height, scene.paper_width), dtype=np.uint8)
    left, top, right, bottom = run.strip.box
    for mark in run.marks:
        rows, columns = np.nonzero(mark.coverage)
        at = np.stack([columns + mark.x, rows + mark.y], axis=1).astype(np.float64)
        x, y = run.strip.from_paper(at).T
        on_paper = ((at >= 0) & (at < (scene.paper_width, scene.paper_height))).all(axis=1)
        keep = on_paper & (x > left - 1) & (x < right + 1) & (y > top - 1) & (y < bottom + 1)
        paper[at[keep, 1].astype(int), at[keep, 0].astype(int)] = mark.coverage[rows[keep], columns[keep]]
    return scene.page_map.warp(paper, np.zeros((scene.height, scene.width), dtype=np.uint8))


def side_gaps(coverage: NDArray[np.uint8], polygon: NDArray[np.float64], level: int = INK) -> NDArray[np.float64]:
    """From the top, right, bottom and left side to the nearest pixel of ink, less half a pixel."""
    ink = shapely.points(np.argwhere(coverage >= level)[:, ::-1])
    half = len(polygon) // 2
    sides = polygon[:half], polygon[half - 1 : half + 1], polygon[half:], polygon[[-1, 0]]
    return np.array([shapely.distance(shapely.LineString(side), ink).min() - 0.5 for side in sides])


def check_inside(coverage: NDArray[np.uint8], polygon: NDArray[np.float64]) -> None:
    ink = shapely.points(np.argwhere(coverage >= INK)[:, ::-1])
    assert shapely.distance(shapely.Polygon(polygon), ink).max() <= 1.0


def legible_runs(
    index: int, units: Units = "lines", kind: str = "receipt"
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.float64]]]:
    """The ink and the polygon of every label of letters or digits whose ink survives the resampling."""
    scene, layout = set_page(np.random.default_rng((5, index)), (0.3, 0.5), units, kind)
    for run in layout.runs:
        coverage = ink_on_page(run, scene)
        if not run.illegible and coverage.max() >= INK and any(letter.isalnum() for letter in run.text):
            yield coverage, page_polygon(run, scene)


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(
    ("index", "kind"), [(0, "receipt"), (1, "receipt"), (2, "form"), (3, "letter"), (4, "invoice")]
)
def test_every_label_holds_its_ink_tightly(index: int, kind: str, units: Units) -> None:
    runs = list(legible_runs(index, units, kind))
    assert len(runs) > 15
    for coverage, polygon in runs:
        check_inside(coverage, polygon)
        height = float(np.hypot(*(polygon[0] - polygon[-1])))
        assert side_gaps(coverage, polygon, INK // 3).max() <= 0.27 * height + 1


def test_labels_are_not_shifted_against_the_ink() -> None:
    gaps = np.array([side_gaps(*run) for index in range(10, 14) for run in legible_runs(index)])
    # Corners taken for centres anywhere on the way would show as half a pixel here, a whole one in the difference.
    assert abs(np.subtract(*np.clip(gaps, -1, 5).mean(axis=0)[[1, 3]])) < 0.25


def test_ink_that_does_not_move_is_outlined_exactly() -> None:
    coverage = np.zeros((40, 60), dtype=np.uint8)
    coverage[10:20, 5:45] = 255
    box = ink_box(coverage)
    assert box is not None
    np.testing.assert_allclose(side_gaps(coverage, trace(Strip(box), PageMap(np.eye(3)))), 0, atol=1e-5)
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
    moved = page_map.warp(paper, np.zeros((420, 520), dtype=np.uint8))
    check_inside(moved, polygon)
    # A slanted edge of ink ends somewhere in a pixel: the faint ones bound it from inside.
    assert side_gaps(moved, polygon, INK // 3).max() <= 0.75
    if math.isfinite(radius):
        assert 8 <= len(polygon) <= 14
    elif not amplitude:
        assert len(polygon) == 4


@pytest.mark.parametrize("radius", [math.inf, 90.0, -90.0])
def test_a_strip_goes_to_the_paper_and_back(radius: float) -> None:
    strip = Strip((0, 0, 80, 20), pivot=(40.0, 15.0), origin=(300.0, 200.0), angle=-0.7, radius=radius)
    points = np.random.default_rng(0).uniform((0, 0), (80, 20), size=(50, 2))
    np.testing.assert_allclose(strip.from_paper(strip.to_paper(points)), points, atol=1e-9)


@pytest.mark.parametrize(("ink", "visible"), [(60, True), (200, True), (232, False)])
def test_print_that_is_as_pale_as_its_paper_is_not_visible(ink: int, visible: bool) -> None:
    coverage = draw_text("Total 4.20", "DejaVuSans.ttf", 18).coverage
    gray = (240 + (ink - 240) * (coverage / 255)).astype(np.uint8)
    height, width = gray.shape
    polygon = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float64)
    assert is_visible(gray, polygon) is visible
