"""The web page in a real browser: real uploads, on a phone and on a desk, in the light and in the dark, by keyboard."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CONTRASTS, Browser, start_browser
from markup import Markup
from service_client import Client, encoded, eventually, pdf

PHONE, DESK = 390, 1440
LOADED = "info !== null && document.querySelectorAll('#endpoints h3').length == 4"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = start_browser(tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.fixture
def files(page, tmp_path) -> dict[str, Path]:
    """Uploads on disk, for the file chooser."""
    contents = {"scan.png": encoded(page), "scan.pdf": pdf(page, page[:70]), "notes.png": b"no image at all"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return {name: tmp_path / name for name in contents}


def show(browser: Browser, client: Client, width: int = DESK, theme: str = "light") -> None:
    browser.open(f"http://127.0.0.1:{client.port}/", width, theme)
    eventually(lambda: browser.evaluate(LOADED))


def choose(browser: Browser, file: Path) -> None:
    """As somebody who clicks on a file in the chooser."""
    root = browser.send("DOM.getDocument")["root"]["nodeId"]
    chooser = browser.send("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    browser.send("DOM.setFileInputFiles", files=[str(file)], nodeId=chooser)


def wait_for_boxes(browser: Browser, name: str) -> None:
    eventually(lambda: browser.evaluate(f"document.querySelector('#status').textContent.startsWith('{name}: ')"))


def press(browser: Browser, key: str, code: int, text: str = "") -> None:
    shared = {"key": key, "code": key, "windowsVirtualKeyCode": code}
    browser.send("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
    browser.send("Input.dispatchKeyEvent", type="keyUp", **shared)


def polygons(browser: Browser) -> int:
    return browser.evaluate("document.querySelectorAll('#sheet polygon').length")


def text(browser: Browser, selector: str) -> str:
    return browser.evaluate(f"document.querySelector({selector!r}).textContent")


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (PHONE, "light"),
        *(pytest.param(*shown, marks=pytest.mark.slow) for shown in ((PHONE, "dark"), (DESK, "light"), (DESK, "dark"))),
    ],
)
def test_an_image_is_shown_with_its_boxes_and_nothing_overflows(browser, client, detector, files, width, theme):
    show(browser, client, width, theme)
    choose(browser, files["scan.png"])
    wait_for_boxes(browser, "scan.png")
    (found,) = client.detect(files["scan.png"].read_bytes(), "?box_thresh=0").json()["pages"]
    expected = [word["score"] for word in found["words"].values() if word["score"] >= detector.boxes.box_thresh]
    assert polygons(browser) == len(expected) > 3
    assert text(browser, "#status") == f"scan.png: {len(expected)} boxes"
    picture = "document.querySelector('#sheet svg').getAttribute('{}')"
    assert browser.evaluate(picture.format("role")) == "img"
    assert browser.evaluate(picture.format("aria-label")) == f"Page 1: {len(expected)} boxes"
    scores = browser.evaluate("[...document.querySelectorAll('#sheet text')].map(one => one.textContent)")
    assert [float(score) for score in scores] == pytest.approx(expected, abs=0.006)
    assert browser.evaluate("document.querySelector('#sheet text').getBoundingClientRect().height") > 8
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth && innerWidth") == width
    assert browser.trouble == []
    assert {request.split("/")[2] for request in browser.requests if not request.startswith("data:")} == {
        f"127.0.0.1:{client.port}"
    }
    browser.evaluate("document.querySelector('#scores').click(); document.querySelector('details').open = true")
    contrasts = browser.evaluate(CONTRASTS)
    assert len(contrasts) > 40
    assert min(contrasts)[0] >= 4.5, min(contrasts)
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 27)"
    assert dark == (theme == "dark")


@pytest.mark.slow
def test_the_pages_of_a_pdf_are_turned_and_full_size_scrolls(browser, client, files):
    show(browser, client, PHONE)
    choose(browser, files["scan.pdf"])
    wait_for_boxes(browser, "scan.pdf")
    assert text(browser, "#status").endswith("on 2 pages")
    assert text(browser, "#number").startswith("Page 1 of 2: ")
    browser.evaluate("document.querySelector('#next').click()")
    assert text(browser, "#number").startswith("Page 2 of 2: ")
    assert browser.evaluate("document.querySelector('#next').disabled")
    assert browser.evaluate("document.querySelector('#sheet svg').viewBox.baseVal.height") == 71
    browser.evaluate("document.querySelector('#sheet').focus()")
    press(browser, "ArrowLeft", 37)
    assert text(browser, "#number").startswith("Page 1 of 2: ")
    browser.evaluate("document.querySelector('#full').click()")
    assert browser.evaluate("document.querySelector('#sheet svg').getBoundingClientRect().width") == 100


@pytest.mark.slow
def test_everything_is_reached_and_used_by_keyboard(browser, client, detector, files):
    show(browser, client)
    choose(browser, files["scan.pdf"])
    wait_for_boxes(browser, "scan.pdf")
    seen = []
    for _ in range(9):
        press(browser, "Tab", 9)
        seen.append(browser.evaluate("document.activeElement.id || document.activeElement.tagName.toLowerCase()"))
    assert seen == ["file", "threshold", "next", "scores", "full", "save", "sheet", "summary", "a"]
    before = polygons(browser)
    browser.evaluate("document.querySelector('#threshold').focus()")
    press(browser, "Home", 36)
    assert text(browser, "#shown") == "0.00"
    assert polygons(browser) > before
    press(browser, "End", 35)
    assert (text(browser, "#shown"), polygons(browser)) == ("1.00", 0)
    browser.evaluate("document.querySelector('summary').focus()")
    press(browser, "Enter", 13, "\r")
    assert browser.evaluate("document.querySelector('details').open")


@pytest.mark.slow
def test_the_downloaded_json_is_what_the_service_answers_at_that_threshold(browser, client, files, tmp_path):
    show(browser, client)
    downloads = tmp_path / "downloads"
    downloads.mkdir()
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))
    choose(browser, files["scan.pdf"])
    wait_for_boxes(browser, "scan.pdf")
    browser.evaluate("document.querySelector('#threshold').focus()")
    press(browser, "ArrowLeft", 37)
    browser.evaluate("document.querySelector('#save').focus()")
    press(browser, "Enter", 13, "\r")
    eventually(lambda: (downloads / "scan.pdf.json").exists())
    found = json.loads((downloads / "scan.pdf.json").read_text())
    assert found["box_thresh"] == 0.49
    assert found == client.detect(files["scan.pdf"].read_bytes(), "?box_thresh=0.49").json()


@pytest.mark.slow
def test_a_dropped_file_is_looked_at_and_a_bad_one_is_explained(browser, client, files):
    show(browser, client)
    data = b64encode(files["scan.png"].read_bytes()).decode()
    browser.evaluate(f"""(() => {{
      const bytes = Uint8Array.from(atob('{data}'), letter => letter.charCodeAt(0)), carried = new DataTransfer()
      carried.items.add(new File([bytes], 'dropped.png', {{type: 'image/png'}}))
      document.querySelector('#drop').dispatchEvent(new DragEvent('drop', {{dataTransfer: carried, bubbles: true}}))
    }})()""")
    wait_for_boxes(browser, "dropped.png")
    assert polygons(browser) > 3
    choose(browser, files["notes.png"])
    eventually(lambda: browser.evaluate("document.querySelector('#status').className") == "wrong")
    assert "neither a PDF nor a known image" in text(browser, "#status")
    assert browser.evaluate("document.querySelector('#status').getAttribute('role')") == "alert"
    browser.evaluate("detect(new File([new Uint8Array(3e6)], 'large.png'))")
    eventually(lambda: "large.png has 3 MB; at most 2 MB" in text(browser, "#status"))


@pytest.mark.slow
def test_a_file_that_is_too_large_ends_the_request_before_and_its_progress(browser, client):
    show(browser, client)
    browser.evaluate(
        "detect(new File(['one'], 'one.png')); info.limits.bytes = 4; detect(new File(['large'], 'two.png'))"
    )
    assert text(browser, "#status").startswith("two.png has 0.00 MB")
    assert browser.evaluate("document.querySelector('#progress').hidden")


def test_a_screen_reader_finds_names_for_everything(client):
    page = Markup(client.get("/").body.decode())
    page.check()
    named = page.named
    for expected in (
        *(("heading", "Find text"), ("slider", "Threshold"), ("checkbox", "Scores"), ("button", "Download JSON")),
        *(("button", "Next page"), ("region", "The page with its boxes"), ("heading", "From a program")),
    ):
        assert expected in named


@pytest.mark.slow
def test_the_page_shows_how_programs_use_it(browser, client):
    show(browser, client, PHONE)
    assert text(browser, "#example") == f"curl --data-binary @scan.jpg http://127.0.0.1:{client.port}/detect"
    shown = browser.evaluate("[...document.querySelectorAll('#endpoints h3 code')].map(one => one.textContent)")
    assert shown == ["POST /detect", "GET /info", "GET /health", "GET /metrics"]
    assert "too_many_pages" in text(browser, "#endpoints")
    assert client.get("/").headers["content-security-policy"].startswith("default-src 'none'")
