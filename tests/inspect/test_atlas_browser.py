"""The atlas in a real browser: on a phone and on a desk, by mouse and by keyboard, with few pages and with many."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import CONTRASTS, Browser, start_browser
from evaluated_pages import HOSTILE, ONE, SEEN, THREE, WORDS, evaluated, inspection, make_page

from ocr.inspect.atlas import take_picture, write_atlas
from ocr.inspect.compare import Comparison

pytestmark = pytest.mark.slow
PHONE, DESK = 390, 1440
MANY = 1000


@pytest.fixture(scope="module")
def atlases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("an atlas & <more>")
    faulty, clean = evaluated(WORDS, SEEN, name=HOSTILE), evaluated([ONE], [(ONE, 0.8)], name="clean.png")
    before = evaluated(WORDS, [(ONE, 0.9), (THREE, 0.9), ((120, 120, 200, 140), 0.9)], name=HOSTILE)
    picture = take_picture(make_page(WORDS, SEEN), 200)
    found = inspection(clean, faulty)
    pictures = {page.name: picture for page in found.pages}
    write_atlas(found, pictures, folder / "few.html")
    write_atlas(found, pictures, folder / "compared.html", Comparison(inspection(before, clean), found))
    write_atlas(inspection(), {}, folder / "empty.html")
    copies = [replace(faulty, name=f"{number:04d}.png") for number in range(MANY)]
    write_atlas(inspection(*copies), {page.name: picture for page in copies}, folder / "many.html")
    return {path.stem: path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = start_browser(tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


def press(browser: Browser, *keys: str) -> None:
    for key in keys:
        for kind in ("keyDown", "keyUp"):
            # A dialog closes by itself on the key with this number.
            number = 27 if key == "Escape" else 0
            text = key if len(key) == 1 else ""
            browser.send("Input.dispatchKeyEvent", type=kind, key=key, text=text, windowsVirtualKeyCode=number)


def wait_until(browser: Browser, condition: str) -> None:
    """What the browser does by itself takes a few of its turns."""
    for _ in range(5000):
        if browser.evaluate(condition):
            return
    raise AssertionError(condition)


def settle(browser: Browser) -> None:
    """Until the observer has drawn what is in sight."""
    wait_until(browser, "document.querySelectorAll('#grid img').length > 0")


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", ["few", "compared", "empty", "many"])
def test_it_opens_from_disk_without_overflow_complaint_or_request(browser, atlases, name, width):
    browser.open(atlases[name], width)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth && innerWidth") == width
    assert browser.trouble == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [atlases[name].as_uri()]


def test_names_of_files_are_text_and_nothing_else(browser, atlases):
    browser.open(atlases["few"], DESK)
    assert browser.evaluate("document.querySelector('.caption b').textContent") == HOSTILE


def test_of_a_thousand_pages_only_those_in_sight_are_drawn(browser, atlases):
    browser.open(atlases["many"], DESK)
    settle(browser)
    assert browser.evaluate("document.querySelectorAll('.thumbnail').length") == MANY
    assert browser.evaluate("document.querySelectorAll('#grid img').length") < 100
    browser.evaluate("scrollTo(0, document.body.scrollHeight)")
    wait_until(browser, "document.querySelector('.thumbnail:last-child img') !== null")
    assert browser.evaluate("document.querySelectorAll('#grid img').length") < 100


def test_a_cause_filters_pages_and_marks(browser, atlases):
    browser.open(atlases["few"], DESK)
    shown = "document.getElementById('shown').textContent"
    assert browser.evaluate(shown) == "2 pages, 4 marks"
    browser.evaluate("document.querySelector('button[data-cause=merged]').click()")
    assert browser.evaluate(shown) == "1 pages, 3 marks"
    settle(browser)
    assert browser.evaluate("document.querySelectorAll('.thumbnail polygon.dim').length") == 1
    browser.evaluate("cause.value = ''; cause.onchange(); search.value = 'CLEAN'; search.oninput()")
    assert browser.evaluate(shown) == "1 pages, 0 marks"


def test_pages_are_in_the_order_that_was_chosen(browser, atlases):
    browser.open(atlases["few"], DESK)
    names = "[...document.querySelectorAll('.caption b')].map(node => node.textContent)"
    assert browser.evaluate(names) == [HOSTILE, "clean.png"]
    browser.evaluate("order.value = 'best'; order.onchange()")
    assert browser.evaluate(names) == ["clean.png", HOSTILE]


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_keyboard_steps_through_pages_and_errors_switches_layers_and_zooms(browser, atlases, width):
    browser.open(atlases["few"], width)
    press(browser, "n")
    assert browser.evaluate("viewer.open")
    title = "document.getElementById('title').textContent"
    assert browser.evaluate(title).startswith(f"1 of 2: {HOSTILE}")
    before = browser.evaluate("large.clientWidth")
    press(browser, "n", "n")
    current = "document.querySelector('#large .current').dataset.at"
    assert browser.evaluate(current) == "1"
    assert browser.evaluate("document.querySelectorAll('#list [aria-pressed=true]').length") == 1
    press(browser, "0", "+")
    assert browser.evaluate("large.clientWidth") == pytest.approx(1.5 * before, abs=2)
    visible = "getComputedStyle(document.querySelector('#large polygon.{}')).display"
    press(browser, "t")
    assert (browser.evaluate(visible.format("truth")), browser.evaluate(visible.format("box"))) == ("none", "inline")
    press(browser, "b", "t")
    assert (browser.evaluate(visible.format("truth")), browser.evaluate(visible.format("box"))) == ("inline", "none")
    press(browser, "b", "ArrowRight")
    assert browser.evaluate(title).startswith("2 of 2: clean.png")
    press(browser, "ArrowRight", "ArrowLeft", "Escape")
    wait_until(browser, "!viewer.open && document.activeElement.className == 'thumbnail'")
    assert browser.trouble == []


def test_a_comparison_shows_what_was_gained_and_lost(browser, atlases):
    browser.open(atlases["compared"], DESK)
    marks = "document.getElementById('shown').textContent"
    counts = {}
    for cause in ("gained", "lost", "gone", "new"):
        browser.evaluate(f"cause.value = '{cause}'; cause.onchange()")
        counts[cause] = browser.evaluate(marks)
    # Gained: the second word. Lost: the third. Gone: the box beside the words. New: the one over two words.
    assert counts == dict.fromkeys(counts, "1 pages, 1 marks")
    browser.evaluate("cause.value = ''; cause.onchange(); order.value = 'change'; order.onchange()")
    assert "points)" in browser.evaluate("document.querySelector('.caption').textContent")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_in_both_themes(browser, atlases, theme):
    browser.open(atlases["few"], DESK, theme)
    page = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (page == "rgb(250, 251, 252)") == (theme == "light")
    found = browser.evaluate(CONTRASTS)
    assert len(found) > 30
    assert min(found)[0] >= 4.5, min(found)
