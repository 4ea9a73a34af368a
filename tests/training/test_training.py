"""Training end to end on tiny pages: it learns, resumes exactly, and says what is wrong."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rich.console import Console

from ocr.advisor.report.run_folder import read_run
from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError, DataError
from ocr.jobs.train import build_module, build_trainer, train
from ocr.models.load import load_detector, read_detector
from ocr.training.callbacks.epoch_report import EpochReport

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TINY = (
    "model=lite",
    "model.channels=32",
    "transforms.size=64",
    "dataloaders.train_dataloader.batch_size=2",
    "dataloaders.train_dataloader.num_workers=0",
    "dataloaders.val_dataloader.batch_size=4",
    "dataloaders.val_dataloader.num_workers=0",
    "dataloaders.test_dataloader.num_workers=0",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "+trainer.enable_progress_bar=false",
    "callbacks.progress=null",
    "logger.tensorboard=null",
)


def settings(data: Path, out: Path, *overrides: str, name: str = "train") -> DictConfig:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(name, [f"dataset_base_path={data}", f"output_dir={out}", *TINY, *overrides])


class Losses(lightning.Callback):
    """Every loss of a run, and a checkpoint or an interruption after some step."""

    def __init__(self, save_at: int | None = None, path: Path | None = None, stop_at: int | None = None) -> None:
        self.seen: list[float] = []
        self.save_at, self.path, self.stop_at = save_at, path, stop_at

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seen.append(float(outputs["loss"]))
        if trainer.global_step == self.save_at:
            trainer.save_checkpoint(self.path)
        if trainer.global_step == self.stop_at:
            raise KeyboardInterrupt


def fit(config: DictConfig, losses: Losses, resume: Path | None = None) -> lightning.Trainer:
    lightning.seed_everything(config.seed, verbose=False)
    trainer = build_trainer(config)
    trainer.callbacks.append(losses)
    trainer.fit(build_module(config), datamodule=OCRDataModule(config), ckpt_path=resume, weights_only=True)
    return trainer


@pytest.fixture(scope="module")
def whole(synthetic, tmp_path_factory) -> tuple[list[float], dict[int, Path]]:
    """Two epochs of four steps without a break, with checkpoints on the way."""
    out = tmp_path_factory.mktemp("whole")
    losses: list[float] = []
    paths = {}
    for step in (3, 4, 6):
        paths[step] = out / f"step{step}.ckpt"
        recorder = Losses(save_at=step, path=paths[step])
        fit(settings(synthetic, out / str(step), "trainer.max_epochs=2"), recorder)
        assert not losses or recorder.seen == losses
        losses = recorder.seen
    return losses, paths


def test_two_runs_of_one_seed_are_the_same_and_losses_are_finite(whole):
    losses, _ = whole
    assert len(losses) == 8
    assert all(0 < loss < 100 for loss in losses)


@pytest.mark.parametrize("step", [3, 4, 6], ids=["within the first epoch", "between epochs", "within the second"])
def test_a_resumed_run_has_the_losses_of_one_without_the_break(whole, synthetic, tmp_path, step):
    losses, paths = whole
    recorder = Losses()
    trainer = fit(settings(synthetic, tmp_path, "trainer.max_epochs=2"), recorder, paths[step])
    assert recorder.seen == losses[step:]
    assert trainer.global_step == 8


def test_an_interrupted_run_leaves_a_checkpoint_from_which_it_goes_on(whole, synthetic, tmp_path):
    losses, _ = whole
    config = settings(synthetic, tmp_path, "trainer.max_epochs=2")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(config, Losses(stop_at=3))
    (left,) = (tmp_path / "checkpoints").glob("*.ckpt")
    assert left.name == "last.ckpt"
    recorder = Losses()
    fit(config, recorder, left)
    assert recorder.seen == losses[3:]


def test_a_run_leaves_checkpoints_drawings_and_figures_and_reports_its_time(synthetic, tmp_path):
    config = settings(synthetic, tmp_path, "trainer.max_epochs=1", "cleval=true")
    shown = Console(record=True, width=160)
    scores = train(config, shown)
    assert {"val/hmean", "val/hmean_70", "val/cleval_det_h", "train/loss"} <= set(scores)
    assert {name for name in scores if name.startswith("val/")} == set(build_module(config).score_names)
    assert {"seconds/data_wait", "samples_per_second"} <= set(scores)
    assert 0.05 < scores["memory_gb"] < 50
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "last.ckpt"]
    assert (tmp_path / "drawings" / "epoch_000.jpg").stat().st_size > 1000
    (epoch,) = read_run(tmp_path)["epochs"]
    assert epoch.keys() >= {"hmean", "hmean_70", "samples_per_s", "memory_gb"}
    assert epoch["seconds"].keys() == {"data_wait", "forward", "backward", "boxes", "scores"}
    assert "best.ckpt" in shown.export_text()
    kept = load_detector(tmp_path / "checkpoints" / "best.ckpt")[1]
    assert (kept.page_size, kept.architecture["channels"], kept.boxes["thresh"]) == (64, 32, config.boxes.thresh)
    origin = kept.provenance
    assert (origin.steps, origin.data["pages"], origin.seed) == (4, 8, 0)
    assert origin.scores["hmean"] == pytest.approx(scores["val/hmean"])


def test_the_last_checkpoint_is_of_the_last_epoch_also_when_it_is_not_the_best(synthetic, tmp_path):
    config = settings(synthetic, tmp_path, "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2")
    fit(config, Losses())
    epochs = {path.stem: torch.load(path, weights_only=True)["epoch"] for path in (tmp_path / "checkpoints").iterdir()}
    assert epochs == {"best": 1, "last": 2}
    kept = {path.stem: load_detector(path)[1].provenance for path in (tmp_path / "checkpoints").iterdir()}
    assert {name: origin.steps for name, origin in kept.items()} == {"best": 8, "last": 12}
    assert "hmean" in kept["best"].scores
    # No scores of earlier weights beside later ones.
    assert kept["last"].scores == {}


def test_the_epoch_report_sums_up_the_parts_of_the_epoch(synthetic, tmp_path, capsys):
    config = settings(synthetic, tmp_path, "trainer.max_epochs=2")
    trainer = fit(config, Losses())
    (report,) = [callback for callback in trainer.callbacks if isinstance(callback, EpochReport)]
    assert len(report.history) == 2
    for row in report.history:
        parts = sum(row[part] for part in ("data wait", "forward", "backward", "boxes", "scores"))
        assert 0.3 * row["epoch seconds"] < parts <= 1.01 * row["epoch seconds"]
    shown = capsys.readouterr().out
    assert "Epoch 1" in shown
    assert f"H-mean at IoU 0.7: {report.history[-1]['H-mean at IoU 0.7']:.3g}" in shown


def test_a_loss_that_is_not_a_number_stops_the_run_and_names_the_files(synthetic, tmp_path):
    config = settings(synthetic, tmp_path, "optimizer.lr=1e30", "trainer.max_epochs=4")
    with pytest.raises(DataError, match=r"the loss is (nan|inf) at step \d+ .*\.jpg.*optimizer\.lr"):
        fit(config, Losses())


def test_a_checkpoint_of_another_architecture_is_refused_by_name(whole, synthetic, tmp_path):
    _, paths = whole
    module = build_module(settings(synthetic, tmp_path, "model.channels=64"))
    with pytest.raises(ConfigError, match=r"step4\.ckpt has another architecture: channels=32 \(here channels=64\)"):
        read_detector(paths[4]).load_into(module.model)
    with pytest.raises(ConfigError, match="not a checkpoint"):
        read_detector(CONFIGS / "train.yaml")


def test_a_checkpoint_holds_nothing_but_plain_data(whole):
    _, paths = whole
    checkpoint = torch.load(paths[4], weights_only=True)
    assert checkpoint["architecture"]["encoder"] == "mobilenetv3_small_050"


def test_an_empty_validation_split_is_an_error_before_the_first_step(dataset_folder, tmp_path):
    (dataset_folder / "jsons" / "val.json").write_text('{"images": {}}')
    with pytest.raises(DataError, match=r"datasets\.val_dataset: .*val\.json"):
        train(settings(dataset_folder, tmp_path), Console())


def test_a_missing_checkpoint_is_named_with_its_setting(synthetic, tmp_path):
    with pytest.raises(ConfigError, match=r"resume=nowhere\.ckpt is not a file"):
        train(settings(synthetic, tmp_path, "resume=nowhere.ckpt"), Console())


def test_an_unknown_encoder_is_named_with_near_ones(synthetic, tmp_path):
    with pytest.raises(ConfigError, match=r"model: .*resnet81.*resnet18"):
        train(settings(synthetic, tmp_path, "model.encoder=resnet81"), Console())


def test_a_validation_batch_of_unreadable_pages_only_is_skipped_and_counted(dataset_folder, tmp_path, capsys):
    for page in sorted((dataset_folder / "images" / "val").iterdir())[:4]:
        page.write_bytes(b"nothing")
    overrides = ("trainer.max_epochs=1", "trainer.limit_train_batches=1", "on_bad_sample=skip")
    assert "val/hmean" in train(settings(dataset_folder, tmp_path, *overrides), Console())
    assert "4 skipped" in " ".join(capsys.readouterr().out.split())
