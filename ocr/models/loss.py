"""The loss of DBNet: balanced cross-entropy, L1 on the threshold band, Dice on the binarised map, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from ocr.checks import POSITIVE, Range
from ocr.errors import ConfigError
from ocr.models.head import Prediction

MAPS = ("prob_maps", "thresh_maps", "prob_masks", "thresh_masks")
# A page without text still trains the background: at least this share of its pixels counts, the hardest ones.
MIN_NEGATIVE_SHARE = 0.001
LOWER_BITS = 0x7FFFFFFF


class DBLoss(nn.Module):
    """Weighted sum of the three parts; the default weights are the published code's (5, 10, 1).

    With a map per unit, the mean over the units that pages of the batch are labelled in.
    """

    def __init__(
        self,
        prob_weight: float = 5.0,
        thresh_weight: float = 10.0,
        binary_weight: float = 1.0,
        negative_ratio: float = 3.0,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        check_weights(prob_weight=prob_weight, thresh_weight=thresh_weight, binary_weight=binary_weight)
        check_weights(negative_ratio=negative_ratio)
        if eps not in POSITIVE:
            raise ConfigError(f"eps={eps!r} must be {POSITIVE}", setting="eps", value=eps)
        self.weights = {"prob": prob_weight, "thresh": thresh_weight, "binary": binary_weight}
        self.negative_ratio = negative_ratio
        self.eps = eps

    def forward(self, prediction: Prediction, batch: Mapping[str, Any]) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss, and its unweighted parts without their graph: `prob`, `thresh`, `binary`."""
        if prediction.thresh is None or prediction.binary is None:
            raise ConfigError(
                "the prediction has no threshold map. Call the detector with with_threshold=True",
                setting="with_threshold",
                value=False,
            )
        device = prediction.prob_logits.device
        with torch.autocast(device.type, enabled=False):
            prob, thresh, prob_mask, thresh_mask = (batch[name].to(device, non_blocking=True) for name in MAPS)
            if prob.shape[1] != prediction.prob_logits.shape[1]:
                raise ConfigError(
                    f"{prob.shape[1]} target maps for {prediction.prob_logits.shape[1]} predicted ones. Set the same "
                    "units for model and targets",
                    setting="units",
                    value=prob.shape[1],
                )
            if prob.shape[1] == 1:
                parts = self._parts(prediction, prob, thresh, prob_mask, thresh_mask)
            else:
                shares = _shares_of_units(prob_mask)
                maps = (prob, thresh, prob_mask, thresh_mask)
                of_units = [
                    self._parts(prediction.of_unit(unit), *(value[:, unit, None] for value in maps))
                    for unit in range(prob.shape[1])
                ]
                stacked = {name: torch.stack([part[name] for part in of_units]) for name in of_units[0]}
                parts = {name: (values * shares).sum() for name, values in stacked.items()}
            loss = torch.stack([self.weights[name] * part for name, part in parts.items()]).sum()
        return loss, {name: part.detach() for name, part in parts.items()}

    def _parts(
        self,
        prediction: Prediction,
        prob: torch.Tensor,
        thresh: torch.Tensor,
        prob_mask: torch.Tensor,
        thresh_mask: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        assert prediction.thresh is not None
        assert prediction.binary is not None
        logits = prediction.prob_logits.float()
        return {
            "prob": balanced_cross_entropy(logits, prob, prob_mask, self.negative_ratio, self.eps),
            "thresh": masked_l1(prediction.thresh.float(), thresh, thresh_mask, self.eps),
            "binary": masked_dice(prediction.binary.float(), prob, prob_mask, self.eps),
        }

    def extra_repr(self) -> str:
        weights = ", ".join(f"{name}_weight={weight}" for name, weight in self.weights.items())
        return f"{weights}, negative_ratio={self.negative_ratio}"


def _shares_of_units(prob_mask: torch.Tensor) -> torch.Tensor:
    """(U,): the share of each unit in the loss, 0 for one that no page of the batch is labelled in."""
    labelled = prob_mask.bool().any(dim=3).any(dim=2).any(dim=0).float()
    return labelled / labelled.sum().clamp(min=1)


def check_weights(**weights: object) -> None:
    """Raise if a weight of a loss is not a number from 0 on: less would train away from the labels."""
    for name, value in weights.items():
        if value not in Range(0):
            raise ConfigError(f"{name}={value!r} must be {Range(0)}", setting=name, value=value)


def balanced_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, mask: torch.Tensor, negative_ratio: float, eps: float = 1e-6
) -> torch.Tensor:
    """Mean over all text pixels of the batch and `negative_ratio` times as many background pixels, the hardest."""
    losses = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    weights = balanced_weights(logits, target, mask, negative_ratio)
    return (losses * weights).sum() / (weights.sum() + eps)


@torch.no_grad()
def balanced_weights(
    logits: torch.Tensor, target: torch.Tensor, mask: torch.Tensor, negative_ratio: float
) -> torch.Tensor:
    """How much each pixel counts: text, and `negative_ratio` times as many pixels of background, the hardest."""
    positive = (target > 0.5) & mask.bool()
    negative = (target <= 0.5) & mask.bool()
    # Of what counts: the padding around pages that keep their shape does not.
    least = mask.sum() * MIN_NEGATIVE_SHARE
    return positive + hard_negatives(logits, negative, torch.maximum(positive.sum() * negative_ratio, least))


def hard_negatives(logits: torch.Tensor, negative: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Weights that pick the `wanted` background pixels of the highest logits; equal ones share the rest.

    The loss of a background pixel grows with its logit, so logits rank as losses do. Counts stay on the device.
    """
    count = torch.minimum(wanted.long(), negative.sum())
    scores = logits.detach().masked_fill(~negative, -torch.inf)
    limit = kth_largest(scores.flatten(), count)
    above, level = scores > limit, scores == limit
    # Blank paper gives thousands of equal logits; taking all of them would drown the text.
    return above + level * ((count - above.sum()) / level.sum().clamp(min=1))


def kth_largest(scores: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """The `count`-th largest of a float32 vector, without a sort; nothing is larger than the 0-th.

    Of 16 x 640 x 640 on two cores: sort 1160 ms, topk 194, kthvalue 120, histogram 67 (and not exact), partition 66.
    """
    if scores.device.type != "cpu":
        return kth_largest_by_bits(scores, count)
    rank = scores.numel() - int(count)
    return torch.as_tensor(np.partition(scores.numpy(), rank)[rank] if rank < scores.numel() else np.float32(np.inf))


def kth_largest_by_bits(scores: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """The same for a GPU: 32 passes that count, one per bit of the result, and `count` is never read by the host."""
    bits = scores.view(torch.int32)
    # As integers, positive floats are in their order and negative ones in the opposite order.
    keys = bits ^ ((bits >> 31) & LOWER_BITS)
    found = torch.full_like(count, -(1 << 31))
    for bit in reversed(range(32)):
        larger = found + (1 << bit)
        found = torch.where((keys >= larger).sum() >= count, larger, found)
    key = found.to(torch.int32)
    return (key ^ ((key >> 31) & LOWER_BITS)).view(torch.float32)


def masked_l1(value: torch.Tensor, target: torch.Tensor, mask: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Mean absolute difference inside the mask."""
    return ((value - target).abs() * mask).sum() / (mask.sum() + eps)


def masked_dice(value: torch.Tensor, target: torch.Tensor, mask: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """One minus the overlap of two maps inside the mask; two empty maps overlap perfectly."""
    masked_value, masked_target = value * mask, target * mask
    overlap = (masked_value * masked_target).sum()
    return 1 - (2 * overlap + eps) / (masked_value.sum() + masked_target.sum() + eps)
