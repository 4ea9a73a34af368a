"""File names that mean something to a terminal, a spreadsheet or a walk through folders are names and nothing else."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rich.console import Console
from typer.testing import CliRunner

from ocr.cli import app
from ocr.jobs.predict import PredictSettings, predict
from ocr.jobs.test import test as score
from ocr.jobs.train import train

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
FOLDER = "x[/y]"
NAMES = ["=1+1[/z].jpg", "[/red]bad.jpg", "@[b].jpg"]
SMALL = (
    "model=lite",
    "model.channels=8",
    "transforms.size=64",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.max_epochs=1",
    "dataloaders.train_dataloader.batch_size=2",
    "callbacks.progress=null",
    "logger.tensorboard=null",
    "data.cache=off",
    "on_bad_sample=skip",
    *(f"dataloaders.{split}_dataloader.num_workers=0" for split in ("train", "val", "test")),
)


@pytest.fixture(scope="module")
def data(synthetic, tmp_path_factory) -> Path:
    """Three pages per split with hostile names, the second unreadable, and a link that leads back."""
    data = tmp_path_factory.mktemp("hostile") / FOLDER
    for split in ("train", "val"):
        images = data / "images" / split
        images.mkdir(parents=True)
        (images / "loop").symlink_to(images)
        words = json.loads((synthetic / "jsons" / f"{split}.json").read_text())["images"]
        pages = dict(zip(NAMES, sorted(words), strict=False))
        for name, page in pages.items():
            (images / name).parent.mkdir(exist_ok=True)
            shutil.copy(synthetic / "images" / split / page, images / name)
        (images / NAMES[1]).write_bytes(b"nothing")
        (data / "jsons").mkdir(exist_ok=True)
        (data / "jsons" / f"{split}.json").write_text(
            json.dumps({"images": {name: words[page] for name, page in pages.items()}})
        )
    return data


def settings(name: str, data: Path, out: Path, *overrides: str) -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose(name, [*SMALL, *overrides])
    config.dataset_base_path, config.output_dir = str(data), str(out)
    return config


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory) -> tuple[Path, str]:
    """A checkpoint, and what the training showed."""
    out = tmp_path_factory.mktemp("run") / FOLDER
    shown = Console(record=True, width=300)
    train(settings("train", data, out), shown)
    return out / "checkpoints" / "best.ckpt", shown.export_text()


def test_a_training_ends_and_names_its_checkpoint(trained):
    checkpoint, shown = trained
    assert str(checkpoint) in shown.replace("\n", "")


def test_a_test_names_the_page_that_was_skipped(data, trained, tmp_path):
    config = settings("test", data, tmp_path)
    config.checkpoint_path = str(trained[0])
    config.datasets.test_dataset = config.datasets.val_dataset
    shown = Console(record=True, width=300)
    score(config, shown)
    assert f"1 skipped ({NAMES[1]})" in (text := shown.export_text())
    assert f"{FOLDER}/images/val" in "".join(text.split())


def test_predictions_list_each_page_once_and_no_cell_is_a_formula(data, trained, tmp_path):
    boxes = {"thresh": 0.0, "box_thresh": 0.0}
    given = {"out": tmp_path / "[/out]", "on_bad_sample": "skip", "boxes": boxes}
    shown = Console(record=True, width=300)
    out = predict(PredictSettings(str(trained[0]), [str(data / "images/val")], **given), shown)
    assert str(out) in shown.export_text()
    assert sorted(json.loads((out / "predictions.json").read_text())["images"]) == [NAMES[0], NAMES[2]]
    rows = list(csv.reader((out / "predictions.csv").open()))[1:]
    assert {row[0] for row in rows} == {f"'{NAMES[0]}", f"'{NAMES[2]}"}


def test_the_doctor_and_shards_end_with_a_report(data, tmp_path):
    out = tmp_path / "shards[/z]"
    looked = CliRunner().invoke(app, ["doctor", str(data), "--html", str(tmp_path / "[bold].html")])
    assert looked.exit_code == 1, looked.output
    assert "[bold].html" in looked.output.replace("\n", "")
    assert "loop" not in looked.stdout
    converted = CliRunner().invoke(app, ["shards", str(data), str(out), "--on-bad-sample", "skip"])
    assert converted.exit_code == 0, converted.output
    assert NAMES[1] in converted.output
    index = json.loads((out / "val-index.json").read_text())
    assert index["shards"][0]["samples"] == 2
