"""What a config leaves open, and what is wrong with it if a change helps."""

import pytest
import torch
from advisor.trials import row

from ocr.advisor import remedies
from ocr.jobs.compose import compose_training

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def changes(*overrides: str, split: str = "train", cores: int = 2, has_gpu: bool = False):
    config = compose_training([*overrides])
    return {one.name: one for one in remedies.loader_changes(config, split, cores, has_gpu)}


def test_the_defaults_leave_workers_batches_ahead_and_the_cache_open():
    assert list(changes()) == ["no worker", "1 worker thread", "4 worker threads", "8 batches ahead", "no cache"]


@pytest.mark.parametrize(
    ("given", "name", "override"),
    [
        ("data.num_workers=1", "2 worker threads", "data.num_workers=2"),
        ("data.cache=off", "cache", "data.cache=auto"),
        ("transforms.normalize=host", "bytes until the device", "transforms.normalize=device"),
        ("data.engine=processes", "2 threads instead of processes", "data.engine=threads"),
        ("use_dali=true", "without DALI", "use_dali=false"),
        ("threads.opencv=4", "one thread of OpenCV", "threads.opencv=1"),
    ],
)
def test_a_bad_setting_has_a_change_that_removes_it(given, name, override):
    change = changes(given)[name]
    assert change.overrides[0] == override
    assert change.cause
    config = remedies.changed(compose_training([given]), change.overrides)
    left = {one.name for one in remedies.loader_changes(config, "train", 2, False)}
    assert name not in left


def test_a_setting_of_the_split_is_changed_where_it_stands():
    given = "dataloaders.train_dataloader.num_workers=1"
    assert changes(given)["2 worker threads"].overrides == ("dataloaders.train_dataloader.num_workers=2",)
    config = remedies.changed(compose_training([given]), changes(given)["2 worker threads"].overrides)
    assert config.dataloaders.train_dataloader.num_workers == 2


def test_worker_processes_are_offered_for_transforms_of_others_only():
    given = "transforms.val_transform.transforms=[${transforms.letterbox},{_target_:albumentations.CLAHE}]"
    assert "2 processes instead of threads" in changes(given, split="val")
    assert "2 processes instead of threads" not in changes(split="val")


def test_caches_are_not_filled_before_the_clock_runs():
    config = remedies.for_measuring(compose_training(["data.preload_everything=true", "data.cache=off"]), "train")
    assert not config.datasets.train_dataset.preload_everything
    assert config.datasets.train_dataset.cache == "auto"
    assert remedies.for_measuring(compose_training(["data.cache=off"]), "train").datasets.train_dataset.cache in (
        "off",
        0,
    )


def test_changes_that_alter_what_is_learned_say_so():
    config = compose_training(["data.cache=off", "decode.scaled=off", "transforms.cached_size=1280"])
    found = remedies.other_loader_changes(config, "train")
    assert len(found) == 2
    assert all(one.hmean for one in found)
    of_model = remedies.model_changes(compose_training([]), "train", 2, GPU, compiling=False)
    assert {one.setting: bool(one.hmean) for one in of_model} == {
        "layout": False,
        "precision": True,
        "size": True,
        "batch": True,
    }


def test_the_model_is_compiled_only_if_asked_for():
    names = [
        {one.name for one in remedies.model_changes(compose_training([]), "train", 2, CPU, compiling)}
        for compiling in (False, True)
    ]
    assert names[1] - names[0] == {"compiled model"}


def test_steps_of_few_pages_are_a_cause():
    config = compose_training(["dataloaders.train_dataloader.batch_size=1"])
    (batch,) = (one for one in remedies.model_changes(config, "train", 2, CPU, False) if one.setting == "batch")
    assert batch.overrides == ("dataloaders.train_dataloader.batch_size=8",)
    assert "1 page" in batch.cause


def test_a_short_run_from_the_bundled_detector_is_computed_and_gains_nothing_per_page():
    found = remedies.shorter_run(compose_training(["trainer.max_epochs=100"]), 10, 2.0)
    assert found is not None
    assert (found.gain, found.how) == (1.0, "computed")
    assert remedies.shorter_run(compose_training(["trainer.max_epochs=10"]), 10, 2.0) is None
    assert remedies.shorter_run(compose_training(["trainer.max_epochs=100", "weights=glyphfeed"]), 10, 2.0) is None


def test_the_best_change_of_each_setting_is_combined():
    found = remedies.combined([row("1 threads", 1.1), row("2 threads", 1.5), row("cache", 1.9, "cache")])
    assert found is not None
    assert found.name == "cache + 2 threads"
    assert sorted(found.overrides) == ["data.cache=cache", "data.workers=2"]
    assert remedies.combined([row("1 threads", 1.1), row("2 threads", 1.5)]) is None
