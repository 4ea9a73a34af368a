"""Lines where they should be, axes that hold them, and no more points than can be seen."""

import re

import pytest

from ocr.advisor.report.line_chart import MAX_POINTS, Line, LineChart, draw_lines, thinned


def points_of(picture: str) -> list[tuple[float, float]]:
    (way,) = re.findall(r'<path class="line c1" d="M([^"]+)"/><circle', picture)
    return [tuple(map(float, pair.split())) for pair in way.split("L")]


def test_points_are_drawn_in_proportion():
    chart = LineChart("t", "epochs", "loss", [Line("a", [(0, 0), (1, 1), (3, 4)])])
    for width in (340, 520):
        (x0, y0), (x1, y1), (x3, y4) = points_of(draw_lines(chart, width, "n"))
        assert x3 - x0 == pytest.approx(3 * (x1 - x0), abs=0.05)
        assert y0 - y4 == pytest.approx(4 * (y0 - y1), abs=0.05)
        assert x3 < width


def test_an_axis_that_does_not_start_at_zero_spreads_close_values():
    near = [Line("a", [(1, 0.90), (2, 0.92)])]
    (_, low), (_, high) = points_of(draw_lines(LineChart("t", "x", "y", near, from_zero=False), 520, "n"))
    (_, zero_low), (_, zero_high) = points_of(draw_lines(LineChart("t", "x", "y", near), 520, "n"))
    assert low - high > 20 * (zero_low - zero_high)


def test_shares_have_an_axis_of_percent_and_other_values_have_none():
    lines = [Line("a", [(0, 0.0), (1, 0.5)])]
    for is_share, shown in ((True, "40 %"), (False, "0.4")):
        picture = draw_lines(LineChart("t", "x", "y", lines, is_share=is_share), 340, "n")
        ticks = re.findall(r">([^<]+)</text>", picture)
        assert shown in ticks
        assert any("%" in tick for tick in ticks) == is_share


@pytest.mark.parametrize("points", [[(1, 0.0)], [(1, 5.0)], [(0, 0.0), (0, 0.0)], [(1, -2.0), (2, -1.0)], [(1, 1e-9)]])
@pytest.mark.parametrize("from_zero", [True, False])
def test_few_or_equal_values_have_axes_too(points, from_zero):
    picture = draw_lines(LineChart("t", "x", "y", [Line("a", points)], from_zero=from_zero), 340, "n")
    assert len(points_of(picture)) == len(points)
    assert "nan" not in picture
    if min(y for _, y in points) >= 0:
        assert all(0 <= x <= 340 and y > 0 for x, y in points_of(picture))


def test_many_points_become_means_of_their_neighbours():
    many = [(at, float(at % 2)) for at in range(10 * MAX_POINTS)]
    few = thinned(many)
    assert len(few) == MAX_POINTS
    assert all(y == 0.5 for _, y in few)
    assert sum(x for x, _ in few) / len(few) == pytest.approx(sum(x for x, _ in many) / len(many))
