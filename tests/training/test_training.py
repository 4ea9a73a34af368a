"""Training end to end on tiny pages: it learns, resumes exactly, and says what is wrong."""

from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning
import pytest
import torch
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from rejection import rejects
from rich.console import Console

from ocr.datasets.data_module import OCRDataModule
from ocr.errors import ConfigError, DataError
from ocr.jobs.train import build_module, build_trainer, train
from ocr.models.load import load_detector, read_detector
from ocr.pipeline.ledger import COUNTS
from ocr.report.runs import read_run
from ocr.training.callbacks.data_report import describe
from ocr.training.callbacks.epoch_report import TIGHT, EpochReport
from ocr.training.callbacks.worst_pages import worst_table
from ocr.training.stopwatch import PARTS

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
    """Every loss of a run; checkpoints after some steps, or an interruption after one."""

    def __init__(self, saved: Mapping[int, Path] | None = None, stop_at: int | None = None) -> None:
        self.seen: list[float] = []
        self.saved, self.stop_at = saved or {}, stop_at

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seen.append(float(outputs["loss"]))
        if trainer.global_step in self.saved:
            trainer.save_checkpoint(self.saved[trainer.global_step])
        if trainer.global_step == self.stop_at:
            raise KeyboardInterrupt


def fit(config: DictConfig, losses: Losses, resume: Path | None = None) -> lightning.Trainer:
    lightning.seed_everything(config.seed, verbose=False)
    trainer = build_trainer(config)
    trainer.callbacks.append(losses)
    trainer.fit(build_module(config), datamodule=OCRDataModule(config), ckpt_path=resume, weights_only=True)
    return trainer


@dataclass(frozen=True)
class Whole:
    """Two epochs of four steps without a break, with checkpoints on the way."""

    losses: list[float]
    paths: dict[int, Path]
    report: EpochReport
    shown: str


@pytest.fixture(scope="module")
def whole(synthetic, tmp_path_factory) -> Whole:
    out = tmp_path_factory.mktemp("whole")
    recorder = Losses({step: out / f"step{step}.ckpt" for step in (4, 6)})
    with redirect_stdout(StringIO()) as shown:
        trainer = fit(settings(synthetic, out, "trainer.max_epochs=2"), recorder)
    (report,) = [callback for callback in trainer.callbacks if isinstance(callback, EpochReport)]
    return Whole(recorder.seen, dict(recorder.saved), report, shown.getvalue())


def test_losses_are_finite_and_the_epoch_report_sums_up_the_parts_of_each_epoch(whole):
    assert len(whole.losses) == 8
    assert all(0 < loss < 100 for loss in whole.losses)
    assert len(whole.report.history) == 2
    for row in whole.report.history:
        parts = sum(row[part] for part in PARTS)
        # What is between them, such as writing a checkpoint, takes as long as the disk lets it.
        assert 0 < parts <= 1.01 * row["epoch seconds"]
        assert min(row["forward"], row["backward"]) > 0
    assert "epoch 2/2" in whole.shown
    assert f"{TIGHT}: {whole.report.history[-1][TIGHT]:.3g}" in whole.shown


@pytest.mark.parametrize("step", [4, 6], ids=["between epochs", "within the second"])
def test_a_resumed_run_has_the_losses_of_one_without_the_break(whole, synthetic, tmp_path, step):
    recorder = Losses()
    trainer = fit(settings(synthetic, tmp_path, "trainer.max_epochs=2"), recorder, whole.paths[step])
    assert recorder.seen == whole.losses[step:]
    assert trainer.global_step == 8


def test_an_interrupted_run_leaves_a_checkpoint_from_which_it_goes_on(whole, synthetic, tmp_path):
    config = settings(synthetic, tmp_path, "trainer.max_epochs=2")
    first, second = Losses(stop_at=3), Losses()
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(config, first)
    (left,) = (tmp_path / "checkpoints").glob("*.ckpt")
    assert left.name == "last.ckpt"
    trainer = fit(config, second, left)
    assert (first.seen, second.seen) == (whole.losses[:3], whole.losses[3:])
    assert trainer.global_step == 8


def test_a_run_leaves_checkpoints_drawings_and_figures_and_reports_its_time(synthetic, tmp_path):
    config = settings(synthetic, tmp_path, "trainer.max_epochs=1", "cleval=true")
    shown = Console(record=True, width=160)
    scores = train(config, shown)
    assert {"val/hmean", "val/hmean_70", "val/cleval_det_h", "train/loss"} <= set(scores)
    assert {name for name in scores if name.startswith("val/")} == set(build_module(config).score_names)
    assert {"seconds/data_wait", "samples_per_second"} <= set(scores)
    assert 0.05 < scores["memory_gb"] < 50
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["README.md", "best.ckpt", "last.ckpt"]
    assert (tmp_path / "drawings" / "epoch_001.jpg").stat().st_size > 1000
    (epoch,) = read_run(tmp_path).epochs
    assert epoch.keys() >= {"hmean", "hmean_70", "samples_per_s", "memory_gb"}
    assert epoch["seconds"].keys() == {"data_wait", "forward", "backward", "boxes", "scores"}
    assert "best.ckpt" in shown.export_text()
    kept = load_detector(tmp_path / "checkpoints" / "best.ckpt")[1]
    assert (kept.page_size, kept.architecture["channels"], kept.boxes["thresh"]) == (64, 32, config.boxes.thresh)
    origin = kept.provenance
    assert (origin.steps, origin.data["pages"], origin.seed) == (4, 8, 0)
    assert origin.scores["hmean"] == pytest.approx(scores["val/hmean"])


def test_the_last_checkpoint_is_of_the_last_epoch_also_when_it_is_not_the_best(synthetic, tmp_path):
    small = ("trainer.limit_train_batches=1", "trainer.limit_val_batches=1")
    config = settings(synthetic, tmp_path, "trainer.max_epochs=3", "trainer.check_val_every_n_epoch=2", *small)
    fit(config, Losses())
    epochs = {path.stem: torch.load(path, weights_only=True)["epoch"] for path in (tmp_path / "checkpoints").iterdir()}
    assert epochs == {"best": 1, "last": 2}
    kept = {path.stem: load_detector(path)[1].provenance for path in (tmp_path / "checkpoints").iterdir()}
    assert {name: origin.steps for name, origin in kept.items()} == {"best": 2, "last": 3}
    assert "hmean" in kept["best"].scores
    # No scores of earlier weights beside later ones.
    assert kept["last"].scores == {}


def test_a_checkpoint_of_another_architecture_or_of_none_is_refused(whole, synthetic, tmp_path):
    module = build_module(settings(synthetic, tmp_path, "model.channels=64"))
    with rejects(ConfigError, setting="model", value={"channels": 32}, path=whole.paths[4]):
        read_detector(whole.paths[4]).load_into(module.model)
    with rejects(ConfigError, setting="checkpoint_path", path=CONFIGS / "train.yaml"):
        read_detector(CONFIGS / "train.yaml")


def test_a_checkpoint_holds_nothing_but_plain_data(whole):
    checkpoint = torch.load(whole.paths[4], weights_only=True)
    assert checkpoint["architecture"]["encoder"] == "mobilenetv3_small_050"


def test_what_a_training_cannot_begin_with_is_named_before_the_first_step(synthetic, dataset_folder, tmp_path):
    labels = dataset_folder / "jsons" / "val.json"
    labels.write_text('{"images": {}}')
    with rejects(DataError, path=labels):
        train(settings(dataset_folder, tmp_path), Console())
    with rejects(ConfigError, setting="resume", path="nowhere.ckpt"):
        train(settings(synthetic, tmp_path, "resume=nowhere.ckpt"), Console())
    with rejects(ConfigError, setting="encoder", value="resnet81"):
        train(settings(synthetic, tmp_path, "model.encoder=resnet81"), Console())


def test_a_validation_batch_of_unreadable_pages_only_is_skipped_and_counted(dataset_folder, tmp_path, capsys):
    for page in sorted((dataset_folder / "images" / "val").iterdir())[:4]:
        page.write_bytes(b"nothing")
    overrides = ("trainer.max_epochs=1", "trainer.limit_train_batches=1", "on_bad_sample=skip")
    assert "val/hmean" in train(settings(dataset_folder, tmp_path, *overrides), Console())
    assert "4 skipped" in " ".join(capsys.readouterr().out.split())


def test_wording_of_the_end_of_an_epoch(snapshot):
    """What the terminal shows for fixed figures."""
    shown = Console(record=True, width=80, file=StringIO())
    seconds = {"data wait": 0.42, "forward": 10.5, "backward": 21.7, "boxes": 0.9, "scores": 0.33}
    row = seconds | {"epoch seconds": 34.2, "samples/s": 8.19, "loss": 1.2345, "H-mean": 0.8931, TIGHT: 0.7042}
    shown.print(EpochReport(shown)._line("epoch 7/20", row, "8 min left"))
    shown.print(EpochReport(shown)._table("epoch 8/20", row, "7 min left"))
    counts = dict.fromkeys(COUNTS, 3) | {"seen": 140, "cache_hits": 137, "cache_invalid": 0}
    named = SimpleNamespace(files=lambda count: ["a.jpg", "b.jpg", "c.jpg", "d.jpg"])
    pages = SimpleNamespace(cache=SimpleNamespace(stopped="the disk is full"), ledger=named)
    shown.print(f"train: {describe(pages, counts)}", soft_wrap=True)
    listed = {"page": "receipt_[031].jpg", "hmean": 0.21, "hmean_70": 0.1, "missed": 31, "false": 4, "epoch": 7}
    shown.print(worst_table([listed, listed | {"page": "b.jpg", "hmean": 0.305}]))
    snapshot("training_table", shown.export_text())
