"""`logger=...`: every logger gets the metrics, the settings and the drawings of the worst pages, without a network."""

import sys
from pathlib import Path

import pytest
from rejection import rejects
from rich.console import Console
from test_training import TINY

from ocr.errors import MissingExtraError
from ocr.jobs.compose import compose_training
from ocr.jobs.train import train

ONE_STEP = ("trainer.max_epochs=1", "trainer.limit_train_batches=1", "callbacks.worst_pages.drawn=2")
SMALL = [word for word in TINY if not word.startswith("logger.")]


def run(data: Path, out: Path, *overrides: str) -> dict[str, float]:
    config = compose_training([f"dataset_base_path={data}", f"output_dir={out}", *SMALL, *ONE_STEP, *overrides])
    return train(config, Console(quiet=True))


def test_the_csv_logger_has_the_drawings_as_files(synthetic, tmp_path):
    run(synthetic, tmp_path, "logger=csv")
    assert not (tmp_path / "tensorboard").exists()
    drawn = sorted(path.name for path in (tmp_path / "csv/version_0/worst_pages").iterdir())
    assert drawn == ["step_000001_1.jpg", "step_000001_2.jpg"]
    assert "val/hmean" in (tmp_path / "csv/version_0/metrics.csv").read_text()


@pytest.mark.parametrize("none", ["logger=null", "logger=[]"])
def test_a_run_without_loggers_trains(synthetic, tmp_path, none):
    assert "val/hmean" in run(synthetic, tmp_path, none)
    assert not (tmp_path / "csv").exists()


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed_names_its_extra(synthetic, tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with rejects(MissingExtraError, setting=name, value=name):
        run(synthetic, tmp_path, f"logger={name}")


@pytest.mark.slow
def test_mlflow_writes_into_the_folder_of_the_run(synthetic, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    scores = run(synthetic, tmp_path, "logger=[mlflow,csv]")
    client = mlflow.tracking.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (experiment,) = [one for one in client.search_experiments() if one.name == "glyphfeed"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.data.metrics["val/hmean"] == pytest.approx(scores["val/hmean"])
    assert found.data.params["optimizer/lr"] == "0.001"
    drawn = {item.path for item in client.list_artifacts(found.info.run_id, "worst_pages")}
    assert drawn == {f"worst_pages/step_000001{end}" for end in ("_1.png", "_2.png", ".txt")}
    assert (tmp_path / "csv/version_0/metrics.csv").is_file()


@pytest.mark.slow
def test_weights_and_biases_works_offline(synthetic, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run(synthetic, tmp_path, "logger=wandb", "logger.wandb.offline=true")
    folder, settings = Path(wandb.run.dir), dict(wandb.run.config)
    logged = dict(wandb.run.summary)
    wandb.finish()
    assert folder.is_relative_to(tmp_path)
    assert len(list((folder / "media/images").glob("worst_pages_*.png"))) == 2
    assert settings["optimizer"]["lr"] == 0.001
    assert "val/hmean" in logged
