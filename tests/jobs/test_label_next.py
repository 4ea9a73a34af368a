"""ocr label-next: pages in, a ranking and tasks with boxes to correct out."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusal import refuses
from rejection import rejects

from ocr import Detector
from ocr.errors import AnnotationError, ConfigError, ImageError
from ocr.formats.read import read_annotations
from ocr.jobs import label_next as job

NAMES = ["a.png", "b.jpg", "c.png", "d.png", "more/e.png"]


@pytest.fixture
def model(noise_detector) -> Path:
    return noise_detector


def draw_page(path: Path, seed: int, paper: int = 255) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(paper - 60, paper, (140, 100 + seed, 3), dtype=np.uint8)
    for top in range(12, 130, 24 + seed):
        pixels[top : top + 9, 10:85] //= 4
    Image.fromarray(pixels).save(path)


@pytest.fixture
def pages(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(NAMES):
        draw_page(tmp_path / "pages" / name, seed, paper=140 if name == "d.png" else 255)
    return tmp_path / "pages"


@pytest.fixture
def run(model, monkeypatch):
    def command(*words: str) -> list[dict]:
        """The rows of the ranking."""
        settings = ["ocr label-next", f"checkpoint_path={model}", "--json", "ranking.json", *words]
        monkeypatch.setattr(sys, "argv", settings)
        job.main()
        return json.loads(Path("ranking.json").read_text())["pages"]

    return command


def label(file: str, *names: str) -> None:
    words = {"0001": {"points": [[10, 12], [85, 12], [85, 21], [10, 21]]}}
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps({"images": {name: {"words": words} for name in names}}))


def test_the_chosen_pages_come_first_and_all_pages_are_ranked(run, pages, capsys):
    ranked = run("images=pages", "--pages", "2", "--tasks", "native", "--out", "next.json", "--csv", "ranking.csv")
    assert sorted(row["page"] for row in ranked) == NAMES
    assert [row["chosen"] for row in ranked] == [True, True, False, False, False]
    assert [row["rank"] for row in ranked] == [1, 2, 3, 4, 5]
    assert list(json.loads(Path("next.json").read_text())["images"]) == [row["page"] for row in ranked[:2]]
    table = list(csv.DictReader(Path("ranking.csv").read_text().splitlines()))
    assert [row["page"] for row in table] == [row["page"] for row in ranked]
    shown = capsys.readouterr().out
    assert "2 of 5 pages to label next" in shown
    assert all(f"{kind}: {file}" in shown for kind, file in (("tasks", "next.json"), ("ranking", "ranking.csv")))


def test_the_same_command_gives_the_same_ranking_whatever_the_batches_are(run, pages):
    first = run("images=pages", "--pages=3", "tasks=null")
    assert run("images=pages", "pages=3", "tasks=null", "readers=1") == first
    alone = run("images=pages", "pages=3", "tasks=null", "batch_size=1")
    assert [row["page"] for row in alone] == [row["page"] for row in first]
    assert [row["score"] for row in alone] == pytest.approx([row["score"] for row in first], rel=1e-3)


def test_tasks_have_the_boxes_of_the_detector_and_the_reason(run, pages, model):
    ranked = run("images=pages", "--pages", "2")
    tasks = json.loads(Path("label_next.json").read_text())
    assert len(tasks) == 2
    for row, task in zip(ranked, tasks, strict=False):
        assert task["data"]["ocr"].endswith(row["page"])
        assert task["data"]["reason"] == row["reason"]
        (prediction,) = task["predictions"]
        assert prediction["model_version"] == "ocr label-next"
        found = Detector.load(model)(pages / row["page"])
        assert len({region["id"] for region in prediction["result"]}) == len(found) == row["boxes"]


@pytest.mark.parametrize(("format", "out"), [("cvat", "label_next.xml"), ("coco", "label_next.json")])
def test_every_format_is_read_back_with_the_chosen_pages(run, pages, format, out):
    ranked = run("images=pages", "--pages", "3", "--tasks", format)
    read = read_annotations(out, image_path=pages)
    assert read.format == format
    assert {name: len(page.words) for name, page in read.pages.items()} == {
        row["page"]: row["boxes"] for row in ranked[:3]
    }
    assert ranked[0]["reason"].split(";")[0] in Path(out).read_text()


def test_a_format_with_a_file_per_page_becomes_a_folder(run, pages):
    ranked = run("images=pages", "--pages", "5", "--tasks", "labelme")
    written = {str(file.relative_to("label_next").with_suffix("")) for file in Path("label_next").rglob("*.json")}
    assert written == {str(Path(row["page"]).with_suffix("")) for row in ranked}


def test_labelled_pages_are_not_chosen_and_compared_with(run, pages):
    label("done.json", "a.png", "more/e.png")
    ranked = run("images=pages", "labelled=done.json", "pages=1", "tasks=null")
    assert sorted(row["page"] for row in ranked) == ["b.jpg", "c.png", "d.png"]
    assert ranked[0]["nearest"] in ("a.png", "more/e.png")
    assert json.loads(Path("ranking.json").read_text())["labelled"] == 2


def test_a_dataset_elsewhere_counts_and_a_copy_of_its_page_comes_last(run, pages):
    draw_page(Path("data/images/train/known.png"), seed=0)
    draw_page(Path("data/images/train/unlabelled.png"), seed=9)
    label("data/jsons/train.json", "known.png")
    ranked = run("images=pages", "labelled=data", "pages=1", "tasks=null")
    assert sorted(row["page"] for row in ranked) == NAMES
    assert ranked[-1]["page"] == "a.png"
    assert ranked[-1]["nearest"].endswith("known.png")
    assert ranked[-1]["unlike"] == pytest.approx(0, abs=1e-3)
    assert json.loads(Path("ranking.json").read_text())["labelled"] == 1


def test_a_page_is_labelled_under_whatever_path_it_is_given(run, pages):
    label("data/jsons/train.json", *NAMES[:4])
    Path("data/images").mkdir()
    Path("data/images/train").symlink_to(pages)
    assert [row["page"] for row in run("images=pages", "labelled=data", "tasks=null")] == ["more/e.png"]


def test_pages_of_a_pdf_are_chosen_and_labelled_one_by_one(run, pages):
    pytest.importorskip("pypdfium2")
    sheets = [Image.open(pages / "a.png"), Image.open(pages / "c.png")]
    sheets[0].save("pages/scan.pdf", save_all=True, append_images=sheets[1:], resolution=200)
    label("done.json", "scan.pdf#page=2", *NAMES)
    assert [row["page"] for row in run("images=pages", "labelled=done.json", "tasks=null")] == ["scan.pdf#page=1"]


def test_fewer_pages_than_asked_for_are_all_chosen_and_told(run, pages, capsys):
    assert all(row["chosen"] for row in run("images=pages", "tasks=null"))
    assert "20 pages were asked for, and there are 5" in capsys.readouterr().out


def test_a_page_that_cannot_be_read_stops_or_is_left_out_and_listed(run, pages, capsys):
    (pages / "b.jpg").write_bytes(b"nothing")
    with refuses(ImageError, path="pages/b.jpg"):
        run("images=pages", "tasks=null")
    ranked = run("images=pages", "tasks=null", "on_bad_sample=skip")
    assert "b.jpg" not in {row["page"] for row in ranked}
    assert len(ranked) == 4
    assert "skipped" in (shown := capsys.readouterr().out)
    assert "b.jpg" in shown
    for name in NAMES:
        (pages / name).write_bytes(b"nothing")
    with refuses(setting="images", value="pages"):
        run("images=pages", "tasks=null", "on_bad_sample=skip")


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ([], {"setting": "images", "value": None}),
        (["images=empty"], {"setting": None, "path": "empty"}),
        (["images=pages", "--pages", "0"], {"setting": "pages", "value": 0}),
        (["images=pages", "--pages"], {"setting": "--pages"}),
        (["images=pages", "--tasks", "paddle"], {"setting": "--tasks", "value": "paddle"}),
        (["images=pages", "--tasks", "cvatt"], {"setting": "--to", "value": "cvatt"}),
        (["images=pages", "--out", "taken.json"], {"setting": "--out", "path": "taken.json"}),
        (["images=pages", "tasks=null", "--out", "x.json"], {"setting": "tasks", "path": "x.json"}),
        (["images=pages", "labelled=all.json"], {"setting": "labelled", "value": "all.json"}),
        (["images=pages", "labelled=others.json"], {"setting": "labelled", "path": "others.json"}),
        (["images=pages", "labelled=nowhere"], {"kind": AnnotationError, "path": "nowhere"}),
        (["images=pages", "on_bad_sample=maybe"], {"setting": "on_bad_sample", "value": "maybe"}),
        (["images=pages", "checkpoint_path=nowhere.ckpt"], {"setting": None, "path": "nowhere.ckpt"}),
    ],
)
def test_what_cannot_work_is_refused(run, pages, words, fields):
    Path("empty").mkdir()
    label("taken.json", "a.png")
    label("all.json", *NAMES)
    label("others.json", "z.png")
    with refuses(**fields):
        run(*words)
    assert not Path("ranking.json").exists()


def test_labelled_pages_that_are_gone_are_told(run, pages, capsys):
    label("done.json", "a.png", "gone.png")
    assert len(run("images=pages", "labelled=done.json", "tasks=null")) == 4
    assert "1 labelled pages are no files" in " ".join(capsys.readouterr().out.split())


def test_options_become_settings_and_all_else_stays():
    words = ["images=a", "--cfg", "job", "--tasks=cvat", "--out", "it's.xml", "--pages", "3"]
    assert job._as_settings(words) == ["images=a", "--cfg", "job", "tasks='cvat'", "out='it\\'s.xml'", "pages=3"]
    with rejects(ConfigError, setting="--out"):
        job._as_settings(["--out"])
