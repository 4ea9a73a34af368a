"""The pages in a real browser: on a phone, on a desk, in the dark and on paper."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sample_runs
from advisor.trials import advice, row
from browser import CONTRASTS, Browser, start_browser

from ocr.report.run_page import write_runs

pytestmark = pytest.mark.slow
PHONE, DESK, PAPER = 390, 1440, 703
"""CSS pixels; paper is A4 within its margins."""
VISIBLE = "[...document.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width)"
SMALLEST_LETTERS = f"""Math.min(...{VISIBLE}.flatMap(svg => [...svg.querySelectorAll('text')].map(text =>
  parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = start_browser(tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("a report & <more>")
    write_runs(sample_runs.three_runs(tmp_path_factory.mktemp("runs")), folder / "runs.html")
    found = advice([row("W" * 80, 3.0, "cache"), row("2 threads", 0.5)], machine={"processor": "W" * 200})
    found.place, found.command = "P" * 300, "ocr advise " + "x" * 200
    found.other_rows = [row("small pages", 4.0, "size", hmean="not known")]
    found.stages, found.verified = {"decode": 0.004, "targets": 0.001}, [("present", 2.0, 1.6)]
    found.write(folder / "advice.html")
    advice([]).write(folder / "bare.html")
    return {name: folder / f"{name}.html" for name in ("runs", "advice", "bare")}


@pytest.mark.parametrize("width", [320, PHONE, 700, DESK])
@pytest.mark.parametrize("name", ["runs", "advice", "bare"])
def test_it_renders_from_disk_without_overflow_or_complaint(browser, pages, name, width):
    browser.open(pages[name], width)
    assert browser.evaluate("document.querySelector('.verdict').getBoundingClientRect().top") < 100
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth && innerWidth") == width
    assert browser.trouble == []
    assert browser.requests == [pages[name].as_uri()]


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_each_chart_is_shown_once_in_letters_that_can_be_read(browser, pages, width):
    browser.open(pages["runs"], width)
    shown = "[...document.querySelectorAll('figure')].map(figure => [...figure.querySelectorAll('svg')]"
    counts = browser.evaluate(f"{shown}.filter(svg => svg.getBoundingClientRect().width).length)")
    assert set(counts) == {0, 1}  # Bars are no pictures.
    assert browser.evaluate(SMALLEST_LETTERS) > 10.5


@pytest.mark.parametrize("name", ["runs", "advice"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_in_both_themes(browser, pages, theme, name):
    browser.open(pages[name], DESK, theme)
    page = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (page == "rgb(250, 251, 252)") == (theme == "light")
    assert min(browser.evaluate(CONTRASTS))[0] >= 4.5


@pytest.mark.parametrize("name", ["runs", "advice"])
def test_it_prints_black_on_white_with_nothing_cut_off_even_in_the_dark(browser, pages, name):
    browser.open(pages[name], PAPER, "dark", media="print")
    style = "getComputedStyle(document.body)"
    assert browser.evaluate(f"[{style}.color, {style}.backgroundColor]") == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    assert browser.evaluate("document.documentElement.scrollWidth") <= PAPER
    assert browser.evaluate("[...document.querySelectorAll('.scroll')].every(b => b.scrollWidth <= b.clientWidth)")
    assert min(browser.evaluate(CONTRASTS))[0] >= 7
    assert browser.pdf().startswith(b"%PDF")


def test_what_is_folded_opens_with_the_keyboard_and_fits(browser, pages):
    browser.open(pages["runs"], PHONE)
    count = browser.evaluate("document.querySelectorAll('details').length")
    assert count == 4  # The settings and the epochs of two runs.
    for at in range(count):
        browser.evaluate(f"document.querySelectorAll('summary')[{at}].focus()")
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            browser.send("Input.dispatchKeyEvent", type=kind, **key)
    assert browser.evaluate("[...document.querySelectorAll('details')].every(one => one.open)")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
