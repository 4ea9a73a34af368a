"""`train resume=CKPT` needs nothing else: the checkpoint has the settings of its run."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from refusal import refuses
from rejection import rejects
from rich.console import Console

from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.jobs.resumed_run import run_to_store
from ocr.jobs.run import run_job
from ocr.training.callbacks.interrupt import resume_command

TYPED = ["dataset_base_path=pages", "model=lite", "trainer.max_epochs=3", "optimizer.lr=0.5", "seed=7"]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Runs `glyphfeed train` with these words, in an empty folder; what the job gets, and the run's folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[DictConfig, Path]:
        seen: list[Any] = []

        def job(config: DictConfig, console: Console) -> None:
            folder = Path(HydraConfig.get().runtime.output_dir)
            checkpoint = folder / "checkpoints" / "last.ckpt"
            checkpoint.parent.mkdir(exist_ok=True)
            torch.save({"state_dict": {}, "run": run_to_store(config)}, checkpoint)
            seen.extend([config, folder])

        monkeypatch.setattr(sys, "argv", ["job", *words])
        run_job("train", job)
        return seen[0], seen[1]

    return run


def overrides_of(folder: Path) -> list[str]:
    return list(OmegaConf.load(folder / ".hydra/overrides.yaml"))


def test_a_resumed_run_has_all_settings_and_continues_in_its_folder(start):
    first, folder = start(*TYPED)
    hint = resume_command(folder / "checkpoints/last.ckpt")
    program, job, *words = shlex.split(hint)
    assert (program, job) == ("glyphfeed", "train")
    again, same = start(*words)
    assert same == folder
    assert again.resume == str((folder / "checkpoints/last.ckpt").relative_to(Path.cwd()))
    unresumed = again.copy()
    unresumed.resume = None
    assert unresumed == first
    assert overrides_of(folder) == TYPED
    assert OmegaConf.load(folder / ".hydra/config.yaml").optimizer.lr == 0.5


def test_configs_that_changed_meanwhile_do_not_change_the_run(start):
    experiment = Path("configs/experiment/mine.yaml")
    experiment.parent.mkdir(parents=True)
    experiment.write_text("# @package _global_\noptimizer:\n  lr: 0.25\n")
    _, folder = start("experiment=mine")
    experiment.unlink()
    resumed, _ = start(f"resume={folder}/checkpoints/last.ckpt")
    assert resumed.optimizer.lr == 0.25


def test_what_is_typed_besides_must_agree_or_say_how_long_and_where_it_runs(start):
    _, folder = start(*TYPED)
    resume = f"resume={folder}/checkpoints/last.ckpt"
    start(resume, "optimizer.lr=0.5", "model=lite", "seed=7")
    assert overrides_of(folder) == [*TYPED]
    batch_size = "dataloaders.train_dataloader.batch_size"
    for word in (
        "optimizer.lr=0.1",
        f"{batch_size}=3",
        "transforms.size=320",
        "experiment=receipts",
        "data=webdataset",
    ):
        with refuses(setting=word.partition("=")[0], path=f"{folder}/checkpoints/last.ckpt"):
            start(resume, word)
    longer = ["trainer.max_epochs=9", "dataset_base_path=moved", "logger=csv", "data.num_workers=0"]
    again, _ = start(resume, *longer)
    assert (again.trainer.max_epochs, again.dataset_base_path, again.data.num_workers) == (9, "moved", 0)
    assert list(again.logger) == ["csv"]
    assert (again.optimizer.lr, again.seed, again.model.encoder) == (0.5, 7, "mobilenetv3_small_050")
    assert overrides_of(folder) == [*TYPED, *longer]
    once_more, _ = start(resume)
    assert once_more.trainer.max_epochs == 9


def test_a_checkpoint_that_was_copied_elsewhere_starts_a_new_folder_with_all_settings(start, tmp_path):
    _, folder = start(*TYPED)
    copied = Path("copied.ckpt")
    copied.write_bytes((folder / "checkpoints/last.ckpt").read_bytes())
    again, other = start("resume=copied.ckpt", "hydra.run.dir=other")
    assert other == tmp_path / "other"
    assert again.optimizer.lr == 0.5
    assert overrides_of(other) == TYPED


def test_what_has_no_run_to_continue_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {}}, "weights.ckpt")
    Path("text.ckpt").write_text("nothing")
    for path in ("best.safetensors", "weights.ckpt", "text.ckpt", "nowhere.ckpt"):
        with rejects(ConfigError, setting="resume", path=path):
            compose_training([f"resume={path}"])
