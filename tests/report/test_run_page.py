"""The report of runs as text: what it shows of one, how it compares several, and what it says is missing."""

import re
from dataclasses import replace
from html import escape, unescape
from xml.etree import ElementTree

import pytest
import typer
from markup import Markup
from rejection import rejects
from sample_runs import AWKWARD, three_runs, write_run
from typer.testing import CliRunner

from ocr.errors import ConfigError
from ocr.report.command import MAX_RUNS, report
from ocr.report.run_page import parts_rows, render_runs
from ocr.report.runs import read_run

SECTIONS = ["Training", "Hardest pages", "Settings", "Every epoch", "Commands"]


def command(*arguments: object):
    app = typer.Typer()
    app.command()(report)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def table(page: str, caption: str) -> list[list[str]]:
    """The cells of a table, row by row."""
    text = page[page.index(f"<caption>{caption}") :].split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", text, flags=re.DOTALL)
    return [[unescape(re.sub(r"<[^>]+>", "", cell)) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_a_run_is_shown_with_curves_pages_settings_and_epochs(tmp_path):
    page = render_runs([read_run(write_run(tmp_path / "run"))])
    Markup(page).check()
    assert Markup(page).headings == SECTIONS
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    assert titles == ["H-mean", "Loss", "Speed", "Waiting for data", "Memory", "Time of an epoch"]
    assert "H-mean 0.817 after 6 of 6 epochs" in page.split("<h2>")[0]
    assert not re.search(r"<script|<link|<img|\bsrc=|@import|url\(|https?:", page)
    (head, *hardest) = table(page, "Worst first")
    assert head == ["page", "H-mean", "at IoU 0.7", "missed", "false"]
    assert hardest == [["b.jpg", "0.250", "0.100", "7", "2"], ["<a>.jpg", "0.500", "0.400", "3", "0"]]
    assert "Worst first, after epoch 6" in page
    assert table(page, "The run")[1][:8] == ["run", "0.817", "0.717", "0.900", "0.800", "6", "6 of 6", "0.348"]
    assert ["model.channels", "64"] in table(page, "Settings")
    assert len(table(page, "Epochs of run")) == 1 + 6
    assert "ocr train &#39;dataset_base_path=/data/&lt;pages&gt;&#39; model.channels=64" in page


def test_runs_are_compared_best_first_and_only_by_settings_that_differ(tmp_path):
    page = render_runs(three_runs(tmp_path))
    Markup(page).check()
    assert Markup(page).headings == SECTIONS
    assert AWKWARD not in page
    assert f"The best run is {AWKWARD}: H-mean 0.944 after 80 of 80 epochs (short 0.817)" in unescape(page)
    assert [row[0] for row in table(page, "Runs, best first")[1:]] == [AWKWARD, "short", "begun"]
    differing = table(page, "Settings that differ")
    assert differing[0] == ["setting", "short", AWKWARD]
    assert [row[0] for row in differing[1:]] == ["model.channels", "trainer.max_epochs"]
    assert "No list of pages (worst_pages.json) in begun." in page
    assert "No settings (.hydra/config.yaml) in begun." in page
    assert table(page, "Worst first")[0] == ["page", "H-mean in short", f"H-mean in {AWKWARD}"]
    titles = re.findall(r"<h3>(.*?)</h3>", page)
    assert titles[:2] == ["H-mean at IoU 0.5", "H-mean at IoU 0.7"]


def test_a_run_that_waited_says_so_in_its_verdict(tmp_path):
    page = render_runs([read_run(write_run(tmp_path / "run", wait=3.0))])
    assert '<p class="verdict wrong">' in page
    assert "the model waited for data for 30 % of the time" in page
    begun = render_runs(three_runs(tmp_path)[2:])
    assert '<p class="verdict plain">No epoch has ended yet</p>' in begun
    assert Markup(begun).headings == SECTIONS[:3]


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
    runs = [read_run(write_run(tmp_path / day / "run")) for day in ("monday", "tuesday")]
    page = render_runs(runs)
    assert escape(str(tmp_path / "monday" / "run")) in page
    assert "All settings are the same." in page


def test_every_curve_is_sound_svg_with_title_description_and_units(tmp_path):
    pictures = re.findall(r"<svg.*?</svg>", render_runs(three_runs(tmp_path)), flags=re.DOTALL)
    names = set()
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        title, text = root.find("title"), root.find("desc")
        assert text.text
        assert root.find("text[@class='unit']").text
        names |= {title.get("id"), text.get("id")}
    assert len(names) == 2 * len(pictures) > 20


def test_the_command_draws_each_run_once(tmp_path):
    runs = [write_run(tmp_path / name) for name in ("a", "b")]
    out = tmp_path / "report.html"
    done = command(*runs, runs[0], "--out", out)
    assert done.exit_code == 0, done.output
    assert Markup(out.read_text()).headings == SECTIONS
    assert len(table(out.read_text(), "Runs, best first")) == 1 + 2


def test_more_runs_than_lines_that_can_be_told_apart_are_refused(tmp_path):
    folders = [tmp_path / str(number) for number in range(MAX_RUNS + 1)]
    for folder in folders:
        folder.mkdir()
    with rejects(ConfigError, value=MAX_RUNS + 1):
        raise command(*folders, "--out", tmp_path / "report.html").exception


@pytest.mark.parametrize("count", [6, MAX_RUNS])
def test_each_of_many_runs_has_a_line_of_its_own(tmp_path, count):
    page = render_runs([read_run(write_run(tmp_path / f"run {at}", epochs=2)) for at in range(count)])
    picture = next(picture for picture in re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL) if ">Speed<" in picture)
    styles = re.findall(r'<g class="row"><path class="(line [^"]+)"', picture)
    assert len(set(styles)) == len(styles) == count


def test_a_part_of_the_epoch_that_was_not_measured_has_no_bar(tmp_path):
    epochs = [{"epoch": 1, "seconds": {"data_wait": 1.0, "forward": 2.0}}]
    ((_, _, parts),) = parts_rows([replace(read_run(write_run(tmp_path / "a")), epochs=epochs)])
    assert parts == [("c5", pytest.approx(1 / 3)), ("c1", pytest.approx(2 / 3))]
