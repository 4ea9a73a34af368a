"""The report in a real browser: on a phone, on a desk, in the dark and on paper."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sample_results as samples
import sample_runs
from browser import CONTRASTS, Browser, start_browser

from ocr.advisor.report.html_page import write_report

pytestmark = pytest.mark.slow
PHONE, DESK, PAPER = 390, 1440, 703
"""CSS pixels; paper is A4 within its margins."""

VISIBLE = "[...document.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().width)"

# The box of letters has the font's ascent above the ink: of text, the baseline and the height of a capital count.
OUTSIDE = f"""{VISIBLE}.flatMap(svg => [...svg.querySelectorAll('text, circle, .bar')].filter(node => {{
  const box = node.getBBox(), view = svg.viewBox.baseVal
  let top = box.y, bottom = box.y + box.height
  if (node.matches('text')) {{
    bottom = parseFloat(node.getAttribute('y'))
    top = bottom - 0.75 * parseFloat(getComputedStyle(node).fontSize)
  }}
  return box.x < -0.5 || top < -0.5 || box.x + box.width > view.width + 0.5 || bottom > view.height + 0.5
}}).map(node => node.textContent || node.outerHTML))"""

# Of letters count what is between a capital's top and a descender's end: the height of their box depends on the font.
OVERLAPPING = f"""{VISIBLE}.flatMap(svg => {{
  const texts = [...svg.querySelectorAll('text')].map(text => {{
    const box = text.getBBox(), size = parseFloat(getComputedStyle(text).fontSize)
    const line = parseFloat(text.getAttribute('y'))
    return [text.textContent, box.x, box.x + box.width, line - 0.75 * size, line + 0.2 * size]
  }})
  const meet = (a, b) => a[1] < b[2] && b[1] < a[2] && a[3] < b[4] && b[3] < a[4]
  return texts.flatMap((one, at) =>
    texts.slice(at + 1).filter(other => meet(one, other)).map(other => [one[0], other[0]]))
}})"""

SMALLEST_LETTERS = f"""Math.min(...{VISIBLE}.flatMap(svg => [...svg.querySelectorAll('text')].map(text =>
  parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)))"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = start_browser(tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of everything, one of each kind, and the least there can be."""
    other = samples.profile() | {"machine": samples.MACHINE | {"processor": "W" * 200}, "data": {"place": "P" * 300}}
    results: dict[str, list[dict[str, Any]]] = {
        "all": [samples.profile(), samples.bench(), samples.advice()],
        "profiles": [other, samples.profile()],
        "bench": [samples.bench()],
        "advice": [samples.advice() | {"timeline": samples.timeline(steps=5000)}],
        "runs": [*sample_runs.three_runs(tmp_path_factory.mktemp("runs")), samples.advice()],
        "bare": [samples.bare("profile"), samples.bare("bench"), samples.bare("advice")],
    }
    folder = tmp_path_factory.mktemp("a report & <more>")
    for name, found in results.items():
        write_report(found, folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in results}


@pytest.mark.parametrize("width", [320, PHONE, 700, DESK])
@pytest.mark.parametrize("name", ["all", "profiles", "bench", "advice", "runs", "bare"])
def test_it_renders_from_disk_without_overflow_or_complaint(browser, pages, name, width):
    browser.open(pages[name], width)
    assert browser.evaluate("document.querySelector('.verdict').getBoundingClientRect().top") < 100
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth && innerWidth") == width
    assert browser.trouble == []
    assert browser.requests == [pages[name].as_uri()]
    assert browser.evaluate(OUTSIDE) == []
    assert browser.evaluate(OVERLAPPING) == []


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_each_chart_is_shown_once_in_letters_that_can_be_read(browser, pages, width):
    browser.open(pages["all"], width)
    shown = "[...document.querySelectorAll('figure')].map(figure => [...figure.querySelectorAll('svg')]"
    counts = browser.evaluate(f"{shown}.filter(svg => svg.getBoundingClientRect().width).length)")
    assert counts == [1] * 12
    assert browser.evaluate(SMALLEST_LETTERS) > 10.5


def test_a_wide_table_scrolls_by_itself_and_keeps_its_names_in_sight(browser, pages):
    browser.open(pages["all"], PHONE)
    wide = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)"
    assert browser.evaluate(f"{wide}.length") >= 3
    browser.evaluate(f"{wide}.forEach(box => box.scrollLeft = 9999)")
    assert browser.evaluate(f"{wide}.every(box => box.scrollLeft > 0 && box.tabIndex == 0)")
    names = "box.querySelector('tbody th').getBoundingClientRect().left - box.getBoundingClientRect().left"
    assert browser.evaluate(f"{wide}.map(box => Math.round({names})).every(left => left >= 0 && left <= 1)")


@pytest.mark.parametrize("name", ["all", "runs"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_marks_stand_out_in_both_themes(browser, pages, theme, name):
    browser.open(pages[name], DESK, theme)
    page = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (page == "rgb(250, 251, 252)") == (theme == "light")
    found = browser.evaluate(CONTRASTS)
    assert len(found["text"]) > 300
    assert len(found["mark"]) > 100
    assert min(found["text"])[0] >= 4.5, min(found["text"])
    assert min(found["mark"])[0] >= 3, min(found["mark"])


@pytest.mark.parametrize("name", ["all", "runs"])
def test_it_prints_black_on_white_with_nothing_cut_off_even_in_the_dark(browser, pages, name):
    browser.open(pages[name], PAPER, "dark", media="print")
    style = "getComputedStyle(document.body)"
    assert browser.evaluate(f"[{style}.color, {style}.backgroundColor]") == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
    assert browser.evaluate("getComputedStyle(document.querySelector('.bar.c1')).fill") == "rgb(26, 86, 207)"
    assert browser.evaluate("document.documentElement.scrollWidth") <= PAPER
    assert browser.evaluate("[...document.querySelectorAll('.scroll')].every(b => b.scrollWidth <= b.clientWidth)")
    assert min(browser.evaluate(CONTRASTS)["text"])[0] >= 7
    assert browser.evaluate(SMALLEST_LETTERS) > 10
    assert browser.evaluate(OVERLAPPING) == []
    assert browser.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_what_is_folded_opens_with_the_keyboard_and_fits(browser, pages, width):
    browser.open(pages["runs"], width)
    count = browser.evaluate("document.querySelectorAll('details').length")
    assert count == 4  # The settings and the epochs of two runs.
    for at in range(count):
        browser.evaluate(f"document.querySelectorAll('summary')[{at}].focus()")
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            browser.send("Input.dispatchKeyEvent", type=kind, **key)
    assert browser.evaluate("[...document.querySelectorAll('details')].every(one => one.open)")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
