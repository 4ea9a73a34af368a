"""Scanner faults: two levels, dark rims, halos, lost detail."""

import numpy as np
from numpy.typing import NDArray

from ocr.tools.synth.capture_effects import coarsen, degrade, expose, sharpen, soil, to_two_levels
from ocr.tools.synth.capture_style import Look, Scene
from ocr.tools.synth.fonts import draw_text
from ocr.tools.synth.text_path import PageMap


def make_scan(ink: int = 60, size: int = 40) -> NDArray[np.uint8]:
    """One line of text on paper of level 235, (H, W, 3)."""
    coverage = np.pad(draw_text("Cash 50.00", "DejaVuSans.ttf", size).coverage, size) / 255
    gray = (235 - (235 - ink) * coverage).round().astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=2)


def test_two_levels_are_black_and_white_and_keep_pale_print() -> None:
    for ink in (40, 150):
        page = make_scan(ink)
        for seed in range(4):
            cut = to_two_levels(np.random.default_rng(seed), page, 40.0)
            assert set(np.unique(cut)) <= {0, 255}
            black, solid = cut[..., 0] == 0, page[..., 0] == ink
            assert black[solid].mean() > 0.8
            assert black[page[..., 0] == 235].mean() < 0.05


def test_a_small_page_keeps_gray_edges_under_two_levels() -> None:
    cut = to_two_levels(np.random.default_rng(0), make_scan(size=14), 14.0)
    assert len(np.unique(cut)) > 2


def test_a_scanner_takes_the_paper_near_white_in_most_scans() -> None:
    levels = [np.percentile(expose(np.random.default_rng(seed), make_scan()), 75) for seed in range(30)]
    assert np.mean(np.array(levels) > 240) > 0.6


def test_dirt_darkens_few_pixels_and_differs_from_page_to_page() -> None:
    shares = []
    for seed in range(20):
        page = np.full((600, 400, 3), 250, dtype=np.uint8)
        soil(np.random.default_rng(seed), page, 20.0)
        shares.append(float((page[..., 0] < 150).mean()))
    assert 0 < np.median(shares) < 0.05
    assert max(shares) < 0.15
    assert len(set(shares)) > 10


def test_scans_have_dirt_and_photographs_have_none() -> None:
    dark = {}
    for kind in ("crop", "photo"):
        scene = Scene(kind, 200, 300, 200, 300, 20.0, PageMap(np.eye(3)))  # type: ignore[arg-type]
        blank = np.full((300, 200, 3), 250, dtype=np.uint8)
        pages = [degrade(np.random.default_rng(seed), blank.copy(), scene, Look()) for seed in range(12)]
        dark[kind] = sum(bool((page.max(axis=2) < 70).any()) for page in pages)
    assert dark["crop"] >= 4
    assert dark["photo"] == 0


def test_sharpening_leaves_a_halo_and_coarsening_takes_detail_away() -> None:
    page = make_scan(ink=120)
    assert sharpen(page, 1.0, 1.0).max() > page.max()
    steps = [np.abs(np.diff(image[..., 0].astype(int), axis=1)).max() for image in (page, coarsen(page, 0.4))]
    assert steps[1] < 0.9 * steps[0]
