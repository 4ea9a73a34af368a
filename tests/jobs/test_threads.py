"""The threads of a job are those of its config."""

from collections.abc import Iterator

import cv2
import pytest
import torch
from omegaconf import OmegaConf

from ocr.jobs.compose import compose_training
from ocr.jobs.run import run_job
from ocr.jobs.threads import share_cores


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = torch.get_num_threads(), cv2.getNumThreads()
    yield
    torch.set_num_threads(before[0])
    cv2.setNumThreads(before[1])


def test_by_default_the_model_has_all_cores_and_opencv_one_per_worker():
    before = torch.get_num_threads()
    cv2.setNumThreads(3)
    share_cores(compose_training([]))
    assert (torch.get_num_threads(), cv2.getNumThreads()) == (before, 1)


def test_ranks_on_one_machine_divide_its_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("ocr.jobs.threads.usable_cores", lambda: 8)
    share_cores(compose_training(["trainer.devices=3"]))
    assert torch.get_num_threads() == 2
    share_cores(compose_training(["trainer.devices=9"]))
    assert torch.get_num_threads() == 1
    share_cores(compose_training(["trainer.devices=2", "threads.model=3"]))
    assert torch.get_num_threads() == 3


def test_threads_that_the_environment_names_are_left_to_it(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    before = torch.get_num_threads()
    share_cores(compose_training(["trainer.devices=2"]))
    assert torch.get_num_threads() == before


def test_both_can_be_set():
    share_cores(compose_training(["threads.model=3", "threads.opencv=2"]))
    assert (torch.get_num_threads(), cv2.getNumThreads()) == (3, 2)


def test_a_job_without_a_model_leaves_threads_alone():
    cv2.setNumThreads(3)
    share_cores(OmegaConf.create({"splits": ["train"]}))
    assert cv2.getNumThreads() == 3


def test_every_job_shares_the_cores_before_it_starts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["job", "hydra.run.dir=run", "threads.model=3"])
    seen: list[int] = []
    run_job("train", lambda config, console: seen.append(torch.get_num_threads()))
    assert seen == [3]
