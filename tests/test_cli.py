"""The program as a user types it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from ocr import cli

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {
    *("albumentations", "cv2", "hydra", "lightning", "matplotlib", "numba", "numpy", "omegaconf", "PIL", "ray"),
    *("scipy", "shapely", "tensorboard", "timm", "torch", "torchmetrics", "torchvision"),
}


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture
def ocr(monkeypatch, capsys):
    """Runs the whole command in this process."""

    def run(*words: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["glyphfeed", *map(str, words)])
        status: Any = 0
        try:
            cli.main()
        except SystemExit as end:
            status = end.code or 0
        return Done(status, *capsys.readouterr())

    return run


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


@pytest.mark.parametrize("command", commands(get_command(cli.app)), ids=" ".join)
def test_every_command_has_help_with_examples(command):
    shown = CliRunner().invoke(cli.app, [*command, "--help"], prog_name="glyphfeed").output
    assert f"Examples: glyphfeed {' '.join(command)}" in " ".join(shown.split())


def test_the_wording_of_the_help(snapshot):
    group = get_command(cli.app)
    lines = [f"{' '.join(words)}: {_command(group, words).help}" for words in commands(group)]
    snapshot("help", "\n".join([group.help or "", *lines]))


def _command(group: Any, words: tuple[str, ...]) -> Any:
    for word in words:
        group = group.commands[word]
    return group


def test_init_writes_a_project_that_trains_and_replaces_nothing(tmp_path, monkeypatch, ocr):
    from ocr.jobs.compose import compose_training

    folder = tmp_path / "project"
    assert ocr("init", folder).status == 0
    monkeypatch.chdir(folder)
    assert compose_training(["experiment=mine"]).model.encoder == "mobilenetv3_small_050"
    (folder / "README.md").write_text("my own")
    done = ocr("init", folder)
    assert done.status == 2
    assert done.err.startswith(f"error: {folder}/")
    (folder / "configs/experiment/mine.yaml").unlink()
    assert ocr("init", folder).status == 2
    assert (folder / "README.md").read_text() == "my own"
    assert not (folder / "configs/experiment/mine.yaml").exists()


def test_train_becomes_the_job_and_ends_with_its_exit_status():
    command = [sys.executable, "-m", "ocr", "train", "model=litee"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("error: model=litee")
    assert done.stderr.count("\n") == 1


def test_the_version_is_the_version_of_the_package(ocr):
    from ocr import __version__

    assert ocr("--version").out.strip() == f"glyphfeed {__version__}"


def test_synth_then_doctor_then_preview_then_annotations(tmp_path, ocr):
    data = tmp_path / "data"
    size = ["--megapixels", 0.3, 0.4, "--workers", 1]
    assert ocr("synth", data, "--train", 2, "--val", 2, *size).out.startswith("4 pages with ")
    report = tmp_path / "report.html"
    assert ocr("doctor", data, "--html", report, "--json", tmp_path / "report.json").status == 0
    assert "<html" in report.read_text()
    assert json.loads((tmp_path / "report.json").read_text())
    assert (
        ocr("preview", data, "--out", tmp_path / "preview.png", "--limit", 2, "--set", "transforms.size=96").status == 0
    )
    with Image.open(tmp_path / "preview.png") as picture:
        assert picture.size[1] == 2 * 96 + 4
    target = tmp_path / "copy.json"
    assert ocr("annotations", data / "jsons/val.json", target).out.startswith("native: 2 pages")
    assert json.loads(target.read_text()) == json.loads((data / "jsons/val.json").read_text())


def test_doctor_finds_repairs_and_says_so_with_its_exit_status(dataset_folder, tmp_path, ocr):
    file = dataset_folder / "jsons" / "val.json"
    annotation = json.loads(file.read_text())
    next(iter(next(iter(annotation["images"].values()))["words"].values()))["points"] = [[1, 1], [5, 5]]
    file.write_text(json.dumps(annotation))
    before = file.read_bytes()
    done = ocr("doctor", dataset_folder, "--json", "-", "--fix", tmp_path / "fixed")
    assert done.status == 1
    assert "bad-points" in json.dumps(json.loads(done.out))
    assert file.read_bytes() == before
    assert ocr("doctor", tmp_path / "fixed").status == 0


def test_a_known_error_is_one_line_with_the_setting_and_not_a_traceback(tmp_path, ocr):
    done = ocr("preview", tmp_path)
    assert done.status == 2
    assert done.err.startswith("error: datasets.val_dataset: image_path=")
    assert done.err.count("\n") == 1
    done = ocr("preview", tmp_path, "--limit", 0)
    assert done.status == 2
    assert done.err.startswith("error: --limit=0 ")
