"""The average of the weights."""

import pytest
import torch

from ocr.errors import ConfigError
from ocr.training.callbacks.ema import WarmEMA, warm_average


def test_the_random_start_is_soon_forgotten():
    average = torch.tensor(100.0)
    for update in range(20):
        average = warm_average(average, torch.tensor(1.0), update, 0.999)
    assert average < 1.01


def test_later_the_average_follows_slowly():
    assert warm_average(torch.tensor(1.0), torch.tensor(0.0), 10**6, 0.99) == pytest.approx(0.99)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_that_keeps_or_drops_everything_is_refused(decay):
    with pytest.raises(ConfigError, match="decay"):
        WarmEMA(decay)
