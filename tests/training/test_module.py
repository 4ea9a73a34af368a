"""The Lightning module by itself."""

import numpy as np
import torch

from ocr.evaluation.boxes import BoxesFromMap
from ocr.models.detector import TextDetector
from ocr.models.loss import DBLoss
from ocr.training.module import OCRPLModule


def test_a_validation_begins_without_the_pages_of_one_that_failed():
    module = OCRPLModule(TextDetector("test_efficientnet", channels=16).eval(), DBLoss(), BoxesFromMap())
    batch = {"images": torch.zeros(1, 3, 32, 32), "inverse_matrix": [np.eye(3)], "shape": [(32, 32)]}
    module.on_validation_epoch_start()
    with torch.no_grad():
        module.validation_step(batch, 0)
    # An error or an interrupt: the end of the epoch is never reached.
    module.on_validation_epoch_start()
    module.on_validation_epoch_end()
    assert module.record._scores[1]["hmean"] == 1
