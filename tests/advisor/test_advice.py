"""The verdict, and how advice is shown."""

import io
import json
import re
from html import unescape

from advisor.trials import advice, row, timing
from markup import Markup
from rich.console import Console

from ocr.advisor.advice import progress
from ocr.report.page import render


def page_of(found) -> str:
    return unescape(re.sub(r"<[^>]+>", " ", render("advice.html", **found._content())))


def test_the_verdict_is_one_cause_one_change_and_its_factor():
    found = advice([row("2 threads", 1.5), row("cache", 1.9, "cache"), row("no change", 1.01, "ahead")])
    assert (found.bottleneck, found.cause) == ("loader", "not cache")
    assert "data.cache=cache" in found.sentence
    assert "1.9" in found.sentence
    assert found.unchanged == ["no change"]


def test_all_changes_together_are_the_best_but_not_the_one_change():
    both = row("cache + 2 threads", 3.0, "")
    found = advice([row("2 threads", 1.5), row("cache", 1.9, "cache"), both])
    assert found.best is both
    assert found.best_single is not None
    assert found.best_single.change.name == "cache"
    assert "cache + 2 threads" in found.sentence


def test_a_model_that_does_not_wait_is_the_bottleneck():
    found = advice([row("2 threads", 1.01)], waited=0.02, step_name="a step of lite on cpu")
    assert (found.bottleneck, found.cause, found.best) == ("model", "a step of lite on cpu", None)


def test_few_pages_per_step_are_a_cause_even_if_something_else_helps():
    found = advice([row("1 thread", 1.4)], waited=0.02, step_cause="only 1 page per step")
    assert found.cause == "not 1 thread, and only 1 page per step"


def test_a_stage_that_takes_most_of_the_work_is_a_cause_unless_a_cache_removes_it():
    stages = {"decode": 0.001, "Slow": 0.009}
    assert advice([row("2 processes", 1.5)], stages=stages).cause == (
        "Slow takes 90 % of the work on a page, and not 2 processes"
    )
    assert advice([row("cache", 1.5, "cache")], stages=stages).cause == "not cache"


def test_a_loader_that_nothing_helps_is_named_by_its_slowest_stage():
    found = advice([], stages={"decode": 0.001, "Slow": 0.009})
    assert found.cause.startswith("Slow takes 90 %")


def test_what_alters_the_model_and_what_is_computed_is_never_recommended():
    found = advice([row("more cores", 9.0, "", how="computed")])
    found.other_rows = [row("small pages", 4.0, "size", hmean="not known")]
    assert found.best is None
    assert found.unchanged == []
    shown = str(found)
    assert "learn something else" in shown
    assert "not known" in shown


def test_on_a_busy_machine_a_small_gain_is_no_advice():
    rows = [row("2 threads", 1.2)]
    assert advice(rows).best is not None
    busy = advice(rows, noisy=["present"], others=0.4)
    assert busy.best is None
    assert "40 %" in str(busy)


def test_at_most_six_changes_have_a_row_unless_all_are_asked_for():
    rows = [row(f"{number} threads", 1.0 + number) for number in range(9)]
    found = advice(rows)
    assert [one.change.name for one in found.shown(rows)] == [f"{number} threads" for number in range(8, 2, -1)]
    assert set(found.unchanged) == {"0 threads", "1 threads", "2 threads"}
    found.show_all = True
    assert len(found.shown(rows)) == 9
    assert found.unchanged == []


def test_the_screen_shows_the_verdict_first(capsys):
    found = advice([row("cache", 1.9, "cache")], not_tried={"DALI": "not installed"}, verified=[("present", 2.0, 1.6)])
    found.stages, found.show_stages = {"decode": 0.004}, True
    out = io.StringIO()
    found.show(Console(file=out, width=120))
    told = out.getvalue()
    assert told.lstrip().startswith("The loader is the bottleneck")
    assert "not installed" in told
    assert "+25 %" in told
    assert "decode" in told
    assert str(found).strip().splitlines()[0] == told.strip().splitlines()[0]


def test_the_page_has_the_verdict_the_changes_and_the_machine(tmp_path):
    found = advice(
        [row("cache <1>", 1.9, "cache"), row("2 threads", 0.5)], machine={"cores": "2"}, command="glyphfeed advise"
    )
    found.other_rows = [row("small pages", 4.0, "size", hmean="not known")]
    found.stages, found.verified = {"decode": 0.004, "targets": 0.001}, [("present", 2.0, 1.6)]
    found.write(tmp_path / "advice.html")
    page = (tmp_path / "advice.html").read_text()
    assert not re.search(r"<script|<link|<img|\bsrc=|@import|url\(|https?:", page)
    assert "cache <1>" not in page
    Markup(page).check()
    told = page_of(found)
    for words in (found.sentence, "cache <1>", "small pages", "+25 %", "data/<pages>", "glyphfeed advise"):
        assert words in told
    assert found._repr_html_().startswith("<iframe srcdoc=")


def test_the_figures_are_json(tmp_path):
    found = advice([row("cache", 1.9, "cache")])
    found.write(tmp_path / "advice.json")
    told = json.loads((tmp_path / "advice.json").read_text())
    assert told["best"]["change"]["overrides"] == ["data.cache=cache"]
    assert (told["epoch_s"], told["bottleneck"]) == (2.0, "loader")


def test_an_advice_without_rows_has_a_page(tmp_path):
    assert "No change that was tried" in page_of(advice([]))
    assert timing().seconds == 2.0


def test_progress_into_a_file_is_a_line_for_each_thing_measured():
    out = io.StringIO()
    with progress(Console(file=out), 60) as show:
        for what in ("a", "b", "a"):
            show(what)
    assert out.getvalue().splitlines() == ["measuring a", "measuring b"]


def test_progress_in_a_terminal_names_what_is_measured():
    out = io.StringIO()
    with progress(Console(file=out, force_terminal=True, width=100), 60) as show:
        show("no [cache]")
    assert "measuring no [cache]" in out.getvalue()
    assert "\u2501" in out.getvalue()
