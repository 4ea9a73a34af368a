"""`--like`: what is measured on a folder is what the made pages have."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_pages import make_page
from PIL import Image
from rejection import rejects

from ocr.errors import ConfigError
from ocr.tools.synth import render_page, synthesize
from ocr.tools.synth.like import compare, measure_folder
from ocr.tools.synth.look import choose_look
from ocr.tools.synth.match import match_page
from ocr.tools.synth.measure import PageMeasure, measure_page
from ocr.tools.synth.scene import compose_scene, misfit

SCAN = PageMeasure(300, 600, 40, 18.0, 0.85, 250.0, 80.0, 1.0, 0.7, 0.0, 0.0)


def write_pages(folder: Path, count: int = 2) -> Path:
    """Pages that differ in the level of their paper."""
    folder.mkdir(parents=True)
    for number in range(count):
        Image.fromarray(make_page(paper=240 - 20 * number)[0]).save(folder / f"{number}.png")
    return folder


def test_a_folder_is_measured_with_and_without_its_annotation(tmp_path: Path) -> None:
    write_pages(tmp_path / "images" / "train")
    found = measure_folder(tmp_path)
    assert [round(page.paper) for page in found] == [240, 220]
    assert [(page.width, page.height) for page in found] == [(480, 960)] * 2
    corners = [[[x, y] for x, y in ((a, b), (c, b), (c, d), (a, d))] for a, b, c, d in make_page()[1][:4]]
    words = {str(number): {"points": points} for number, points in enumerate(corners)}
    pages = {name: {"words": words} for name in ("0.png", "1.png")}
    (tmp_path / "jsons").mkdir()
    (tmp_path / "jsons" / "train.json").write_text(json.dumps({"images": pages}))
    # The fifth line of each page is not in the annotation, so it does not count.
    assert [page.lines for page in measure_folder(tmp_path)] == [4, 4]
    assert measure_folder(tmp_path / "images" / "train") == measure_folder(tmp_path)


def test_pages_to_score_on_are_not_measured(tmp_path: Path) -> None:
    write_pages(tmp_path / "images" / "train", 1)
    write_pages(tmp_path / "images" / "val", 3)
    assert len(measure_folder(tmp_path)) == 1


def test_many_pages_are_sampled_evenly(tmp_path: Path) -> None:
    folder = write_pages(tmp_path / "pages", 5)
    assert [round(page.paper) for page in measure_folder(folder, max_pages=3)] == [240, 200, 160]


def test_a_folder_with_nothing_to_measure_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    empty, blank = tmp_path / "empty", tmp_path / "blank"
    empty.mkdir()
    blank.mkdir()
    Image.new("L", (80, 90), 240).save(blank / "a.png")
    (blank / "broken.jpg").write_bytes(b"no image")
    for folder in (tmp_path / "none", empty, blank):
        with rejects(ConfigError, setting="--like", path=folder):
            synthesize(tmp_path / "out", 1, 0, like=folder, show_progress=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("like", [SCAN, replace(SCAN, paper=205.0, ink=110.0, saturation=12.0, sharpness=0.45)])
def test_a_page_has_the_size_levels_and_colour_of_the_one_it_matches(like: PageMeasure) -> None:
    made = []
    for index in range(4):
        page = render_page(0, index, like=[like])
        boxes = [(*np.min(word.points, axis=0), *np.max(word.points, axis=0)) for word in page.words]
        made.append(measure_page(page.image_hwc, page.image_hwc.shape[1::-1], np.array(boxes)))
    assert {(page.width, page.height) for page in made} == {(300, 600)}
    assert np.median([page.paper for page in made]) == pytest.approx(like.paper, abs=6)
    assert np.median([page.contrast for page in made]) == pytest.approx(like.contrast, rel=0.15)
    assert np.median([page.line_height for page in made]) == pytest.approx(like.line_height, rel=0.25)
    assert max(page.saturation for page in made) <= like.saturation + 2


def test_lines_as_pale_as_the_paper_are_marked_illegible() -> None:
    page = render_page(0, 0, like=[replace(SCAN, paper=130.0, ink=124.0)])
    assert np.mean([word.ignore for word in page.words]) > 0.8


def test_a_table_around_the_paper_gives_photographs_and_white_around_the_print_scans() -> None:
    rng = np.random.default_rng(0)
    photo, bed = replace(SCAN, background=0.4), replace(SCAN, print_width=0.3)
    scenes = [compose_scene(rng, (24.0, 48.0), (0.1, 12.0), like=page) for page in (SCAN, photo, bed)]
    assert [scene.kind for scene in scenes] == ["crop", "photo", "scan"]
    share = scenes[1].paper_width * scenes[1].paper_height / (300 * 600)
    assert share == pytest.approx(0.6, abs=0.08)
    assert scenes[2].paper_width < 0.45 * 300


def test_noise_is_that_of_the_file_and_black_and_white_copies_are_known() -> None:
    rng = np.random.default_rng(0)
    large = replace(SCAN, width=1200, height=2400)
    assert choose_look(rng, "crop", like=large).noise == pytest.approx(2.5)
    assert choose_look(rng, "crop", like=replace(SCAN, paper=255.0, ink=30.0)).bilevel
    assert not choose_look(rng, "crop", like=SCAN).bilevel
    assert not choose_look(rng, "crop", like=replace(SCAN, saturation=9.0)).gray


def test_the_paper_that_fits_best_has_the_shape_and_the_lines_of_the_page() -> None:
    assert misfit((24.0, 48.0), SCAN, 0.9) < misfit((24.0, 30.0), SCAN, 0.9)
    assert misfit((24.0, 48.0), SCAN, 0.9) < misfit((48.0, 96.0), SCAN, 0.9)


def test_matching_reaches_levels_beyond_those_of_the_page() -> None:
    image, boxes = make_page(paper=200, ink=120)
    after = measure_page(match_page(image, boxes, SCAN), (480, 960), boxes)
    assert (after.paper, after.ink) == (pytest.approx(250, abs=4), pytest.approx(80, abs=8))


def test_a_folder_of_matched_pages_comes_with_a_table(tmp_path: Path) -> None:
    folder = write_pages(tmp_path / "pages")
    made = synthesize(tmp_path / "out", 2, 0, like=folder, workers=0, show_progress=False)
    with Image.open(made.out / "images" / "train" / "0001.jpg") as page:
        assert sorted(page.size) == [480, 960]
    assert "2 pages to match" in made.comparison
    assert json.loads((made.out / "synth.json").read_text())["like"] == str(folder)


def test_the_table_shows_both_sides() -> None:
    table = compare([SCAN], [replace(SCAN, paper=200.0)])
    row = next(line for line in table.splitlines() if line.startswith("level of the paper"))
    assert row.split()[-6:] == ["250"] * 3 + ["200"] * 3
