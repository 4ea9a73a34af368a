"""The loss against plain NumPy, its masks, its corners."""

import numpy as np
import pytest
import torch
from rejection import rejects

from ocr.errors import ConfigError
from ocr.models import DBLoss, Prediction
from ocr.models.head import binarize
from ocr.models.loss import (
    MIN_NEGATIVE_SHARE,
    balanced_cross_entropy,
    hard_negatives,
    kth_largest,
    kth_largest_by_bits,
)

SHAPE = (2, 1, 32, 32)


def random_batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    rand = torch.rand(4, *SHAPE, generator=generator)
    return {
        "prob_maps": (rand[0] > 0.85).float(),
        "thresh_maps": rand[1] * 0.4 + 0.3,
        "prob_masks": rand[2] > 0.2,
        "thresh_masks": rand[3] > 0.7,
    }


def random_prediction(scale: float = 3.0, k: float = 50.0) -> Prediction:
    generator = torch.Generator().manual_seed(6)
    logits = (torch.randn(2, *SHAPE, generator=generator) * scale).requires_grad_()
    return Prediction(logits[0], *binarize(logits[0], logits[1], k))


def numpy_parts(prediction: Prediction, batch: dict[str, torch.Tensor], ratio: float = 3.0) -> dict[str, float]:
    """The published formulas, with a full sort, in float64."""
    logits, thresh, binary = (part.detach().numpy().astype(np.float64) for part in prediction)
    prob, target_thresh, prob_mask, thresh_mask = (batch[name].numpy().astype(np.float64) for name in batch)
    probability = 1 / (1 + np.exp(-logits))
    losses = -(prob * np.log(probability) + (1 - prob) * np.log(1 - probability))
    positive, negative = prob * prob_mask > 0, (1 - prob) * prob_mask > 0
    count = min(int(ratio * positive.sum()), negative.sum())
    hardest = np.sort(losses[negative])[::-1][:count]
    dice = 2 * (binary * prob * prob_mask).sum() / ((binary * prob_mask).sum() + (prob * prob_mask).sum())
    return {
        "prob": (losses[positive].sum() + hardest.sum()) / (positive.sum() + count),
        "thresh": (np.abs(thresh - target_thresh) * thresh_mask).sum() / thresh_mask.sum(),
        "binary": 1 - dice,
    }


@pytest.mark.parametrize("ratio", [0.5, 3.0, 100.0])
def test_each_part_is_the_published_formula(ratio):
    prediction, batch = random_prediction(), random_batch()
    loss, parts = DBLoss(negative_ratio=ratio)(prediction, batch)
    expected = numpy_parts(prediction, batch, ratio)
    assert {name: float(part) for name, part in parts.items()} == pytest.approx(expected, rel=1e-4)
    total = 5 * expected["prob"] + 10 * expected["thresh"] + expected["binary"]
    assert float(loss.detach()) == pytest.approx(total, rel=1e-4)


def test_weights_scale_the_parts():
    prediction, batch = random_prediction(), random_batch()
    loss, parts = DBLoss(prob_weight=2, thresh_weight=0, binary_weight=7)(prediction, batch)
    assert float(loss.detach()) == pytest.approx(float(2 * parts["prob"] + 7 * parts["binary"]), rel=1e-6)


def test_binarisation_is_the_logistic_curve_of_the_paper():
    prediction = random_prediction()
    probability, thresh = prediction.prob_map.double(), prediction.thresh.double()
    torch.testing.assert_close(
        prediction.binary.double(), 1 / (1 + torch.exp(-50 * (probability - thresh))), atol=1e-5, rtol=1e-3
    )


def test_masked_pixels_change_neither_loss_nor_gradient():
    batch = random_batch()
    results = []
    for noise in (0.0, 4.0):
        prediction = random_prediction()
        prob_logits = prediction.prob_logits.detach() + noise * ~batch["prob_masks"]
        thresh = prediction.thresh.detach() + noise * ~(batch["thresh_masks"] | batch["prob_masks"])
        binary = prediction.binary.detach() + noise * ~batch["prob_masks"]
        leaves = [leaf.requires_grad_() for leaf in (prob_logits, thresh, binary)]
        targets = dict(batch)
        if noise:
            targets["prob_maps"] = torch.where(batch["prob_masks"], batch["prob_maps"], 1 - batch["prob_maps"])
            targets["thresh_maps"] = torch.where(batch["thresh_masks"], batch["thresh_maps"], 0.9)
        loss, _ = DBLoss()(Prediction(*leaves), targets)
        loss.backward()
        results.append([loss.detach(), *(leaf.grad for leaf in leaves)])
    for plain, noisy in zip(*results, strict=True):
        assert torch.equal(plain, noisy)
    assert not results[0][1][~batch["prob_masks"]].any()


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 1.0])
def test_hard_negatives_are_those_of_a_full_sort(share):
    logits = torch.randn(2, 1, 64, 64)
    negative = torch.rand(logits.shape) > 0.3
    wanted = int(share * int(negative.sum()))
    count = max(1, wanted)
    weights = hard_negatives(logits, negative, torch.tensor(float(wanted)))
    hardest = torch.sort(logits[negative], descending=True).values[:count]
    assert torch.equal(weights, (negative & (logits >= hardest[-1])).float())
    assert int(weights.sum()) == count


def test_equal_logits_share_the_places_that_are_left():
    logits = torch.tensor([3.0, 1.0, 1.0, 1.0, 1.0, 0.0, 5.0]).view(1, 1, 1, 7)
    negative = torch.tensor([True] * 6 + [False]).view(1, 1, 1, 7)
    weights = hard_negatives(logits, negative, torch.tensor(3.0))
    assert weights.flatten().tolist() == [1, 0.5, 0.5, 0.5, 0.5, 0, 0]


SCORES = {
    "random": torch.randn(1000, generator=torch.Generator().manual_seed(1)),
    "positive": torch.rand(1000, generator=torch.Generator().manual_seed(2)),
    "many equal": torch.arange(1000).remainder(7).float() - 3,
    "masked": torch.cat([torch.full((990,), -torch.inf), torch.linspace(-1, 1, 10)]),
    "tiny, huge and zeros": torch.tensor([1e-45, -1e-45, 3e38, -3e38, 0.0, -0.0, 1e-38, -1e-38] * 125),
}


@pytest.mark.parametrize("find", [kth_largest, kth_largest_by_bits])
@pytest.mark.parametrize("name", SCORES)
def test_the_kth_largest_is_that_of_topk(name, find):
    scores = SCORES[name]
    for count in (1, 2, 17, 500, 999, 1000):
        assert find(scores, torch.tensor(count)) == torch.topk(scores, count).values[-1]


@pytest.mark.parametrize("find", [kth_largest, kth_largest_by_bits])
def test_nothing_is_larger_than_the_zeroth_of_the_largest(find):
    assert not (SCORES["random"] >= find(SCORES["random"], torch.tensor(0))).any()


@pytest.mark.parametrize("levels", [0, 8], ids=["distinct", "with ties"])
@pytest.mark.parametrize("text", [0.0, 0.02, 0.2, 1.0])
@pytest.mark.parametrize("valid", [0.0, 0.8])
def test_balanced_cross_entropy_is_that_of_topk_over_the_losses(levels, text, valid):
    generator = torch.Generator().manual_seed(7)
    rand = torch.rand(3, 2, 1, 48, 48, generator=generator)
    logits = ((rand[0] * levels).round() if levels else rand[0] * 8) - 4
    target, mask = (rand[1] < text).float(), rand[2] < valid
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    background, positive = losses[mask & (target == 0)], losses[mask & (target == 1)]
    count = min(max(3 * len(positive), int(MIN_NEGATIVE_SHARE * int(mask.sum()))), len(background))
    expected = (positive.sum() + torch.topk(background, count).values.sum()) / (len(positive) + count + 1e-6)
    torch.testing.assert_close(balanced_cross_entropy(logits, target, mask, 3.0), expected)


def test_the_gradient_is_that_of_the_pixels_that_topk_picks():
    prediction, batch = random_prediction(), random_batch()
    logits = prediction.prob_logits.detach().requires_grad_()
    target, mask = batch["prob_maps"], batch["prob_masks"]
    (gradient,) = torch.autograd.grad(balanced_cross_entropy(logits, target, mask, 3.0), logits)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    positive = losses[mask & (target == 1)]
    hardest = torch.topk(losses[mask & (target == 0)], 3 * len(positive)).values
    mean = (positive.sum() + hardest.sum()) / (4 * len(positive) + 1e-6)
    torch.testing.assert_close(gradient, torch.autograd.grad(mean, logits)[0])


def test_a_page_without_text_still_teaches_background():
    batch = random_batch() | {"prob_maps": torch.zeros(SHAPE)}
    prediction = random_prediction()
    loss, parts = DBLoss()(prediction, batch)
    (gradient,) = torch.autograd.grad(loss, prediction.prob_logits, retain_graph=True)
    assert torch.isfinite(loss)
    assert parts["prob"] > 0
    assert gradient.isfinite().all()
    assert (gradient > 0).sum() >= int(MIN_NEGATIVE_SHARE * int(batch["prob_masks"].sum()))


def test_a_batch_that_is_masked_out_has_no_loss_and_no_gradient_but_a_graph():
    nowhere = torch.zeros(SHAPE, dtype=torch.bool)
    batch = random_batch() | {"prob_masks": nowhere, "thresh_masks": nowhere}
    prediction = random_prediction()
    loss, _ = DBLoss()(prediction, batch)
    (gradient,) = torch.autograd.grad(loss, prediction.prob_logits)
    assert float(loss.detach()) == 0
    assert not gradient.any()


def test_a_perfect_prediction_has_next_to_no_loss():
    batch = random_batch()
    logits = (batch["prob_maps"] * 2 - 1) * 30
    loss, _ = DBLoss()(Prediction(logits, batch["thresh_maps"], batch["prob_maps"]), batch)
    assert float(loss) < 1e-5


@pytest.mark.parametrize("extreme", [65504.0, -65504.0])
def test_the_largest_numbers_of_float16_give_a_finite_loss_and_gradient(extreme):
    logits = torch.full((2, *SHAPE), extreme, dtype=torch.float16).requires_grad_()
    prediction = Prediction(logits[0], *binarize(logits[0], logits[1], 50.0))
    loss, _ = DBLoss()(prediction, random_batch())
    loss.backward()
    assert torch.isfinite(loss)
    assert logits.grad.isfinite().all()


def test_a_prediction_that_is_not_a_number_is_not_hidden():
    prediction, batch = random_prediction(), random_batch()
    broken = prediction.prob_logits.detach().clone()
    broken[0, 0, 0, 0] = torch.nan
    batch["prob_masks"][0, 0, 0, 0] = True
    loss, _ = DBLoss()(prediction._replace(prob_logits=broken), batch)
    assert loss.isnan()


def test_balanced_cross_entropy_takes_masks_of_any_type():
    prediction, batch = random_prediction(), random_batch()
    mask = batch["prob_masks"]
    losses = [
        balanced_cross_entropy(prediction.prob_logits, batch["prob_maps"], kind, 3.0)
        for kind in (mask, mask.float(), mask.to(torch.uint8))
    ]
    assert losses[0] == losses[1] == losses[2]


def test_an_evaluation_prediction_is_refused():
    with rejects(ConfigError, setting="with_threshold", value=False):
        DBLoss()(Prediction(torch.zeros(SHAPE)), random_batch())


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("negative_ratio", -1),
        ("negative_ratio", "3"),
        ("prob_weight", -1),
        ("thresh_weight", "10"),
        ("binary_weight", None),
        ("eps", 0),
    ],
)
def test_settings_that_cannot_work_are_named(setting, value):
    with rejects(ConfigError, setting=setting, value=value):
        DBLoss(**{setting: value})


def test_a_loss_prints_its_settings():
    assert "prob_weight=5.0, thresh_weight=10.0, binary_weight=1.0, negative_ratio=3.0" in repr(DBLoss())
