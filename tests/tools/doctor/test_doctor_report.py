"""The report: terminal, JSON and HTML."""

import json
import re
import shutil
from io import StringIO
from pathlib import Path

import pytest
from doctor_data import BOXES, SmallDataset, box, text_page
from markup import Markup
from markupsafe import escape
from rich.console import Console

from ocr.tools.doctor import Report, print_fix, print_report, write_fixed, write_html

AWKWARD = "<b>a & 'b' \"c\" [red]é[/red].jpg"


def recording() -> Console:
    return Console(width=160, record=True, file=StringIO())


def on_terminal(report: Report) -> str:
    console = recording()
    print_report(report, console)
    return console.export_text()


@pytest.fixture
def report(dataset: SmallDataset) -> Report:
    words = {str(at): {"points": box(150, 10 + 3 * at)} for at in range(30)}
    words["bow"] = {"points": [[20, 30], [80, 30], [20, 50], [80, 50]]}
    words["two"] = {"points": [[0, 0], [1, 1]]}
    dataset.add(AWKWARD, words=words)
    short = dataset.add("short.jpg", split="val")
    short.write_bytes(short.read_bytes()[:-300])
    turned = {str(at): {"points": each} for at, each in enumerate(BOXES)}
    dataset.add("turned.jpg", words=turned, image=text_page(), orientation=3, split="val")
    return dataset.examine(annotation_frame="raw")


def test_the_json_has_stable_keys(report: Report) -> None:
    document = json.loads(report.to_json())
    assert list(document) == [
        "data", "ok", "size", "annotation_frame", "severities", "kinds", "splits", "findings",
    ]  # fmt: skip
    assert document["ok"] is False
    assert document["kinds"] == {
        "truncated-image": 1,
        "other-frame": 1,
        "bad-points": 1,
        "self-intersecting": 1,
        "out-of-page": 30,
    }
    assert document["severities"] == {"error": 3, "warning": 31, "note": 0}
    assert document["splits"]["val"] == {
        "pages": 2,
        "words": 7,
        "ignored": 0,
        "images": 2,
        "megapixels": {"min": 0.1, "median": 0.1, "max": 0.1},
        "orientations": {"3": 1},
    }
    keys = {tuple(finding) for finding in document["findings"]}
    assert keys == {("split", "image", "word", "kind", "severity", "message", "points")}


def test_the_terminal_shows_counts_a_few_examples_and_the_sum(report: Report) -> None:
    text = on_terminal(report)
    assert re.search(r"out-of-page +warning +30 +·", text)
    assert "and 27 more; --json lists all" in text
    assert "3 errors, 31 warnings: something is wrong." in text
    assert len(text.splitlines()) < 50


def test_names_that_look_like_markup_are_printed_as_they_are(report: Report) -> None:
    assert f"train/{AWKWARD}, word bow" in on_terminal(report)


def test_a_name_that_is_not_unicode_is_escaped(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add("\udcff.jpg")
    shutil.copyfile(dataset.image_path("\udcff.jpg"), dataset.add("\udcfe.jpg"))
    report = dataset.examine()
    assert "train/\\udcff.jpg  the same bytes as train/\\udcfe.jpg" in on_terminal(report)
    write_html(report, tmp_path / "report.html")
    assert "train/\\udcff.jpg" in (tmp_path / "report.html").read_text()
    assert json.loads(report.to_json().encode())["findings"][0]["image"] == "\udcff.jpg"
    assert write_fixed(report, tmp_path / "fixed").to_json().encode()


def test_sound_data_is_told_in_one_line(dataset: SmallDataset) -> None:
    dataset.add()
    assert on_terminal(dataset.examine()).rstrip().endswith("Nothing is wrong.")


def test_notes_alone_are_not_wrong(dataset: SmallDataset) -> None:
    dataset.add(words={})
    assert "1 note: nothing is wrong." in on_terminal(dataset.examine())


def test_the_repairs_are_told_by_file_and_count(report: Report, tmp_path: Path) -> None:
    console = recording()
    print_fix(write_fixed(report, tmp_path / "fixed"), console)
    text = console.export_text()
    assert f"wrote {tmp_path / 'fixed' / 'jsons' / 'train.json'}" in text
    assert "30 words clipped, 1 word repaired, 1 word dropped, 1 page dropped, 1 page turned: " in text
    assert f"{tmp_path / 'fixed' / 'doctor.json'} lists all." in text


def test_a_split_without_repairs_says_so(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add()
    dataset.pages["test"] = {}
    console = recording()
    print_fix(write_fixed(dataset.examine(), tmp_path / "fixed"), console)
    text = console.export_text()
    assert "test could not be read" in text
    assert "nothing to change." in text


def test_the_page_escapes_names_and_needs_nothing_from_elsewhere(report: Report, tmp_path: Path) -> None:
    write_html(report, tmp_path / "out" / "report.html")
    page = (tmp_path / "out" / "report.html").read_text()
    assert AWKWARD not in page
    assert escape(AWKWARD) in page
    assert "<script" not in page
    assert "http" not in page
    markup = Markup(page)
    markup.check()
    assert markup.headings[:3] == ["Splits", "Findings", "truncated-image 1"]
    assert f"train/{AWKWARD}, word bow" in [name for role, name in markup.named if role == "img"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["report.html"]


def test_offenders_are_drawn_over_their_page_and_the_rest_is_counted(report: Report, tmp_path: Path) -> None:
    write_html(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    section = page[page.index('<h2 id="out-of-page">') :]
    assert section.count('href="data:image/jpeg;base64,') == 24
    assert section.count('<polygon class="bad"') == 24
    assert section.count('<polygon class="good"') == 24
    assert "and 6 more" in section
    assert '<polygon class="bad" points="150.0,10.0 210.0,10.0 210.0,30.0 150.0,30.0"/>' in section


def test_a_page_in_the_other_frame_is_drawn_in_both(report: Report, tmp_path: Path) -> None:
    write_html(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    section = page[page.index('<h2 id="other-frame">') : page.index('<h2 id="bad-points">')]
    right = " ".join(f"{x:.1f},{y:.1f}" for x, y in BOXES[0])
    wrong = " ".join(f"{239 - x:.1f},{399 - y:.1f}" for x, y in BOXES[0])
    assert f'<polygon class="good" points="{right}"/>' in section
    assert f'<polygon class="bad" points="{wrong}"/>' in section


def test_what_is_left_of_a_truncated_page_is_shown(report: Report, tmp_path: Path) -> None:
    write_html(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    section = page[page.index('<h2 id="truncated-image">') : page.index('<h2 id="other-frame">')]
    assert section.count("data:image/jpeg") == 1


def test_files_that_cannot_be_shown_are_listed(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add("a.png").write_bytes(b"<html>")
    broken = dataset.add("b.bmp")
    broken.write_bytes(broken.read_bytes()[:100])
    write_html(dataset.examine(deep=True), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "data:image" not in page
    assert "<li><b>train/a.png</b>" in page
    assert "<li><b>train/b.bmp</b>" in page


def test_a_page_of_sound_data_has_no_findings(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add()
    write_html(dataset.examine(), tmp_path / "report.html")
    assert "Nothing is wrong." in (tmp_path / "report.html").read_text()


def test_a_word_far_outside_of_a_huge_page_is_drawn_at_the_border(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add("a.jpg", words={"1": {"points": box(9e5, 50)}}, size=(1600, 1200))
    write_html(dataset.examine(), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "data:image/jpeg" in page
    assert len(page) < 100_000
