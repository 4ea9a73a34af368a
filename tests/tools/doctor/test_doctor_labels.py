"""`ocr doctor --model`: the package's detector finds what was done to the labels of a synthetic page."""

import io
import json
import shutil
from pathlib import Path

import pytest
from doctor_data import SmallDataset, box, raw_points
from rejection import rejects
from rich.console import Console

from ocr.errors import ConfigError
from ocr.formats import Page, Word, read_annotations
from ocr.tools.doctor import examine, print_report, write_fixed, write_html
from ocr.tools.doctor.findings import Finding, Report
from ocr.tools.doctor.labels import add_suspects, check_options, propose, upright_labels, write_tasks


@pytest.fixture(scope="module")
def faulty(synthetic: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Two pages: one with a label less and one twice, one as it is; and the keys of the words."""
    root = tmp_path_factory.mktemp("faulty")
    pages = json.loads((synthetic / "jsons" / "val.json").read_text())["images"]
    first, second = list(pages)[:2]
    words = pages[first]["words"]
    legible = [key for key, word in words.items() if not word.get("illegibility")]
    # The longest lines, which every detector finds.
    legible.sort(key=lambda key: -max(x for x, _ in words[key]["points"]) + min(x for x, _ in words[key]["points"]))
    removed, doubled = legible[0], legible[1]
    words["twice"] = words[doubled]
    gone = words.pop(removed)
    for name in (first, second):
        target = root / "images" / "val" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(synthetic / "images" / "val" / name, target)
    (root / "jsons").mkdir()
    (root / "jsons" / "val.json").write_text(json.dumps({"images": {name: pages[name] for name in (first, second)}}))
    return root, {"page": first, "doubled": doubled, "gone": json.dumps(gone["points"])}


@pytest.fixture(scope="module")
def suspected(faulty: tuple[Path, dict[str, str]]) -> Report:
    report = examine(faulty[0], show_progress=False)
    return add_suspects(report, "glyphfeed", Console(quiet=True))


def test_the_two_errors_are_the_first_suspects_and_leave_the_exit_status_alone(faulty, suspected):
    root, keys = faulty
    first = suspected.suspects[:2]
    assert {finding.kind for finding in first} == {"suspect-duplicate", "suspect-missing"}
    assert all(finding.image == keys["page"] for finding in first)
    duplicate = next(finding for finding in first if finding.kind == "suspect-duplicate")
    assert duplicate.word in ("twice", keys["doubled"])
    assert suspected.exit_status == examine(root, show_progress=False).exit_status


def test_suspects_are_ranked_in_the_file_and_on_the_screen(suspected):
    listed = [finding for finding in json.loads(suspected.to_json())["findings"] if "score" in finding]
    assert [finding["score"] for finding in listed] == sorted((f["score"] for f in listed), reverse=True)
    console = Console(record=True, width=200, file=io.StringIO())
    print_report(suspected, console)
    shown = console.export_text()
    assert "labels to look at" in shown
    assert shown.index("duplicate") > 0


def test_fix_proposes_in_a_copy_and_leaves_the_labels_alone(faulty, suspected, tmp_path):
    root, keys = faulty
    before = (root / "jsons" / "val.json").read_bytes()
    summary = write_fixed(suspected, tmp_path / "fixed")
    assert (root / "jsons" / "val.json").read_bytes() == before
    assert summary.counts()["word-added"] >= 1
    page = read_annotations(tmp_path / "fixed" / "jsons" / "val.json").pages[keys["page"]]
    remaining = {word.key for word in page.words}
    assert len({"twice", keys["doubled"]} & remaining) == 1
    added = [word for word in page.words if word.key.startswith("new_")]
    left, top = (min(point[axis] for point in json.loads(keys["gone"])) for axis in (0, 1))
    corners = [(min(x for x, _ in word.points), min(y for _, y in word.points)) for word in added]
    assert any(abs(x - left) < 25 and abs(y - top) < 25 for x, y in corners)
    recorded = json.loads((tmp_path / "fixed" / "doctor.json").read_text())["changes"]
    assert any(change["reason"].startswith("suspect-duplicate: ") for change in recorded)


def test_suspects_are_drawn(suspected, tmp_path):
    write_html(suspected, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    section = html[html.index('id="suspect-missing"') :]
    assert 'class="good"' in section[: section.index("</figure>")]


def test_tasks_have_the_reason_at_the_region(faulty, suspected, tmp_path):
    (file,) = write_tasks(suspected, "label_studio", tmp_path / "tasks.json")
    tasks = json.loads(file.read_text())
    assert tasks[0]["data"]["ocr"].endswith(faulty[1]["page"])
    assert "text without a label" in tasks[0]["data"]["reason"]
    regions = tasks[0]["predictions"][0]["result"]
    noted = [region["meta"]["text"][0] for region in regions if "text" in region.get("meta", {})]
    assert any(note.startswith("suspect-duplicate: another label has the same place") for note in noted)
    assert tasks[0]["predictions"][0]["model_version"] == "ocr doctor"
    (xml,) = write_tasks(suspected, "cvat", tmp_path / "tasks.xml")
    assert '<attribute name="note">suspect-missing: ' in xml.read_text()


def test_labels_in_the_stored_frame_are_judged_upright_and_proposed_in_their_own(dataset: SmallDataset):
    upright = box(20, 40, 90)
    words = {"a": {"points": raw_points(upright, 6, (200, 300))}}
    dataset.add("turned.jpg", words, size=(200, 300), orientation=6, img_w=300, img_h=200)
    (split,) = dataset.examine().splits
    assert upright_labels(split, "turned.jpg").bounds[0].tolist() == pytest.approx([20, 40, 110, 60])


def finding(kind: str, word: str | None, score: float = 0.9, **more: object) -> Finding:
    return Finding("train", "a.jpg", f"suspect-{kind}", "because", word, (), score, **more)  # type: ignore[arg-type]


def test_proposals_move_split_drop_and_add_words_and_keep_the_rest():
    page = Page(
        (Word("1", box(0, 0), "moved"), Word("2", box(0, 30), "two"), Word("3", box(0, 60)), Word("4", box(0, 90)))
    )
    place, other = ((5.0, 5.0), (9.0, 5.0), (9.0, 9.0)), ((15.0, 5.0), (19.0, 5.0), (19.0, 9.0))
    suspects = [
        finding("shifted", "1", proposal=(place,)),
        finding("merged", "2", proposal=(place, other)),
        finding("duplicate", "3", proposal=()),
        finding("missing", None, proposal=(other,)),
        finding("unsupported", "4"),
        finding("shifted", "4", score=0.2, proposal=(place,)),
    ]
    changed, taken = propose(page, suspects, (200, 100))
    assert [(word.key, word.text) for word in changed.words] == [
        ("1", "moved"), ("2_1", None), ("2_2", None), ("4", None), ("new_0001", None)
    ]  # fmt: skip
    assert changed.words[0].points == [list(point) for point in place]
    assert changed.words[3] == page.words[3]
    assert [action for _, action, _ in taken] == ["word-moved", "word-split", "word-dropped", "word-added"]


def test_a_page_in_another_frame_is_moved_as_a_whole_and_gets_the_size_of_its_image():
    page = Page((Word("1", box(10, 10)), Word("bad", [[1, 2]])), (50, 50))
    moved, taken = propose(page, [finding("page", None, matrix=((2, 0, 0), (0, 2, 0), (0, 0, 1)))], (200, 100))
    assert moved == Page((Word("1", [[20, 20], [140, 20], [140, 60], [20, 60]]), Word("bad", [[1, 2]])), (200, 100))
    assert [(word, action) for word, action, _ in taken] == [(None, "page-moved")]


@pytest.mark.parametrize(
    ("options", "setting", "value"),
    [
        ({"model": "nowhere.ckpt"}, "--model", "nowhere.ckpt"),
        ({"tasks": "cvat"}, "--tasks", "cvat"),
        ({"model": "glyphfeed", "tasks": "cvat"}, "--out", None),
        ({"model": "glyphfeed", "tasks": "paddle", "out": Path("x")}, "--tasks", "paddle"),
        ({"model": "glyphfeed", "tasks": "cvat", "out": Path(__file__)}, "--out", Path(__file__)),
        ({"out": Path("x")}, "--out", Path("x")),
    ],
)
def test_options_that_do_not_fit_together_are_refused(options, setting, value):
    given = {"model": None, "tasks": None, "out": None} | options
    with rejects(ConfigError, setting=setting, value=value):
        check_options(**given)
