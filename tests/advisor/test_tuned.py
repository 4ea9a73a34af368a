"""What `apply=true` writes is found by `data=tuned`, in a checkout and in a project of `ocr init`."""

import pytest
from rejection import rejects

from ocr.advisor.tuned import apply_changes
from ocr.errors import ConfigError
from ocr.jobs.compose import compose_training
from ocr.tools.init import write_project

CHANGE = ("data.num_workers=5",)


@pytest.fixture
def project(tmp_path, monkeypatch):
    write_project(tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def apply(*given: str, change=CHANGE, experiment=None):
    def composed(more):
        groups = {word.partition("=")[0] for word in more}
        return compose_training([*(word for word in given if word.partition("=")[0] not in groups), *more])

    return apply_changes(change, {"data": "base", "experiment": experiment}, composed, "ocr advise")


def test_data_tuned_uses_it_in_a_project_with_an_experiment(project):
    path, use = apply("experiment=mine", experiment="mine")
    assert use == "data=tuned"
    assert path.resolve() == project / "configs/data/tuned.yaml"
    composed = compose_training(["experiment=mine", "data=tuned"])
    assert composed.dataloaders.train_dataloader.num_workers == 5
    assert composed.dataloaders.train_dataloader.batch_size == 8


def test_an_experiment_with_a_word_of_its_own_is_adapted_instead(project):
    change = ("dataloaders.train_dataloader.batch_size=32",)
    path, use = apply("experiment=mine", change=change, experiment="mine")
    assert use == "experiment=tuned"
    assert not (project / "configs/data/tuned.yaml").exists()
    composed = compose_training(["experiment=tuned"])
    assert composed.dataloaders.train_dataloader.batch_size == 32
    assert composed.transforms.size == 640
    assert path.resolve() == project / "configs/experiment/tuned.yaml"


def test_what_the_command_line_sets_itself_cannot_be_applied(project):
    with rejects(ConfigError, setting="apply"):
        apply("data.num_workers=3")
    assert not (project / "configs/data").exists() or not list((project / "configs/data").iterdir())


def test_a_tuned_config_does_not_include_itself(project):
    with rejects(ConfigError, setting="data", value="tuned"):
        apply_changes(CHANGE, {"data": "tuned", "experiment": None}, compose_training, "ocr advise")


def test_advice_to_change_nothing_is_a_config_too(project):
    path, use = apply("experiment=mine", change=(), experiment="mine")
    assert (use, path.exists()) == ("data=tuned", True)
    assert compose_training(["experiment=mine", "data=tuned"]) == compose_training(["experiment=mine"])
