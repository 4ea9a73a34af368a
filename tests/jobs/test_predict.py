"""glyphfeed predict: any pages in, the formats of the command out, and on again where it stopped."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from locked_pdf import LOCKED_PDF
from PIL import Image
from refusal import ends_well, refuses
from rejection import rejects

from ocr import Detector, cli
from ocr.deploy import prediction_log
from ocr.deploy.prediction_log import PredictionLog
from ocr.errors import ConfigError, ImageError, ImageSizeError, MissingExtraError
from ocr.formats.read import read_annotations
from ocr.models.settings import DetectorSettings

ARCHITECTURE = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}


@pytest.fixture
def model(noise_detector) -> Path:
    return noise_detector


@pytest.fixture
def pages(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages/more").mkdir(parents=True)
    for number, name in enumerate(("a.png", "b.jpg", "more/c.png")):
        pixels = np.random.default_rng(number).integers(190, 255, (140, 100 + number, 3), dtype=np.uint8)
        for top in range(12, 130, 24):
            pixels[top : top + 9, 10:85] //= 4
        Image.fromarray(pixels).save(tmp_path / "pages" / name)
    return tmp_path / "pages"


@pytest.fixture
def run(model, monkeypatch, capsys):
    def command(*words: str, out: str = "found", stdin: str = "", model: object = model) -> dict:
        """The pages of predictions.json."""
        monkeypatch.setattr(sys, "argv", ["glyphfeed", "predict", str(model), *words, "--out", out])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        ends_well(cli.main)
        return json.loads(Path(out, "predictions.json").read_text())["images"]

    return command


def test_a_folder_gives_what_the_detector_finds_and_draws_it(run, pages, model, capsys):
    found = run("pages")
    assert list(found) == ["a.png", "b.jpg", "more/c.png"]
    alone = Detector.load(model)(pages / "a.png").to_dict()
    del alone["name"]
    assert found["a.png"] == alone
    assert len(alone["words"]) > 1
    words = sum(len(page["words"]) for page in found.values())
    assert f"{words} boxes on 3 pages: found" in capsys.readouterr().out
    with Image.open("found/drawn/more/c.png.jpg") as picture:
        assert picture.size == (102, 140)
    rows = list(csv.DictReader(Path("found/predictions.csv").read_text().splitlines()))
    assert [row["image"] for row in rows[:2]] == ["a.png", "a.png"]
    assert len(rows) == words


def test_files_patterns_lists_and_standard_input_are_named_as_they_are_given(run, pages):
    assert list(run("pages/a.png", out="1")) == ["pages/a.png"]
    assert list(run("pages/**/*.png", out="2")) == ["pages/a.png", "pages/more/c.png"]
    assert list(run("pages/b.jpg", "pages/more", out="3")) == ["pages/b.jpg", "pages/more/c.png"]
    listed = f"{pages}/more/c.png\n\npages/a.png\r\n"
    assert list(run("-", out="4", stdin=listed)) == [f"{pages}/more/c.png", "pages/a.png"]
    assert len(list(Path("4/drawn").rglob("*.jpg"))) == 2
    assert list(run("-", out="5", stdin="pages/a.png\0pages/b.jpg\0")) == [
        "pages/a.png",
        "pages/b.jpg",
    ]


def test_every_page_of_a_pdf_has_its_number(run, pages):
    pytest.importorskip("pypdfium2")
    sheets = [Image.open(pages / "a.png"), Image.open(pages / "b.jpg")]
    sheets[0].save("pages/scan.pdf", save_all=True, append_images=sheets[1:], resolution=200)
    found = run("pages")
    assert list(found)[-2:] == ["scan.pdf#page=1", "scan.pdf#page=2"]
    assert found["scan.pdf#page=2"]["page"] == 2
    assert Path("found/drawn/scan.pdf#page=2.jpg").is_file()


@pytest.mark.parametrize(("format", "suffix"), [("labelme", "json"), ("pascal_voc", "xml")])
def test_every_page_of_a_pdf_has_a_file_of_its_own(run, pages, format, suffix):
    pytest.importorskip("pypdfium2")
    sheets = [Image.open(pages / "a.png"), Image.open(pages / "b.jpg")]
    sheets[0].save("pages/scan.pdf", save_all=True, append_images=sheets[1:], resolution=200)
    found = run("pages", "--format", "json", "--format", format, "--no-draw")
    folder = Path(f"found/predictions.{format}")
    files = ("a", "b", "more/c", "scan.pdf#page=1", "scan.pdf#page=2")
    assert {file for file in folder.rglob("*") if file.is_file()} == {folder / f"{name}.{suffix}" for name in files}
    for number in (1, 2):
        name = f"scan.pdf#page={number}"
        read = read_annotations(folder / f"{name}.{suffix}")
        assert {page: len(entry.words) for page, entry in read.pages.items()} == {name: len(found[name]["words"])}


def test_other_formats_are_read_back_as_annotations(run, pages):
    found = run(
        "pages",
        "--format",
        "json",
        "--format",
        "coco",
        "--format",
        "paddle",
        "--format",
        "label_studio",
        "--format",
        "labelme",
        "--no-draw",
    )
    files = {"coco": ".coco.json", "paddle": ".paddle.txt", "native": ".json", "labelme": ".labelme/a.json"}
    for format, name in files.items():
        read = read_annotations(Path(f"found/predictions{name}"))
        assert read.format == format
        if format == "labelme":
            assert len(read.pages["a.png"].words) == len(found["a.png"]["words"])
            continue
        assert {page: len(entry.words) for page, entry in read.pages.items()} == {
            page: len(entry["words"]) for page, entry in found.items()
        }
        assert read.pages["b.jpg"].words[0].points == found["b.jpg"]["words"]["0001"]["points"]
    coco = json.loads(Path("found/predictions.coco.json").read_text())
    first = coco["annotations"][0]
    assert first["score"] == found["a.png"]["words"]["0001"]["score"]
    xs, ys = np.array(found["a.png"]["words"]["0001"]["points"]).T
    assert first["bbox"] == pytest.approx([xs.min(), ys.min(), np.ptp(xs), np.ptp(ys)], abs=0.01)
    tasks = json.loads(Path("found/predictions.label_studio.json").read_text())
    assert len(tasks) == 3
    assert tasks[0]["predictions"][0]["score"] > 0
    assert not Path("found/predictions.csv").exists()
    assert not Path("found/drawn").exists()


class TestResuming:
    @pytest.fixture
    def seen(self, monkeypatch):
        """Names of the pages that are decoded."""
        names = []
        original = Detector.prepare

        def prepare(self, page):
            names.append(Path(page.name).name)
            return original(self, page)

        monkeypatch.setattr(Detector, "prepare", prepare)
        return names

    def test_pages_that_are_there_are_not_done_again_unless_their_file_changed(self, run, pages, seen, capsys):
        first = run("pages")
        seen.clear()
        assert run("pages") == first
        assert seen == []
        assert "all 3 pages were there" in capsys.readouterr().out
        Image.open(pages / "b.jpg").rotate(90, expand=True).save(pages / "a.png")
        Image.open(pages / "b.jpg").save(pages / "z.png")
        again = run("pages")
        assert sorted(seen) == ["a.png", "z.png"]
        assert list(again) == [*first, "z.png"]
        assert again["a.png"] != first["a.png"]
        assert again["b.jpg"] == first["b.jpg"]

    def test_an_interrupted_run_leaves_its_pages_and_the_next_goes_on(self, run, pages, seen, monkeypatch, capsys):
        whole = run("pages", out="whole")
        add = PredictionLog.add

        def interrupted(self, name, stamp, page):
            if name == "b.jpg":
                raise KeyboardInterrupt
            add(self, name, stamp, page)

        with monkeypatch.context() as patched:
            patched.setattr(PredictionLog, "add", interrupted)
            with pytest.raises(SystemExit) as ended:
                run("pages", "--batch-size", "1")
        assert ended.value.code == 130
        assert "resumes here" in capsys.readouterr().err
        assert list(json.loads(Path("found/predictions.json").read_text())["images"]) == ["a.png"]
        seen.clear()
        assert run("pages") == whole
        assert sorted(seen) == ["b.jpg", "c.png"]

    def test_a_killed_run_leaves_part_of_a_line_which_is_cut_off(self, run, pages, seen):
        whole = run("pages")
        log = Path("found", prediction_log.NAME)
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:2]) + lines[2][: len(lines[2]) // 2])
        Path("found/predictions.json").unlink()
        seen.clear()
        assert run("pages") == whole
        assert sorted(seen) == ["b.jpg", "c.png"]
        log.write_bytes(lines[0][:10])
        assert run("pages") == whole

    def test_predictions_of_other_settings_are_not_mixed_or_replaced_unless_asked(self, run, pages):
        first = run("pages")
        with refuses(setting="out", value=["boxes", "tile"], path="found"):
            run("pages", "--box-thresh", "0.9", "--tile", "off")
        with refuses(setting="out", value=["images"], path="found"):
            run("pages/more")
        assert run("pages", "--box-thresh", "0.9", "--overwrite") != first

    def test_two_runs_do_not_write_into_one_folder(self, tmp_path):
        with PredictionLog(tmp_path, {}), rejects(ConfigError, setting="out", path=tmp_path):
            PredictionLog(tmp_path, {})


class TestRefused:
    @pytest.mark.parametrize(
        ("words", "fields"),
        [
            (["empty"], {"path": "empty"}),
            (["nothing/*.jpg"], {"path": "nothing/*.jpg"}),
            (["-"], {"setting": "PAGES", "value": "-"}),
            (["-", "pages"], {"setting": "PAGES", "value": ["-", "pages"]}),
            (["pages", "--format", "cocoa"], {"setting": "formats", "value": "cocoa"}),
            (
                ["pages", "--max-pixels", "100"],
                {"kind": ImageSizeError, "setting": "decode.max_pixels", "value": (100, 140), "path": "pages/a.png"},
            ),
        ],
    )
    def test_a_setting_that_cannot_work(self, run, pages, words, fields):
        Path("empty").mkdir()
        with refuses(**fields):
            run(*words)

    def test_an_encrypted_pdf_asks_to_remove_its_password_or_is_skipped(self, run, pages, capsys):
        pytest.importorskip("pypdfium2")
        Path("pages/locked.pdf").write_bytes(LOCKED_PDF)
        with refuses(ImageError, path="pages/locked.pdf"):
            run("pages")
        assert len(run("pages", "--skip-bad")) == 3
        assert "1 pages skipped" in (shown := capsys.readouterr().out)
        assert "locked.pdf" in shown

    def test_a_file_that_is_no_model_one_of_another_version_and_none_at_all(self, run, pages, monkeypatch):
        for name in ("text.ckpt", "text.safetensors"):
            Path(name).write_text("no model")
            with refuses(setting="model", path=name):
                run("pages", model=name)
        settings = DetectorSettings(ARCHITECTURE).to_dict() | {"format": 99}
        from safetensors.torch import save_file

        save_file({"a": torch.zeros(1)}, "newer.safetensors", {"glyphfeed": json.dumps(settings)})
        with refuses(setting="format", value=99, path="newer.safetensors"):
            run("pages", model="newer.safetensors")
        with refuses(setting=None, path="nowhere.onnx"):
            run("pages", model="nowhere.onnx")
        from ocr.models import packaged

        monkeypatch.setattr(packaged, "PACKAGED", Path("nowhere/glyphfeed.safetensors"))
        with refuses(setting="weights", path="nowhere/glyphfeed.safetensors"):
            run("pages", model="glyphfeed")

    def test_a_runtime_that_is_not_installed_names_its_extra(self, run, pages, monkeypatch):
        Path("model.onnx").write_bytes(b"")
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with refuses(MissingExtraError, setting="export", value="onnxruntime"):
            run("pages", model="model.onnx")


def test_wording_of_a_prediction(run, pages, monkeypatch, capsys, snapshot):
    """What the terminal shows: a first run, one that resumes, and one that skips a page."""
    monkeypatch.setenv("COLUMNS", "100")
    run("pages", out="pages/found")
    run("pages", out="pages/found")
    (pages / "a.png").write_bytes(b"damaged")
    run("pages", "--skip-bad", out="pages/found")
    # How many boxes an untrained model finds depends on the machine.
    snapshot("predict", re.sub(r"\d+ boxes", "N boxes", capsys.readouterr().out))
