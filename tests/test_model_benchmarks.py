"""The benchmarks that train and deploy detectors run from end to end; the figures of a few steps mean nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from benchmarks.document_parts import END, begin
from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.models.detector import TextDetector
from ocr.models.load import save_detector
from ocr.models.settings import DetectorSettings

ROOT = Path(__file__).resolve().parent.parent
TINY = {"encoder": "test_efficientnet", "channels": 16, "head_channels": 4}
STUDENT = (
    *("model=lite", "model.channels=32", "model.head_channels=16", "transforms.size=64", "data.num_workers=0"),
    *("dataloaders.train_dataloader.batch_size=2", "trainer.accelerator=cpu", "+trainer.enable_progress_bar=false"),
    *("callbacks.progress=null", "logger.tensorboard=null"),
)


@pytest.fixture
def detector_file(tmp_path) -> Path:
    """A detector that was never trained."""
    path = tmp_path / "tiny.safetensors"
    targets = {"shrink_ratio": 0.4, "thresh_min": 0.3, "thresh_max": 0.7}
    save_detector(path, TextDetector(**TINY).eval(), DetectorSettings(TINY, letterbox={"size": 64}, targets=targets))
    return path


def test_the_benchmark_of_deployed_models_measures_one_in_a_process_of_its_own(
    synthetic, detector_file, tmp_path, monkeypatch, capsys
):
    from benchmarks import deploy

    options = ["--data", str(synthetic), "--pages", "2", "--rounds", "1", "--cores", "1"]
    document = tmp_path / "results.md"
    document.write_text(f"{begin(deploy.PART)}\n{END}\n")
    (tmp_path / "pictures").mkdir()
    files = ["--json", str(tmp_path / "found.json"), "--docs", str(document)]
    monkeypatch.setattr(sys, "argv", ["deploy.py", str(detector_file), *options, *files])
    monkeypatch.setattr(deploy, "console", Console(width=160))
    assert deploy.main() == 0
    (row,) = json.loads((tmp_path / "found.json").read_text())
    assert row["name"] == "tiny, torch"
    assert 0 < row["ms"]["1"] < 1000 * row["start_seconds"]
    assert row["file_mb"] == detector_file.stat().st_size / 1e6
    assert row["peak_mb"] > 50
    assert 0 <= row["hmean_70"] <= row["hmean"] <= 1
    assert "2 pages of val" in capsys.readouterr().out
    assert (tmp_path / "pictures/deploy.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"^\| tiny, torch \| \d+ \| 1\.0 x \|", document.read_text(), flags=re.MULTILINE)


def test_the_benchmark_of_distillation_trains_both_students_and_scores_them_beside_the_teacher(
    synthetic, detector_file, tmp_path, monkeypatch
):
    from benchmarks import distil

    document = tmp_path / "training.md"
    document.write_text(f"{begin(distil.PART)}\n{END}\n")
    options = ["--teacher", str(detector_file), "--data", str(synthetic), "--steps", "1", "--rounds", "1"]
    options += ["--pages", "1", "--out", str(tmp_path / "runs"), "--json", str(tmp_path / "found.json")]
    options += ["--seeds", "3", "4", "--docs", str(document)]
    monkeypatch.setattr(sys, "argv", ["distil.py", *options, *(f"--set={setting}" for setting in STUDENT)])
    assert distil.main() == 0
    rows = json.loads((tmp_path / "found.json").read_text())
    assert list(rows) == ["teacher", "without teacher", "with teacher"]
    assert rows["without teacher"]["steps"] == 1
    assert rows["without teacher"]["parameters"] == rows["with teacher"]["parameters"] > rows["teacher"]["parameters"]
    assert [len(row["hmean"]) for row in rows.values()] == [1, 2, 2]
    assert all(0 <= score <= 1 for row in rows.values() for score in (*row["hmean"], *row["hmean_70"]))
    assert re.search(r"^\| with teacher \| 0.3\d M \| .* \(0\.\d+ to 0\.\d+\) \|$", document.read_text(), flags=re.M)
    weights = [path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").glob("*/checkpoints/last.ckpt"))]
    assert len(weights) == 4
    # What is done is not trained again.
    assert distil.main() == 0
    again = [path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").glob("*/checkpoints/last.ckpt"))]
    assert again == weights
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--steps", "2"])
    with pytest.raises(ConfigError, match="has students of other options"):
        distil.main()


def test_the_benchmark_of_training_scores_every_seed_once_and_does_not_train_it_again(synthetic, tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "benchmarks/trained.py"), "--data", str(synthetic), "--out", str(out)]
    command += ["--seeds", "1", "--held-out", "2", "--pages", "2", *(f"--set={setting}" for setting in STUDENT)]
    run = subprocess.run([*command, "--set=trainer.max_epochs=1"], capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    found = json.loads((out / "trained.json").read_text())
    (result,) = found["seeds"]
    trained = set(json.loads((out / "seed-1/train.json").read_text())["images"])
    scored = set(json.loads((out / "seed-1/scored.json").read_text())["images"])
    assert len(trained) == 2
    assert len(result["counts"]) == len(scored) > 0
    assert not trained & scored
    assert len(result["curve"]) == 1
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    document = tmp_path / "results.md"
    document.write_text(f"{begin('trained-few')}\n{END}\n")
    weights = out / "seed-1/run/checkpoints/last.ckpt"
    weights.unlink()
    command += ["--docs", str(document), "--part", "trained-few"]
    again = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert again.returncode == 0, again.stderr
    assert not weights.exists()
    assert f"| H-mean, IoU 0.5 | {result['iou_50']:.4f} |" in document.read_text()
    assert (tmp_path / "pictures/trained-few.png").read_bytes().startswith(b"\x89PNG")


def test_the_ablation_trains_the_recipe_and_reads_its_detector_in_another_way(synthetic, tmp_path, monkeypatch):
    from benchmarks import ablation

    document = tmp_path / "training.md"
    document.write_text(f"before\n{begin(ablation.PART)}\n{END}\nafter\n")
    options = ["--data", str(synthetic), "--out", str(tmp_path / "out"), "--docs", str(document)]
    options += ["--steps=1", "--seeds=3", "--only=unclip", "--set=dataloaders.train_dataloader.batch_size=2"]
    monkeypatch.setattr(sys, "argv", ["ablation.py", *options, "--set=transforms.size=320"])
    assert ablation.main() == 0
    lines = document.read_text().splitlines()
    (recipe,) = (line for line in lines if line.startswith("| the recipe |"))
    (unclip,) = (line for line in lines if line.startswith("| boxes by unclip ratio 1.5"))
    assert recipe.endswith("|  |")
    assert re.search(r"\| [+-]0\.\d{3} \|$", unclip)


def test_every_row_of_the_ablation_changes_the_recipe_and_can_be_composed(synthetic):
    from benchmarks.ablation import RECIPE, TRAINED, settings

    composed = {}
    for name in TRAINED:
        config = compose_training([f"dataset_base_path={synthetic}", *settings(name, 40)])
        composed[name] = OmegaConf.to_yaml(config)
    assert len(set(composed.values())) == len(TRAINED)
    assert "CopyPasteLines" in composed["copy-paste"]
    assert "CopyPasteLines" not in composed[RECIPE]


TINY_TRAINING = (
    *("transforms.size=64", "transforms.window=64", "data.num_workers=0", "trainer.accelerator=cpu"),
    *("dataloaders.train_dataloader.batch_size=2", "dataloaders.train_dataloader.num_workers=0"),
    *("dataloaders.val_dataloader.num_workers=0", "targets.shrink_ratio=0.4"),
)


def test_the_benchmark_of_the_next_page_trains_every_point_once_and_scores_pages_that_none_has_learnt(
    synthetic, detector_file, tmp_path, monkeypatch, capsys
):
    from benchmarks import label_next

    settings = (f"--set={setting}" for setting in (f"weights={detector_file}", *TINY_TRAINING))
    options = ["--data", str(synthetic), "--seeds", "1", "--start", "2", "--add", "1", "--rounds", "2", "--steps", "1"]
    options += ["--every", "4", "--out", str(tmp_path / "runs"), "--plot", str(tmp_path / "curve.png"), *settings]
    monkeypatch.setattr(sys, "argv", ["label_next.py", *options])
    assert label_next.main() == 0
    figures = json.loads((tmp_path / "runs" / "label_next.json").read_text())
    for strategy in ("random", "label-next"):
        assert figures[strategy]["pages"] == [2, 3, 4]
        assert all(0 <= hmean <= 1 for point in figures[strategy]["hmeans"] for hmean in point)
    assert figures["random"]["hmeans"][0] == figures["label-next"]["hmeans"][0]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    points = {file.parent.name: json.loads(file.read_text()) for file in (tmp_path / "runs").rglob("point.json")}
    assert set(points) == {"start", "random_3", "random_4", "label-next_3", "label-next_4"}
    held_out = sorted(json.loads((synthetic / "jsons/train.json").read_text())["images"])[::4]
    for point in points.values():
        assert len(set(point["pages"])) == len(point["pages"])
        assert not {*point["pages"], *point["next"]} & set(held_out)
    assert points["label-next_3"]["pages"] == [*points["start"]["pages"], *points["start"]["next"]]
    # Again: nothing is trained, and points of other settings are not mixed in.
    monkeypatch.setattr(label_next, "train", None)
    document = tmp_path / "labels.md"
    document.write_text(f"{begin(label_next.PART)}\n{END}\n")
    (tmp_path / "pictures").mkdir()
    monkeypatch.setattr(sys, "argv", ["label_next.py", *options, "--docs", str(document)])
    assert label_next.main() == 0
    assert len(re.findall(r"^\| \d \| \d+ \| 0\.\d{3} \(", document.read_text(), flags=re.MULTILINE)) == 3
    assert (tmp_path / "pictures/label_next.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(sys, "argv", ["label_next.py", *options, "--steps", "2"])
    with pytest.raises(ConfigError, match="is of another run: give another folder with --out"):
        label_next.main()


def test_the_benchmark_of_scores_shows_those_of_a_detector_its_causes_and_its_boxes(
    synthetic, detector_file, monkeypatch, capsys
):
    from benchmarks import scored

    options = ["--data", str(synthetic), "--model", str(detector_file)]
    monkeypatch.setattr(scored, "console", Console(width=200))
    monkeypatch.setattr(sys, "argv", ["scored.py", *options, "--causes"])
    assert scored.main() == 0
    shown = capsys.readouterr().out
    assert re.search(r"6 pages of val, [\d,]+ labels", shown)
    for name in ("IoU 0.5", "IoU 0.7", "CLEval"):
        assert len(re.findall(rf"{name} .*(?:0\.\d{{3}}.*){{3}}", shown)) == 1
    assert "why, and points of H-mean if it were cured" in shown
    hmeans = {("1.5", True): 0.4, ("1.5", False): 0.3, ("exact", True): 0.8, ("exact", False): 0.6}
    scored.show_boxes({key: {"iou_50": {"hmean": h}, "iou_70": {"hmean": h - 0.1}} for key, h in hmeans.items()})
    assert re.search(r"exact\D+0\.800 / 0\.700\D+0\.600 / 0\.500", capsys.readouterr().out)


def curve(*hmeans: float) -> dict:
    pages = [20 + 10 * at for at in range(len(hmeans))]
    return {"pages": pages, "words": [50 * count for count in pages], "hmeans": [[hmean] for hmean in hmeans]}


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ((0.5, 0.7, 0.8), "with 62% of the pages and 62% of the labelled text: the goal of 70% is met"),
        ((0.5, 0.55, 0.6), "with 100% of the pages and 100% of the labelled text: the goal of 70% is not met"),
        ((0.5, 0.52, 0.54), "label-next does not reach the H-mean of 40 random pages (0.6000)"),
    ],
)
def test_the_verdict_on_the_next_page_counts_labels_up_to_the_same_hmean(chosen, told):
    from benchmarks.label_next import verdict

    assert told in verdict({"random": curve(0.5, 0.55, 0.6), "label-next": curve(*chosen)})
