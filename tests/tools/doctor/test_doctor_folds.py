"""`ocr doctor --folds`: each page is judged by a detector that has not seen its labels; the work is not done twice."""

import json
from pathlib import Path

import pytest
from doctor_data import SmallDataset
from rejection import rejects
from rich.console import Console

from ocr.errors import ConfigError
from ocr.tools.doctor import examine
from ocr.tools.doctor.folds import FINISHED, _assign, cross_fit
from ocr.tools.doctor.labels import add_suspects

SHORT = (
    "trainer.max_epochs=1",
    "trainer.limit_train_batches=1",
    "transforms.size=128",
    "transforms.window=64",
    "targets.shrink_ratio=0.6",
    "transforms.saturation=0",
    "trainer.check_val_every_n_epoch=1",
    "dataloaders.train_dataloader.batch_size=2",
    "trainer.accelerator=cpu",
    "logger.tensorboard=null",
    "callbacks.progress=null",
    "+trainer.enable_progress_bar=false",
)


def test_every_page_is_in_one_fold_and_folds_are_of_one_size() -> None:
    names = [f"{number}.jpg" for number in range(11)]
    folds = _assign(names, 3)
    assert sorted(name for fold in folds for name in fold) == sorted(names)
    assert sorted(map(len, folds)) == [3, 4, 4]
    assert folds == _assign(names, 3)
    assert folds[0] != names[0::3]


@pytest.mark.slow
def test_folds_share_no_page_and_are_trained_once(synthetic: Path, tmp_path: Path) -> None:
    report = examine(synthetic, splits=["val"], show_progress=False)
    console = Console(record=True, file=(tmp_path / "screen").open("w"))
    judges = cross_fit(report, 2, tmp_path / "work", SHORT, console)
    judged = [name for judge in judges for name in judge.pages["val"]]
    assert sorted(judged) == sorted(report.splits[0].annotations.pages)
    for judge in judges:
        home = judge.model.parents[2]
        trained = set(json.loads((home / "train.json").read_text())["images"])
        assert not trained & set(judge.pages["val"])
        assert len(trained) + len(judge.pages["val"]) == 6
        assert (home / FINISHED).exists()
    suspected = add_suspects(report, judges)
    assert all(finding.image in judged for finding in suspected.suspects)
    before = [judge.model.stat().st_mtime_ns for judge in judges]
    again = cross_fit(report, 2, tmp_path / "work", SHORT, console)
    assert [judge.model.stat().st_mtime_ns for judge in again] == before
    assert "trained before" in console.export_text()


def test_more_folds_than_pages_are_refused(dataset: SmallDataset, tmp_path: Path) -> None:
    dataset.add("a.jpg")
    with rejects(ConfigError, setting="--folds", value=2):
        cross_fit(dataset.examine(), 2, tmp_path, [], Console(quiet=True))
    with rejects(ConfigError, setting="--folds", value=1):
        cross_fit(dataset.examine(), 1, tmp_path, [], Console(quiet=True))
