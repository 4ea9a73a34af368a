"""The device of the trainer, wherever there is one."""

import pytest
import torch

from ocr.advisor.measure.model_step import find_device


@pytest.mark.parametrize(
    ("accelerator", "cuda", "mps", "device"),
    [
        ("auto", True, True, "cuda"),
        ("auto", False, True, "mps"),
        ("auto", False, False, "cpu"),
        ("mps", True, True, "mps"),
        ("cuda", False, True, "cpu"),
        ("cpu", True, True, "cpu"),
    ],
)
def test_the_model_is_measured_where_the_trainer_would_put_it(monkeypatch, accelerator, cuda, mps, device):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert find_device(accelerator) == torch.device(device)
