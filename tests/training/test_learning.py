"""What is learnt: the same in mixed precision and on two devices, and used by test and predict."""

import csv
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bars import BARS, SIDE, write_bars
from omegaconf import DictConfig
from PIL import Image
from ports import free_port
from rejection import rejects
from rich.console import Console
from test_training import settings

from ocr.errors import ConfigError
from ocr.jobs.predict import PredictSettings, predict
from ocr.jobs.test import test as score
from ocr.jobs.train import train
from ocr.models.load import load_detector, write_settings

ROOT = Path(__file__).resolve().parents[2]
LEARN = (
    f"transforms.size={SIDE}",
    "model.channels=64",
    "targets.shrink_ratio=0.6",
    "trainer.max_epochs=10",
    "trainer.check_val_every_n_epoch=10",
    "dataloaders.train_dataloader.batch_size=4",
    "optimizer.lr=0.004",
    "callbacks.ema.decay=0.9",
    "callbacks.drawings=null",
    "transforms.train_transform.transforms=[${transforms.letterbox},${transforms.normalization}]",
)


@pytest.fixture(scope="module")
def bars(tmp_path_factory) -> Path:
    return write_bars(tmp_path_factory.mktemp("bars") / "data")


@pytest.fixture(scope="module")
def learnt(bars, tmp_path_factory) -> tuple[Path, float]:
    """A run in full precision: its folder and its H-mean."""
    out = tmp_path_factory.mktemp("learnt")
    return out, train(settings(bars, out, *LEARN), Console(quiet=True))["val/hmean"]


def use(bars: Path, out: Path, learnt: tuple[Path, float], name: str, *overrides: str) -> DictConfig:
    checkpoint = f"checkpoint_path={learnt[0] / 'checkpoints' / 'last.ckpt'}"
    return settings(bars, out, *LEARN, checkpoint, *overrides, name=name)


def test_a_few_epochs_learn_bars(learnt):
    assert learnt[1] > 0.8


def test_mixed_precision_keeps_the_hmean(bars, learnt, tmp_path):
    scores = train(settings(bars, tmp_path, *LEARN, "trainer.precision=bf16-mixed"), Console(quiet=True))
    assert abs(scores["val/hmean"] - learnt[1]) <= 0.02


def test_a_test_gives_the_scores_of_the_validation_and_cleval(bars, learnt, tmp_path):
    shown = Console(record=True, width=200)
    scores = score(use(bars, tmp_path, learnt, "test"), shown)
    assert scores["val/hmean"] == pytest.approx(learnt[1], abs=1e-6)
    assert 0 < scores["val/cleval_det_h"] <= 1
    assert 0 < scores["val/hmean_70"] <= scores["val/hmean"]
    text = shown.export_text()
    assert "hmean" in text
    assert "IoU 0.5" in text
    assert f"{scores['val/hmean_70']:.4f}" in text
    assert f"scoring datasets.test_dataset: 8 pages of {bars}/images/val, words of" in text


def test_a_test_without_annotation_says_to_predict(bars, learnt, tmp_path):
    config = use(bars, tmp_path, learnt, "test", "datasets.test_dataset.annotation_path=null")
    with rejects(ConfigError, setting="datasets.test_dataset.annotation_path"):
        score(config, Console(quiet=True))


def test_predictions_are_on_the_source_page_and_drawn(bars, learnt, tmp_path):
    checkpoint = learnt[0] / "checkpoints" / "last.ckpt"
    given = PredictSettings(str(checkpoint), [str(bars / "images/val")], tmp_path / "found")
    out = predict(given, Console(quiet=True))
    images = json.loads((out / "predictions.json").read_text())["images"]
    truth = json.loads((bars / "jsons" / "val.json").read_text())["images"]
    assert set(images) == set(truth)
    words = [word for page in images.values() for word in page["words"].values()]
    assert len(words) == pytest.approx(8 * BARS, abs=5)
    assert all(0.5 < word["score"] <= 1 for word in words)
    rows = list(csv.DictReader((out / "predictions.csv").open()))
    assert len(rows) == len(words)
    with Image.open(out / "drawn" / "000.png.jpg") as picture:
        assert picture.size == (SIDE, SIDE)


def test_tuning_finds_settings_at_least_as_good_and_writes_them_as_a_new_file(bars, learnt, tmp_path):
    file = Path(shutil.copy(learnt[0] / "checkpoints" / "last.ckpt", tmp_path / "x.ckpt"))
    before = load_detector(file)[1]
    before = replace(before, boxes=before.boxes | {"box_thresh": 0.99})
    write_settings(file, before, file)
    grid = ("grid.thresh=[0.2,0.35]", "grid.box_thresh=[0.5,0.65]", "grid.unclip_ratio=[exact,1.5]")
    written_to = (f"checkpoint_path={file}", "boxes.min_size=2", "tune=true")
    shown = Console(record=True, width=160)
    best = score(use(bars, tmp_path, learnt, "test", *grid, *written_to), shown)
    assert best["hmean"] >= learnt[1] - 1e-6
    assert f"{best['hmean']:.4f}" in shown.export_text()
    after = load_detector(tmp_path / "x.tuned.ckpt")[1]
    assert (after.letterbox, after.provenance.data) == (before.letterbox, before.provenance.data)
    assert (after.boxes["min_size"], after.provenance.scores) == (2, best)
    assert load_detector(file)[1] == before
    shown = Console(record=True, width=300)
    worse = ("grid.thresh=[0.9]", "grid.box_thresh=[0.95]", f"checkpoint_path={tmp_path / 'x.tuned.ckpt'}")
    score(use(bars, tmp_path, learnt, "test", *worse, "tune=true"), shown)
    assert "nothing is written" in shown.export_text()
    assert not (tmp_path / "x.tuned.tuned.ckpt").exists()


@pytest.mark.slow
def test_two_devices_train_and_validate_with_the_scores_of_one(bars, tmp_path):
    # Seven validation pages: the ranks have unequal shares, and nothing may be lost or repeated.
    file = bars / "jsons" / "val.json"
    whole = file.read_text()
    pages = json.loads(whole)["images"]
    short = tmp_path / "val.json"
    short.write_text(json.dumps({"images": dict(list(pages.items())[:7])}))
    overrides = [
        *LEARN,
        f"datasets.val_dataset.annotation_path={short}",
        f"datasets.test_dataset.annotation_path={short}",
    ]
    from test_training import TINY

    command = [sys.executable, str(ROOT / "runners/train.py"), f"dataset_base_path={bars}", f"output_dir={tmp_path}"]
    command += [*TINY, *overrides, "trainer.devices=2", "trainer.strategy=ddp", f"hydra.run.dir={tmp_path / 'run'}"]
    environment = os.environ | {"MASTER_PORT": str(free_port())}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader((tmp_path / "csv" / "version_0" / "metrics.csv").open()))
    hmean = [float(row["val/hmean"]) for row in rows if row.get("val/hmean")][-1]
    assert hmean > 0.3
    listed = [row["page"] for row in json.loads((tmp_path / "worst_pages.json").read_text())]
    assert sorted(listed) == sorted(list(pages)[:7])
    config = settings(
        bars, tmp_path / "one", *overrides, f"checkpoint_path={tmp_path}/checkpoints/last.ckpt", name="test"
    )
    assert score(config, Console(quiet=True))["val/hmean"] == pytest.approx(hmean, abs=1e-6)
