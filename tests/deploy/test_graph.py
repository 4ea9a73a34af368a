"""The graph that is exported equals the detector."""

import numpy as np
import pytest
import torch

from ocr.deploy.graph import exportable
from ocr.models.detector import TextDetector
from ocr.pipeline.device import Normalize


@pytest.mark.parametrize("encoder", ["tf_efficientnet_lite0", "test_resnet"])
@pytest.mark.parametrize("size", [(64, 96), (128, 32)])
def test_an_exportable_graph_gives_the_maps_of_the_detector_at_every_multiple_of_32(encoder, size):
    torch.manual_seed(0)
    detector = TextDetector(encoder, channels=16).eval()
    pages = torch.randint(0, 256, (2, *size, 3), dtype=torch.uint8)
    with torch.inference_mode():
        expected = detector(Normalize().on_device(pages.permute(0, 3, 1, 2))).prob_map[:, 0]
        found = exportable(detector, Normalize())(pages)
    assert np.allclose(found, expected, atol=1e-6)
    assert float(expected.std()) > 0


def test_half_precision_is_between_a_normalisation_and_a_sigmoid_in_float32_and_leaves_the_detector_alone():
    detector = TextDetector("test_resnet", channels=16).eval()
    graph = exportable(detector, Normalize(), torch.bfloat16)
    maps = graph(torch.zeros(1, 32, 32, 3, dtype=torch.uint8))
    assert maps.dtype == graph.offset.dtype == torch.float32
    assert {weight.dtype for weight in graph.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in detector.parameters()} == {torch.float32}
