"""Charts and figures: bars as long as they should be, text that fits, colours and numbers that everybody can read."""

import itertools
import re

import pytest
import sample_results as samples

from ocr.advisor.report import charts, html_tables, number_format, style, svg_chart
from ocr.advisor.report.svg_chart import Chart, ChartRow, Mark, draw, fold, text_width, tick_step


def test_a_bar_is_as_long_as_its_figure():
    chart = Chart("t", "ms", [ChartRow("a", "1", [Mark("bar", 0, 1)]), ChartRow("b", "4", [Mark("bar", 0, 4)])])
    for width in svg_chart.WIDTHS.values():
        one, four = map(float, re.findall(r'class="bar c1" d="M[\d.]+ \d+h([\d.]+)v', draw(chart, width, "n")))
        assert four == pytest.approx(4 * one, abs=0.05)


def test_sizes_add_up_to_their_total_and_name_no_more_stages_than_colours():
    _, (*_, sizes) = charts.charts_of_profile(samples.profile())
    for row, size in zip(sizes.rows, samples.profile()["sizes"], strict=True):
        assert row.marks[-1].end == pytest.approx(size["total_ms"])
    assert list(sizes.legend) == ["c1", "c2", "c3", "c4", "c5"]


def test_the_error_of_a_prediction_is_counted_where_it_is_not_given():
    assert charts.error_of({"predicted_s": 9, "measured_s": 10}) == pytest.approx(-0.1)
    assert charts.error_of({"predicted_s": 9, "measured_s": 10, "error": -0.2}) == -0.2
    assert charts.error_of({"predicted_s": 9, "measured_s": 0}) is None


@pytest.mark.parametrize("top", [0.0031, 0.99, 1, 7.4, 61.3, 999, 123456])
@pytest.mark.parametrize("most", [2, 4, 7])
def test_ticks_are_round_and_neither_too_many_nor_too_few(top, most):
    step = tick_step(top, most)
    assert f"{step:e}"[0] in "125"
    assert re.fullmatch(r"[125]\.0+e.*", f"{step:e}")
    assert most / 3 < top / step <= most * (1 + 1e-9)


def test_a_label_is_folded_into_lines_that_fit_and_loses_nothing_but_to_an_ellipsis():
    label = "prefix cache + scaled decode + albumentations.AVeryLongNameThatNoLineCanHold"
    for room in (20, 60, 170, 340):
        lines = fold(label, room, lines=99)
        assert "".join(lines).replace(" ", "") == label.replace(" ", "")
        assert all(text_width(line) <= room for line in lines)
        short = fold(label, room, lines=2)
        assert len(short) <= 2
        assert short == lines or short[-1].endswith("…")


FIGURES = [
    (
        number_format.in_seconds,
        {0.00042: "0.42 ms", 0.9999: "1.00 s", 99.96: "1 min 40 s", 245: "4 min 5 s", 7810: "2 h 10 min"},
    ),
    (
        number_format.in_bytes,
        {0: "0 B", 999: "999 B", 999_600: "1.0 MB", 430_080_000: "430 MB", 1_234_567_890: "1.2 GB"},
    ),
    (
        number_format.in_percent,
        {0: "0 %", 0.0001: "<0.1 %", 0.0042: "0.4 %", 0.995: "99.5 %", 0.99999: "99.9 %", 1: "100 %"},
    ),
    (number_format.in_digits, {0: "0", 0.0001: "<0.001", 0.0123: "0.012", 9.996: "10.0", 1234.5: "1,234", 0.5: "0.5"}),
    (number_format.in_times, {1: "1.0 ×", 2.918: "2.9 ×", 754.5: "754 ×", 0.913: "0.91 ×"}),
]


@pytest.mark.parametrize(("write", "examples"), FIGURES, ids=lambda value: getattr(value, "__name__", ""))
def test_figures_are_written_as_people_read_them(write, examples):
    assert {value: write(value) for value in examples} == examples
    if write is not number_format.in_digits:
        assert number_format.in_seconds(None) == "–"


def linear(colour: str) -> list[float]:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def times(matrix: list[list[float]], vector: list[float]) -> list[float]:
    return [min(max(sum(a * b for a, b in zip(row, vector, strict=True)), 0), 1) for row in matrix]


def lab(rgb: list[float]) -> list[float]:
    to_xyz = [[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0178, 0.1095, 0.8730]]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in times(to_xyz, rgb))
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


# Machado, Oliveira and Fernandes (2009), of full severity.
SIGHT = {
    "normal": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", ["LIGHT", "DARK"])
def test_colours_of_charts_are_told_apart_by_everybody(theme, sight):
    colours = re.findall(r"--c\d: (#\w{6})", getattr(style, theme))
    assert len(colours) == 5
    seen = [lab(times(SIGHT[sight], linear(colour))) for colour in colours]
    for one, other in itertools.combinations(seen, 2):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 24


def test_letters_are_as_wide_as_they_are_drawn():
    narrow, slim, small, capital, broad, cjk = (text_width(letter, 100) for letter in "irnNW漢")
    assert 0 < narrow < slim < small < capital < broad < cjk
    assert text_width("Wir", 100) == pytest.approx(broad + narrow + slim)


@pytest.mark.parametrize(("later", "whiskers"), [([2.0], 0), ([2.0, 3.0], 1), ([], 0)])
def test_one_later_epoch_has_no_spread(later, whiskers):
    found = samples.bench()
    found["configurations"][0]["later_s"] = later
    for row in found["configurations"][1:]:
        row["later_s"] = []
    drawn = [mark.shape for chart in charts.bench_charts(found) for row in chart.rows for mark in row.marks]
    assert drawn.count("whisker") == whiskers


def test_the_mean_error_of_predictions_is_told_if_it_is_known():
    found = {"verified": [{"name": "a", "predicted_s": 9, "measured_s": 10}]}
    assert charts.verified_chart(found).note == ""
    assert charts.verified_chart(found | {"mean_error": 0.1}).note == "Mean absolute error: 10 % of the measured time."


def test_speeds_are_those_against_the_baseline_wherever_it_stands():
    rows = [{"name": name, "median_s": seconds} for name, seconds in (("fast", 1.0), ("plain", 4.0), ("slow", 8.0))]
    table = html_tables.bench_table({"configurations": rows, "baseline": "plain"})
    assert [number_format.in_times(times) in table for times in (4.0, 0.5)] == [True, True]
