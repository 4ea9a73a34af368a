"""What is learnt: the same in mixed precision and on two devices, and used by test, predict and sweep."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from bars import SIDE, write_bars
from omegaconf import DictConfig
from PIL import Image
from rich.console import Console
from test_training import settings

from ocr.errors import ConfigError
from ocr.jobs.predict import predict
from ocr.jobs.sweep import sweep
from ocr.jobs.test import test as score
from ocr.jobs.train import train

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
    assert "hmean" in shown.export_text()


def test_a_test_without_annotation_says_to_predict(bars, learnt, tmp_path):
    config = use(bars, tmp_path, learnt, "test", "datasets.test_dataset.annotation_path=null")
    with pytest.raises(ConfigError, match=r"test_dataset\.annotation_path is null.*ocr predict"):
        score(config, Console(quiet=True))


def test_predictions_are_on_the_source_page_and_drawn(bars, learnt, tmp_path):
    config = use(bars, tmp_path, learnt, "predict", f"images={bars / 'images/val'}", f"out={tmp_path / 'found'}")
    out = predict(config, Console(quiet=True))
    images = json.loads((out / "predictions.json").read_text())["images"]
    truth = json.loads((bars / "jsons" / "val.json").read_text())["images"]
    assert set(images) == set(truth)
    words = [word for page in images.values() for word in page["words"].values()]
    assert len(words) == pytest.approx(48, abs=10)
    assert all(0.5 < word["score"] <= 1 for word in words)
    rows = list(csv.DictReader((out / "predictions.csv").open()))
    assert len(rows) == len(words)
    with Image.open(out / "drawn" / "000.jpg") as picture:
        assert picture.size == (SIDE, SIDE)


def test_predicting_without_a_folder_or_checkpoint_names_the_setting(bars, learnt, tmp_path):
    with pytest.raises(ConfigError, match="images is not set"):
        predict(use(bars, tmp_path, learnt, "predict"), Console(quiet=True))
    with pytest.raises(ConfigError, match="checkpoint_path is not set"):
        predict(settings(bars, tmp_path, *LEARN, f"images={bars}", name="predict"), Console(quiet=True))


def test_a_sweep_finds_settings_at_least_as_good_and_writes_them_down(bars, learnt, tmp_path):
    config = use(bars, tmp_path, learnt, "sweep", "grid.thresh=[0.2,0.3]", "grid.box_thresh=[0.5,0.6]")
    best = sweep(config, Console(quiet=True))
    assert best["hmean"] >= learnt[1] - 1e-6
    written = yaml.safe_load((tmp_path / "boxes.yaml").read_text())["boxes"]
    assert written == {name: best[name] for name in ("thresh", "box_thresh", "unclip_ratio")}
    with Image.open(tmp_path / "sweep.png") as picture:
        assert picture.width > 500
    with pytest.raises(ConfigError, match="needs at least one value"):
        sweep(use(bars, tmp_path, learnt, "sweep", "grid.thresh=[]"), Console(quiet=True))


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader((tmp_path / "csv" / "version_0" / "metrics.csv").open()))
    hmean = [float(row["val/hmean"]) for row in rows if row.get("val/hmean")][-1]
    assert hmean > 0.3
    config = settings(
        bars, tmp_path / "one", *overrides, f"checkpoint_path={tmp_path}/checkpoints/last.ckpt", name="test"
    )
    assert score(config, Console(quiet=True))["val/hmean"] == pytest.approx(hmean, abs=1e-6)
