"""The loss with a teacher: zero at its maps, and the way there."""

import pytest
import torch
from rejection import rejects

from ocr.errors import ConfigError
from ocr.models import DistilLoss, Prediction
from ocr.models.distil_loss import squared_dice
from ocr.models.head import binarize

SHAPE = (2, 1, 24, 40)


def maps(seed: int) -> tuple[torch.Tensor, Prediction]:
    """Logits of both branches, and the maps that they give."""
    logits = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(seed)) * 2
    return logits, predicted(logits)


def predicted(logits: torch.Tensor) -> Prediction:
    return Prediction(logits[0], *binarize(logits[0], logits[1], 50.0))


def test_a_student_that_has_the_maps_of_an_unsure_teacher_has_no_loss_and_no_gradient():
    logits, teacher = maps(1)
    logits.requires_grad_()
    loss, parts = DistilLoss()(predicted(logits), teacher)
    assert loss.item() == pytest.approx(0, abs=1e-5)
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(
        {"prob": 0, "thresh": 0, "binary": 0}, abs=1e-5
    )
    loss.backward()
    assert logits.grad.abs().max() < 1e-4


def test_descent_leads_to_the_maps_of_the_teacher():
    _, teacher = maps(1)
    logits = maps(2)[0].requires_grad_()
    loss_of, optimizer = DistilLoss(), torch.optim.Adam([logits], lr=0.1)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss, _ = loss_of(predicted(logits), teacher)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
    found = predicted(logits.detach())
    text = teacher.prob_map > 0.5
    assert (found.prob_map - teacher.prob_map)[text].abs().mean() < 0.02
    assert ((found.prob_map > 0.5) == text).float().mean() > 0.98


def test_parts_and_weight_add_up():
    student, teacher = maps(2)[1], maps(1)[1]
    loss, parts = DistilLoss(2.0, 5.0, 10.0, 1.0)(student, teacher)
    assert loss.item() == pytest.approx(
        2 * (5 * parts["prob"] + 10 * parts["thresh"] + parts["binary"]).item(), rel=1e-5
    )
    assert parts["thresh"].item() == pytest.approx((student.thresh - teacher.thresh).abs().mean().item(), rel=1e-5)
    assert squared_dice(torch.zeros(4), torch.zeros(4)) == 0
    assert squared_dice(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("weight", 0), ("prob_weight", -1), ("thresh_weight", -1), ("binary_weight", None), ("negative_ratio", "3")],
)
def test_a_weight_that_means_nothing_is_refused(setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        DistilLoss(**{setting: value})


def test_maps_without_a_threshold_are_refused():
    logits, whole = maps(1)
    bare = Prediction(logits[0])
    for student, teacher in ((bare, whole), (whole, bare)):
        with rejects(ConfigError, setting="with_threshold", value=False):
            DistilLoss()(student, teacher)
