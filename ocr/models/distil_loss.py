"""The loss of a student compared with its teacher: how far its three maps are from the teacher's, in float32."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from ocr.checks import POSITIVE
from ocr.errors import ConfigError
from ocr.models.head import Prediction
from ocr.models.loss import balanced_weights, check_weights


class DistilLoss(nn.Module):
    """Weighted sum of three parts, each zero where both have the same map; `weight` scales the whole sum.

    All pixels count, even where the labels leave them out: the teacher's maps are what the student learns there.
    """

    def __init__(
        self,
        weight: float = 1.0,
        prob_weight: float = 5.0,
        thresh_weight: float = 10.0,
        binary_weight: float = 1.0,
        negative_ratio: float = 3.0,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        if weight not in POSITIVE:
            raise ConfigError(
                f"weight={weight!r} must be {POSITIVE}. Set teacher=null to train without a teacher",
                setting="weight",
                value=weight,
            )
        check_weights(prob_weight=prob_weight, thresh_weight=thresh_weight, binary_weight=binary_weight)
        check_weights(negative_ratio=negative_ratio)
        parts = {"prob": prob_weight, "thresh": thresh_weight, "binary": binary_weight}
        self.weights = {name: weight * part for name, part in parts.items()}
        self.negative_ratio, self.eps = negative_ratio, eps

    def forward(self, student: Prediction, teacher: Prediction) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss, and its unweighted parts without their graph: `prob`, `thresh`, `binary`."""
        if student.thresh is None or student.binary is None or teacher.thresh is None or teacher.binary is None:
            raise ConfigError(
                "a prediction has no threshold map. Call both detectors with with_threshold=True",
                setting="with_threshold",
                value=False,
            )
        with torch.autocast(student.prob_logits.device.type, enabled=False):
            parts = {
                "prob": self._divergence(student.prob_logits.float(), teacher.prob_logits.float()),
                "thresh": (student.thresh.float() - teacher.thresh.float()).abs().mean(),
                "binary": squared_dice(student.binary.float(), teacher.binary.float(), self.eps),
            }
            loss = torch.stack([self.weights[name] * part for name, part in parts.items()]).sum()
        return loss, {name: part.detach() for name, part in parts.items()}

    def _divergence(self, logits: torch.Tensor, of_teacher: torch.Tensor) -> torch.Tensor:
        """Cross-entropy less the teacher's entropy: the teacher need not be sure for the loss to be zero."""
        target = of_teacher.sigmoid()
        losses = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        least = functional.binary_cross_entropy_with_logits(of_teacher, target, reduction="none")
        weights = balanced_weights(logits, target, torch.ones_like(target, dtype=torch.bool), self.negative_ratio)
        return ((losses - least) * weights).sum() / (weights.sum() + self.eps)


def squared_dice(value: torch.Tensor, target: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """One minus the overlap of two maps, which is perfect for equal ones, also between 0 and 1."""
    overlap = (value * target).sum()
    return 1 - (2 * overlap + eps) / (value.square().sum() + target.square().sum() + eps)
