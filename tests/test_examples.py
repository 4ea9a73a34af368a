"""The programs in examples/ run as their first lines say, and stay short."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Runs an example in this process, which has loaded what takes seconds."""

    def run(name: str, *arguments: object) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
        return capfd.readouterr().out

    return run


def test_a_folder_becomes_a_detector(synthetic, tmp_path, run):
    import torch

    from ocr.models import TextDetector

    printed = run("own_folder", synthetic, "detector.pt", "--epochs", 1, "--size", 96)
    assert re.search(r"H-mean on 6 pages: [01]\.\d{3}", printed)
    stored = torch.load(tmp_path / "detector.pt", weights_only=True)
    TextDetector(**stored["architecture"]).load_state_dict(stored["weights"])


def test_another_training_loop_reads_cached_pages_from_the_second_epoch_on(synthetic, tmp_path, run):
    images, annotation = synthetic / "images" / "train", synthetic / "jsons" / "train.json"
    printed = run("own_loop", images, annotation, "--epochs", 2, "--size", 96).splitlines()
    assert re.fullmatch(r"epoch 1: loss \d+\.\d{3}, 8 of 8 pages cached", printed[-1])


def test_pictures_of_classes_are_cached_and_loaded_like_pages(tmp_path, run):
    import numpy as np
    from PIL import Image

    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(5):
            pixels = draw.integers(0, 256, (40 + number, 60, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    printed = run("any_dataset", tmp_path / "pictures", "--epochs", 2).splitlines()
    assert re.fullmatch(r"epoch 1: loss \d+\.\d{3}; cached\(ImageFolder\): 10 items", printed[-1])


def test_a_config_with_own_settings_trains(synthetic, tmp_path, run):
    fast = ["transforms.size=96", "trainer.max_epochs=1", "dataloaders.train_dataloader.batch_size=4"]
    printed = run("own_config", synthetic, tmp_path / "run", *fast)
    assert "RandomRotate(degrees=5" in printed
    assert (tmp_path / "run" / "checkpoints" / "best.ckpt").is_file()


@pytest.mark.slow
def test_the_demo_ends_with_the_score_the_pages_and_the_advice(tmp_path, run):
    *_, score, pages, advice = run("demo", tmp_path / "demo").splitlines()
    before, after = map(float, re.findall(r"0\.\d{3}", score))
    assert after > before + 0.3
    assert len([*(tmp_path / "demo/found/drawn").iterdir()]) == 24
    assert pages.endswith("demo/found/drawn")
    assert advice.startswith("Advice: ")
    assert "arning" not in (tmp_path / "demo/log.txt").read_text()
