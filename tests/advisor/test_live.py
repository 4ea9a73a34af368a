"""During training: a model that waits for data is told what would help, once, and one that does not is left alone."""

from pathlib import Path

import pytest
from artificial import open_pages
from omegaconf import DictConfig
from rich.console import Console

from ocr.advisor.live import after_the_cut, best_remedy
from ocr.advisor.model.queueing import GIL, Consumer, Demand, Pipeline
from ocr.jobs.compose import compose_training
from ocr.jobs.train import train
from ocr.pipeline.cut import Cut

TINY = (
    "model=lite",
    "model.channels=32",
    "transforms.size=64",
    "dataloaders.train_dataloader.batch_size=2",
    "trainer.accelerator=cpu",
    "trainer.devices=1",
    "trainer.max_epochs=2",
    "+trainer.enable_progress_bar=false",
    "callbacks.progress=null",
    "logger.tensorboard=null",
)


def config(data: Path, out: Path, *overrides: str) -> DictConfig:
    return compose_training([f"dataset_base_path={data}", f"output_dir={out}", *TINY, *overrides], "ocr train")


def test_a_model_that_waits_is_told_what_would_help_once(synthetic, tmp_path, capsys):
    slow = "{_target_: artificial.Sleep, seconds: 0.3}"
    stages = f"[${{transforms.letterbox}},{slow},${{transforms.normalization}}]"
    settings = ("data.cache=off", "data.num_workers=1", f"transforms.train_transform.transforms={stages}")
    train(config(synthetic, tmp_path, *settings), Console(quiet=True))
    told = [line for line in capsys.readouterr().out.splitlines() if "the model waited for data" in line]
    assert len(told) == 1
    # Both would do: a cache makes the sleeping stage needless, more workers sleep at the same time.
    assert "data.cache=auto would make epochs" in told[0]
    assert told[0].endswith("The whole table: ocr advise")


def test_an_epoch_that_fills_the_cache_is_no_reason_to_advise(synthetic, tmp_path, capsys):
    slow = "{_target_: artificial.Sleep, seconds: 0.3}"
    stages = f"[${{transforms.letterbox}},{slow},${{transforms.normalization}}]"
    settings = ("data.cache=prefix", f"cache.folder={tmp_path}", f"transforms.train_transform.transforms={stages}")
    train(config(synthetic, tmp_path, *settings, "trainer.max_epochs=1"), Console(quiet=True))
    assert "the model waited for data" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("demand", "step", "workers", "words"),
    [
        (Demand("decode", 0.01, 0.01, kind="fixed"), 0.0, 1, "data.cache=auto"),
        (Demand("Warp", 0.01, 0.0, kind="random"), 0.0, 1, "data.num_workers="),
        (Demand("Warp", 0.01, 0.01, 0.01, GIL, kind="random"), 0.0, 2, "data.engine=processes"),
        (Demand("Warp", 0.01, 0.01, kind="random"), 1.0, 2, "no setting of the loader would change that"),
    ],
)
def test_what_the_model_of_the_pipeline_ranks_first_is_named(synthetic, monkeypatch, demand, step, workers, words):
    monkeypatch.setattr("ocr.advisor.live.usable_cores", lambda: 2)
    dataset = open_pages(synthetic)
    line = Pipeline((demand, Demand("slot", 0.0001, 0.0001)), Consumer(step), 64, 8, workers, 2)
    assert words in best_remedy(line, dataset)


def test_cached_pages_need_what_is_behind_the_cut():
    kinds = ("source", "fixed", "random", "targets", "batch")
    demands = [Demand(kind, 1, 1, kind=kind) for kind in kinds]
    assert [one.name for one in after_the_cut(demands, Cut(page=True))] == ["random", "targets", "batch"]
    assert [one.name for one in after_the_cut(demands, Cut(page=True, maps=True))] == ["random", "batch"]
    assert len(after_the_cut(demands, Cut())) == 5
