"""The benchmark of whole epochs runs from end to end; its figures on a few small pages mean nothing."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from benchmarks import any_loader
from benchmarks.document_parts import END, begin
from benchmarks.measure import Goal, copy_seconds
from benchmarks.peer_loaders import Peer
from benchmarks.peer_process import PeerError, make_environment
from benchmarks.peer_report import PART, PICTURES
from benchmarks.reference import ReferenceDataset, compare_batches, random_transform, reference_collate
from ocr.errors import ConfigError
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


def run_epochs(data: Path, folder: Path) -> tuple[dict, str]:
    """What one short run writes to its file, and what it shows."""
    file = folder / "figures.json"
    options = ["--rounds", "1", "--size", "96", "--batch-size", "4", "--json", str(file)]
    command = [sys.executable, str(ROOT / "benchmarks" / "epochs.py"), "--data", str(data), *options]
    environment = {**os.environ, "TMPDIR": str(folder), "COLUMNS": "80"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert run.returncode == 0, run.stderr
    return json.loads(file.read_text()), run.stdout


def test_the_benchmark_of_epochs_shows_every_figure_and_leaves_no_cache_behind(synthetic, tmp_path):
    figures, shown = run_epochs(synthetic, tmp_path)
    targets = [goal["target"] for goal in figures["goals"] if goal["target"]]
    assert sorted(targets) == [1, 1.25, 2, 5, 6, 10, 10, 20, 100]
    for goal in figures["goals"]:
        assert len(goal["figures"]) == 2
        assert all(map(math.isfinite, goal["figures"])), goal
    assert all(seconds > 0 for rounds in figures["rounds"].values() for seconds in rounds)
    assert figures["bytes"]["float"]["epoch"] == 6 * 96 * 96 * (3 * 4 + 2 * 4 + 2)
    assert figures["bytes"]["uint8"]["epoch"] == 6 * 96 * 96 * (3 + 2 * 4 + 2)
    assert "6 of 6 float pages equal the reference's, bit for bit" in " ".join(shown.split())
    assert shown.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["figures.json"]


def test_a_goal_is_met_up_to_its_target():
    least, most = (Goal("", "", ["", ""], [5.0, 4.9], 5, at_most=at_most) for at_most in (False, True))
    assert (least.is_met(0), least.is_met(1)) == (True, False)
    assert (most.is_met(0), most.is_met(1)) == (True, True)
    assert not Goal("", "", [""], [5.1], 5, at_most=True).is_met(0)


def test_every_byte_is_copied_when_copying_is_measured():
    source, target = np.arange(10, dtype=np.uint8), np.zeros(4, dtype=np.uint8)
    copy_seconds(source, target)
    assert target.tolist() == [8, 9, 6, 7]


def test_the_reference_keeps_its_items_where_asked(synthetic):
    paths = synthetic / "images" / "val", synthetic / "jsons" / "val.json"
    kept, plain = ReferenceDataset(*paths, 96, keep_items=True), ReferenceDataset(*paths, 96)
    assert kept[0] is kept[0]
    assert plain[0] is not plain[0]
    assert torch.equal(kept[0]["image"], plain[0]["image"])


def test_the_reference_augments_pages_anew_and_drops_words_off_the_page(synthetic):
    dataset = ReferenceDataset(
        synthetic / "images" / "train", synthetic / "jsons" / "train.json", transform=random_transform(96)
    )
    once, again = ([dataset[index] for index in range(len(dataset))] for _ in range(2))
    assert not all(torch.equal(one["image"], other["image"]) for one, other in zip(once, again, strict=True))
    for item in once:
        assert item["image"].shape == (3, 96, 96)
        for (polygon,) in item["polygons"]:
            assert (polygon.min(axis=0) < 96).all()
            assert (polygon.max(axis=0) >= 0).all()


def test_batches_of_other_shapes_are_no_comparison(synthetic):
    paths = synthetic / "images" / "val", synthetic / "jsons" / "val.json"
    batch, other = (reference_collate([ReferenceDataset(*paths, size)[0]]) for size in (96, 64))
    assert compare_batches([batch], [batch]).startswith("1 of 1 float pages equal")
    with pytest.raises(ValueError, match="images"):
        compare_batches([batch], [other])


def test_the_benchmark_of_one_pass_compares_its_pages_with_opencv(synthetic, tmp_path):
    options = ["--data", str(synthetic), "--rounds", "1", "--size", "96", "--batch-size", "4"]
    command = [sys.executable, str(ROOT / "benchmarks" / "one_pass.py"), *options]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "160"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert run.returncode == 0, run.stderr
    found = re.search(r"of (\d+); (\d\.\d+) on average", " ".join(run.stdout.split()))
    assert found is not None, run.stdout
    assert int(found[1]) == 8 * 96 * 96 * 3
    assert 0 < float(found[2]) < 0.1
    assert list(tmp_path.iterdir()) == []


def test_the_benchmark_of_scale_measures_folders_and_shards(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--pages", "10000", "--json", str(tmp_path / "f")]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=900, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert run.returncode == 0, run.stderr
    figures = json.loads((tmp_path / "f").read_text())
    assert list(figures) == ["folder", "shards"]
    assert all(math.isfinite(figure) for kind in figures.values() for figure in kind["10000"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_the_benchmark_of_the_recipe_scores_the_targets_themselves(synthetic, monkeypatch, capsys):
    from benchmarks import recipe

    options = ["--data", str(synthetic), "--every", "8", "--sizes", "1280", "--ratios", "0.6"]
    monkeypatch.setattr(sys, "argv", ["recipe.py", *options])
    monkeypatch.setattr(recipe, "console", Console(width=100))
    assert recipe.main() == 0
    exact, soft = re.findall(r"([01]\.\d{3})/", capsys.readouterr().out)
    assert float(exact) > 0.9
    assert float(soft) <= float(exact)


def test_the_benchmark_of_shapes_shows_padding_speed_and_memory(synthetic, tmp_path):
    options = ["--data", str(synthetic), "--rounds", "1", "--size", "96", "--batch-size", "3", "--json", "found.json"]
    command = [sys.executable, str(ROOT / "benchmarks" / "shapes.py"), *options]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "160"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    figures = json.loads((tmp_path / "found.json").read_text())
    assert all(0 <= share < 0.5 for share in figures["padding"])
    assert all(1 <= count <= 8 for count in figures["shapes"])
    assert all(ratio > 0 for ratio in figures["speed"])
    assert re.search(r"peak memory of training steps: \d+ MB square, \d+ MB page", run.stdout)


def run_peers(data: Path, folder: Path, *options: str) -> dict:
    """What the benchmark of peers writes to its file."""
    options = ["--data", str(data), "--folder", str(folder), "--rounds", "1", "--size", "96", *options]
    command = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), "--batch-size", "4", "--workers", "1", *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    return json.loads((folder / "figures.json").read_text())


def test_the_benchmark_of_peers_tries_and_measures_each_and_continues_where_it_was(synthetic, tmp_path):
    document = tmp_path / "peers.md"
    document.write_text(f"before\n{begin(PART)}\n{END}\nafter\n")
    run_peers(synthetic, tmp_path / "peers", "--only", "torch")
    figures = run_peers(synthetic, tmp_path / "peers", "--only", "raw", "--docs", str(document))
    assert list(figures["peers"]) == ["raw", "torch"]
    for name, resumes in (("raw", "yes"), ("torch", "no: nothing to save")):
        peer = figures["peers"][name]
        assert "error" not in peer, peer
        trials = peer["trials"]
        assert (trials["resumes"], trials["notices an edit"]) == (resumes, "yes")
        assert trials["survives kill -9"].startswith("yes")
        (measured,) = peer["rounds"]
        epochs = [measured["first_run"]["first"], *measured["first_run"]["later"], *measured["second_run"]["training"]]
        assert [epoch["pages"] for epoch in epochs] == [8] * 6
        assert measured["second_run"]["memory_bytes"] > 1 << 26
    assert figures["peers"]["torch"]["trials"]["gap"] == 0
    assert figures["peers"]["raw"]["rounds"][0]["disk_bytes"] > 8 * 96 * 96 * 3
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert text.count("| GlyphFeed, raw cache |") == 3
    assert all((tmp_path / "pictures" / name).stat().st_size > 1000 for name in PICTURES)
    assert sorted(path.name for path in (tmp_path / "peers").iterdir()) == ["figures.json", "logs"]


def test_figures_of_other_pages_are_not_mixed_with_those_of_a_run(synthetic, tmp_path):
    (tmp_path / "figures.json").write_text(json.dumps({"course": {"pages": 7}, "peers": {}}))
    options = ["--data", str(synthetic), "--folder", str(tmp_path)]
    command = [sys.executable, str(ROOT / "benchmarks" / "peers.py"), *options]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 1
    assert "other pages or settings" in run.stderr
    assert "--folder" in run.stderr


def test_the_benchmark_of_foreign_loaders_names_predicts_and_tries_and_keeps_what_it_measured(tmp_path):
    document = tmp_path / "advisor.md"
    document.write_text(f"before\n{begin(any_loader.PART)}\n{END}\nafter\n")
    options = ["--images", "64", "--items", "4", "--folder", str(tmp_path / "kept"), "--docs", str(document)]
    chosen = [f"--only={name}" for name in ("image-folder", "webdataset")]
    command = [sys.executable, str(ROOT / "benchmarks" / "any_loader.py"), *options]
    # 1: predictions of so few items on a busy machine may be wrong.
    run = subprocess.run([*command, *chosen], capture_output=True, text=True, timeout=900)
    assert run.returncode in (0, 1), run.stderr
    assert "every answer is right" in run.stdout or "wrong: " in run.stdout
    figures = json.loads((tmp_path / "kept" / "figures.json").read_text())
    assert list(figures) == ["image-folder", "webdataset"]
    for name, found in figures.items():
        assert "error" not in found, found
        assert found["bottleneck"] == any_loader.PIPELINES[name].bottleneck
        tried = [one for one, predicted, measured in found["verified"] if predicted > 0 < measured]
        assert tried[0] == "present"
        assert found["best"] is None or found["best"] in tried
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "| torchvision ImageFolder | decoding | the dataset |" in text
    assert "| webdataset | decoding a stream | the loader |" in text


def test_a_peer_that_cannot_be_installed_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    missing = Peer("none", "none", ("no-such-package-of-glyphfeed==0",), "", hint="libnone-dev")
    with pytest.raises(PeerError, match=r"no-such-package-of-glyphfeed.*libnone-dev"):
        make_environment(missing, tmp_path)


def test_the_benchmark_of_deployed_models_measures_one_in_a_process_of_its_own(
    synthetic, detector_file, tmp_path, monkeypatch, capsys
):
    from benchmarks import deploy

    options = ["--data", str(synthetic), "--pages", "2", "--rounds", "1", "--cores", "1"]
    files = ["--json", str(tmp_path / "found.json"), "--plot", str(tmp_path / "found.png")]
    monkeypatch.setattr(sys, "argv", ["deploy.py", str(detector_file), *options, *files])
    monkeypatch.setattr(deploy, "console", Console(width=160))
    assert deploy.main() == 0
    (row,) = json.loads((tmp_path / "found.json").read_text())
    assert row["name"] == "checkpoint, torch"
    assert 0 < row["ms"]["1"] < 1000 * row["start_seconds"]
    assert row["file_mb"] == detector_file.stat().st_size / 1e6
    assert row["peak_mb"] > 50
    assert 0 <= row["hmean_70"] <= row["hmean"] <= 1
    assert "2 pages of val" in capsys.readouterr().out
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_the_benchmark_of_distillation_trains_both_students_and_scores_them_beside_the_teacher(
    synthetic, detector_file, tmp_path, monkeypatch
):
    from benchmarks import distil

    options = ["--teacher", str(detector_file), "--data", str(synthetic), "--steps", "1", "--rounds", "1"]
    options += ["--pages", "1", "--out", str(tmp_path / "runs"), "--json", str(tmp_path / "found.json")]
    monkeypatch.setattr(sys, "argv", ["distil.py", *options, *(f"--set={setting}" for setting in STUDENT)])
    assert distil.main() == 0
    rows = json.loads((tmp_path / "found.json").read_text())
    assert list(rows) == ["teacher", "without teacher", "with teacher"]
    assert rows["without teacher"]["steps"] == 1
    assert rows["without teacher"]["parameters"] == rows["with teacher"]["parameters"] > rows["teacher"]["parameters"]
    assert all(math.isfinite(figure) for row in rows.values() for figure in row.values())
    for student in ("without-teacher", "with-teacher"):
        assert (tmp_path / "runs" / student / "checkpoints" / "last.ckpt").is_file()


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
    weights = out / "seed-1/run/checkpoints/last.ckpt"
    weights.unlink()
    again = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert again.returncode == 0, again.stderr
    assert not weights.exists()


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
    assert label_next.main() == 0
    monkeypatch.setattr(sys, "argv", ["label_next.py", *options, "--steps", "2"])
    with pytest.raises(ConfigError, match="is of another run: give another folder with --out"):
        label_next.main()


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
