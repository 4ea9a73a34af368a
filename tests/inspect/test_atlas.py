"""The atlas as a file: parts, data, and names that stay text. How it works in a browser: test_atlas_browser.py."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluated_pages import HOSTILE, ONE, SEEN, THREE, WORDS, evaluated, inspection, make_page
from markup import Markup

from ocr.inspect.atlas import take_picture, write_atlas
from ocr.inspect.compare import Comparison

FOUND = inspection(evaluated([ONE], [(ONE, 0.8)], name="clean.png"), evaluated(WORDS, SEEN, name=HOSTILE))


def written(path: Path, comparison: Comparison | None = None) -> str:
    picture = take_picture(make_page(WORDS, SEEN), 100)
    write_atlas(FOUND, {page.name: picture for page in FOUND.pages}, path, comparison)
    return path.read_text()


def data_of(page: str, name: str) -> Any:
    return json.loads(page.split(f'id="{name}">')[1].split("</script>")[0])


def test_a_picture_is_the_page_without_padding_and_no_larger_than_asked():
    given = make_page(WORDS, SEEN)
    padded = replace(given, size=(128, 256))
    picture = take_picture(padded, 100)
    assert (picture.width, picture.height) == (50, 100)
    assert picture.webp[8:12] == b"WEBP"
    assert take_picture(given, 2000).width == 256


def test_an_atlas_is_one_file_in_which_names_are_text(tmp_path):
    page = written(tmp_path / "atlas.html")
    assert "clean.png" in page
    assert HOSTILE not in page
    assert page.count("</script>") == len(re.findall("<script", page))
    assert not re.search(r"<link|@import|\bsrc=[\"']http", page)


def test_it_has_causes_scores_and_pages_and_names_for_every_control(tmp_path):
    markup = Markup(written(tmp_path / "atlas.html"))
    markup.check()
    assert markup.headings == ["Causes", "Scores", "Pages"]
    for control in (("button", "merged"), ("combobox", "cause"), ("checkbox", "labels"), ("button", "zoom in")):
        assert any(role == control[0] and name.startswith(control[1]) for role, name in markup.named)


def test_each_page_has_its_errors_with_what_finding_them_would_cost(tmp_path):
    page = written(tmp_path / "atlas.html")
    assert [entry["name"] for entry in data_of(page, "index")["pages"]] == [HOSTILE, "clean.png"]
    errors = data_of(page, "page-0")["errors"]
    assert {(error["kind"], error["cause"]) for error in errors} == {
        ("missed", "merged"),
        ("missed", "under a threshold"),
        ("false", "merged"),
    }
    assert any("lowered to" in error["detail"] for error in errors)
    assert data_of(page, "page-1")["errors"] == []


def test_a_comparison_has_its_scores_and_marks_what_differs(tmp_path):
    before = evaluated(WORDS, [(ONE, 0.9), (THREE, 0.9), ((120, 120, 200, 140), 0.9)], name=HOSTILE)
    baseline = inspection(before, FOUND.pages[0], name="baseline.ckpt")
    page = written(tmp_path / "atlas.html", Comparison(baseline, FOUND))
    assert Markup(page).headings == ["Comparison", "Causes", "Scores", "Pages"]
    assert "baseline.ckpt" in page
    kinds = [mark["kind"] for mark in data_of(page, "page-0")["errors"]]
    assert sorted(set(kinds) - {"missed", "false"}) == ["gained", "gone", "lost", "new"]
    assert "change" in data_of(page, "index")["pages"][0]
