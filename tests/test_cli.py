"""The command as a user types it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from ocr.cli import app

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {
    *("albumentations", "cv2", "hydra", "lightning", "matplotlib", "numba", "numpy", "omegaconf", "PIL", "ray"),
    *("scipy", "shapely", "tensorboard", "timm", "torch", "torchmetrics", "torchvision"),
}


def ocr(*arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ocr.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)
    assert done.returncode == expect, done.stdout + done.stderr
    return done


def test_help_answers_without_loading_heavy_libraries():
    code = (
        "import sys, ocr.cli\n"
        "try: ocr.cli.app(['--help'])\n"
        "except SystemExit: pass\n"
        f"heavy = {HEAVY} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def commands(command: Any, *path: str) -> list[tuple[str, ...]]:
    """Every command below a group, as the words of its command line."""
    below = getattr(command, "commands", {}).items()
    return [words for name, one in below for words in commands(one, *path, name)] or [path]


@pytest.mark.parametrize("command", commands(get_command(app)), ids=" ".join)
def test_every_command_has_help_with_examples(command):
    shown = CliRunner().invoke(app, [*command, "--help"]).output
    assert f"Examples: ocr {' '.join(command)}" in " ".join(shown.split())


def test_the_help_groups_the_commands():
    shown = CliRunner().invoke(app, ["--help"]).output
    groups = ("Your data", "Training", "What takes how long", "Preparing ahead")
    places = [shown.index(f"─ {group} ─") for group in groups]
    assert places == sorted(places)
    assert "─ Commands ─" not in shown


def test_init_writes_a_project_that_trains_and_replaces_nothing(tmp_path, monkeypatch):
    from ocr.jobs.compose import compose_training

    folder = tmp_path / "project"
    assert ocr("init", folder).stdout.count("written: ") == 2
    monkeypatch.chdir(folder)
    assert compose_training(["experiment=mine"]).model.encoder == "mobilenetv3_small_050"
    (folder / "README.md").write_text("my own")
    done = ocr("init", folder, expect=2)
    assert "exists, and would be replaced" in done.stderr
    (folder / "configs/experiment/mine.yaml").unlink()
    ocr("init", folder, expect=2)
    assert (folder / "README.md").read_text() == "my own"
    assert not (folder / "configs/experiment/mine.yaml").exists()


def test_train_is_the_job_itself_and_ends_with_its_exit_status():
    done = ocr("train", "model=litee", expect=2)
    assert done.stderr.startswith("error: model=litee: did you mean lite?")
    assert done.stderr.count("\n") == 1


def test_the_version_is_that_of_the_package():
    from ocr import __version__

    assert ocr("--version").stdout.strip() == f"glyphfeed {__version__}"


def test_synth_then_doctor_then_preview_then_conversion(tmp_path):
    data = tmp_path / "data"
    made = ocr("synth", data, "--train", 2, "--val", 2, "--megapixels", 0.5, 0.6).stdout
    assert made.startswith("4 pages with ")
    report = tmp_path / "report.html"
    assert "Nothing is wrong" in ocr("doctor", data, "--html", report, "--json", tmp_path / "report.json").stdout
    assert "<html" in report.read_text()
    assert json.loads((tmp_path / "report.json").read_text())
    ocr("preview", data, tmp_path / "preview.png", "--pages", 2, "--size", 96, "--split", "train")
    with Image.open(tmp_path / "preview.png") as picture:
        assert picture.size == (3 * 96 + 8, 2 * 96)
    target = tmp_path / "copy.json"
    assert ocr("convert-annotations", data / "jsons/val.json", target).stdout.startswith("native: 2 pages")
    assert json.loads(target.read_text()) == json.loads((data / "jsons/val.json").read_text())


def test_doctor_finds_repairs_and_says_so_with_its_exit_status(dataset_folder, tmp_path):
    file = dataset_folder / "jsons" / "val.json"
    annotation = json.loads(file.read_text())
    next(iter(next(iter(annotation["images"].values()))["words"].values()))["points"] = [[1, 1], [5, 5]]
    file.write_text(json.dumps(annotation))
    before = file.read_bytes()
    done = ocr("doctor", dataset_folder, "--json", "-", "--fix", tmp_path / "fixed", expect=1)
    assert "bad-points" in json.dumps(json.loads(done.stdout))
    assert file.read_bytes() == before
    ocr("doctor", tmp_path / "fixed")


def test_a_known_error_is_one_line_and_not_a_traceback(tmp_path):
    done = ocr("preview", tmp_path, tmp_path / "x.png", expect=2)
    assert done.stderr.startswith("error: image_path=")
    assert "Traceback" not in done.stderr
    assert (
        "pages=0 must be an integer >= 1" in ocr("preview", tmp_path, tmp_path / "x.png", "--pages", 0, expect=2).stderr
    )
