"""Training and scores with DALI: the documented command runs, and a checkpoint has one H-mean with both loaders."""

import json
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rich.console import Console
from test_dali_loader import needs_dali

from ocr.jobs.test import test as score
from ocr.jobs.train import train

pytestmark = needs_dali
ROOT = Path(__file__).resolve().parents[2]
SIDE = 256
SMALL = (
    "model=lite",
    f"transforms.size={SIDE}",
    "model.channels=64",
    "targets.shrink_ratio=0.6",
    "data.num_workers=0",
    "dataloaders.train_dataloader.batch_size=4",
    "dataloaders.val_dataloader.batch_size=4",
    "dataloaders.test_dataloader.batch_size=4",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "+trainer.enable_progress_bar=false",
    "callbacks.progress=null",
    "callbacks.drawings=null",
    "logger.tensorboard=null",
)
# The training that tests/lightning_modules/test_learning.py measures, on pages of twice the size.
LEARN = (
    "trainer.max_epochs=10",
    "trainer.check_val_every_n_epoch=10",
    "optimizer.lr=0.004",
    "callbacks.ema.decay=0.9",
    "transforms.train_transform.transforms=[${transforms.letterbox},${transforms.normalization}]",
)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Torch's threads wait for each other by spinning, which on shared cores takes several times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def bars(tmp_path_factory) -> Path:
    """JPEGs of dark bars on light paper, twice as large as the model sees them, so that our decoder reduces them."""
    folder = tmp_path_factory.mktemp("bars")
    rng = np.random.default_rng(0)
    for split, count in (("train", 32), ("val", 12)):
        (folder / "images" / split).mkdir(parents=True)
        (folder / "jsons").mkdir(exist_ok=True)
        pages = {}
        for number in range(count):
            page = rng.integers(200, 256, (2 * SIDE, 2 * SIDE), dtype=np.uint8)
            words = {}
            for line in range(6):
                left, top = rng.integers(16, 160), 24 + 80 * line + rng.integers(0, 16)
                right, bottom = left + rng.integers(140, 320), top + rng.integers(32, 48)
                page[top:bottom, left:right] = rng.integers(0, 90, (bottom - top, right - left))
                corners = [[left, top], [right, top], [right, bottom], [left, bottom]]
                words[str(line)] = {"points": [[int(x), int(y)] for x, y in corners]}
            cv2.imwrite(str(folder / "images" / split / f"{number}.jpg"), page)
            pages[f"{number}.jpg"] = {"words": words}
        (folder / "jsons" / f"{split}.json").write_text(json.dumps({"images": pages}))
    return folder


def settings(data: Path, out: Path, *overrides: str, name: str = "train") -> DictConfig:
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        return compose(name, [f"dataset_base_path={data}", f"output_dir={out}", *SMALL, *overrides])


@pytest.mark.slow
def test_one_checkpoint_has_the_same_hmean_with_both_loaders(bars, tmp_path):
    learnt = train(settings(bars, tmp_path / "run", *LEARN, "use_dali=true"), Console(quiet=True))["val/hmean"]
    assert learnt > 0.8
    checkpoint = f"checkpoint_path={tmp_path / 'run' / 'checkpoints' / 'last.ckpt'}"
    for decode in ("decode.scaled=auto", "decode.scaled=off"):
        hmeans = [
            score(settings(bars, tmp_path, checkpoint, decode, use, name="test"), Console(quiet=True))["val/hmean"]
            for use in ("use_dali=false", "use_dali=true")
        ]
        assert hmeans[0] > 0.8
        assert abs(hmeans[0] - hmeans[1]) <= 0.002


def test_it_trains_and_validates(synthetic, tmp_path):
    small = ("transforms.size=64", "trainer.max_epochs=1", "trainer.limit_train_batches=2", "use_dali=true")
    scores = train(settings(synthetic, tmp_path, *small), Console(quiet=True))
    assert 0 <= scores["val/hmean"] <= 1
    assert (tmp_path / "checkpoints" / "last.ckpt").is_file()
