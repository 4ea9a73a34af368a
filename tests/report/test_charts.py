"""Lines as positions, and the colours of the stylesheet."""

import re
from itertools import combinations
from pathlib import Path

import pytest

import ocr.report
from ocr.report.charts import DOTTED_POINTS, Line, LineChart
from ocr.report.page import environment

STYLE = (Path(ocr.report.__file__).parent / "style.css").read_text()


def chart(points, **settings) -> LineChart:
    return LineChart("Loss", "epochs", "loss", [Line("run", points, "0.5"), Line("empty", [])], **settings)


def test_a_line_stays_within_its_axes_in_every_width():
    for plot in chart([(0.5, 3.0), (1.0, 0.1), (40.0, 2.0)]).plots():
        (path,) = plot.paths
        for x, y, _ in path.dots:
            assert plot.left <= x <= plot.right
            assert plot.top <= y <= plot.bottom
        for tick in plot.x_ticks:
            assert plot.left <= tick.at <= plot.right
        assert len(plot.y_ticks) >= 2


@pytest.mark.parametrize("points", [[(1.0, 0.0)], [(1.0, 0.5), (2.0, 0.5)], [(0.0, -1.0), (1.0, -1.0)]])
def test_a_line_without_height_or_length_is_drawn(points):
    for settings in ({}, {"from_zero": False}, {"is_share": True}):
        assert [len(plot.paths) for plot in chart(points, **settings).plots()] == [1, 1]


def test_many_points_share_pixels_and_have_no_dots():
    (path,) = chart([(float(at), 1.0) for at in range(10 * DOTTED_POINTS)]).plots()[0].paths
    assert path.dots == ()
    assert path.way.count("L") < 250


def test_shares_are_told_in_percent():
    shares = chart([(1.0, 0.25), (2.0, 0.5)], is_share=True)
    assert "25.0 %" in shares.text
    assert any("%" in tick.label for tick in shares.plots()[0].y_ticks)


def test_a_drawn_chart_escapes_its_names():
    lines = environment().get_template("base.html").module.lines
    drawn = lines(LineChart("Loss", "epochs", "loss", [Line("<b>", [(1.0, 1.0)], "1")]), "name")
    assert "<b>" not in drawn
    assert "&lt;b&gt;" in drawn


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_chart_colours_stand_out_from_the_card_in_light_and_dark():
    themes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", theme)) for theme in STYLE.split("--ink")[1:]]
    drawn = [theme for theme in themes if "c1" in theme]
    assert len(drawn) == 2
    for theme in drawn:
        for name in ("c1", "c2", "c3", "c4", "c5"):
            low, high = sorted((luminance(theme[name]), luminance(theme["card"])))
            assert (high + 0.05) / (low + 0.05) >= 3, name
        assert all(one != other for one, other in combinations([theme[f"c{at}"] for at in range(1, 6)], 2))
