"""The benchmarks of the data path run from end to end; the figures of a few small pages mean nothing."""

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

from benchmarks.measure import Goal, copy_seconds
from benchmarks.orders import mixing
from benchmarks.reference import ReferenceDataset, compare_batches, random_transform, reference_collate
from ocr.loader.order import block_order, epoch_order

ROOT = Path(__file__).resolve().parent.parent


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


def test_a_shuffle_mixes_all_pages_and_blocks_keep_neighbours_together():
    shuffled, blocks = (mixing(make(20_000, 0, 0, True), 16) for make in (epoch_order, block_order))
    in_order = mixing(epoch_order(20_000, 0, 0, False), 16)
    spread, neighbours, variance, far = shuffled
    assert shuffled[spread] > 15.5 > blocks[spread] > 8 > in_order[spread] == 1
    assert shuffled[neighbours] < 0.1 < blocks[neighbours] < 2 < in_order[neighbours] == 15
    assert abs(shuffled[variance] - 1) < 0.2 < blocks[variance]
    assert shuffled[far] > blocks[far] > in_order[far] == 0
